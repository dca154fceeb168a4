"""What there is to know about the running server."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from trainshed.config import Settings

_IN_ADDRESS = re.compile(r"(://[^:/@]*:).*@", re.DOTALL)
_IN_QUERY = re.compile(r"([?&](?:ssl)?password=)[^&#]*", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerInfo:
    url: str
    tls_url: str
    pid: int
    home: str
    version: str

    def body(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class EffectiveSettings:
    """`sources` says of each setting where its value is from, as `Settings.sources` has it."""

    settings: Settings
    sources: Mapping[str, str]

    def body(self) -> dict[str, Any]:
        """All of them, in the order of the documentation, without secrets."""
        return {
            "settings": [
                {
                    "name": setting.name,
                    "value": masked(getattr(self.settings, setting.name)),
                    "default": setting.default,
                    "source": self.sources[setting.name],
                    "description": setting.metadata["description"],
                }
                for setting in fields(Settings)
            ]
        }


def masked(value: Any) -> Any:
    """The value; if it is the address of a database, without the password in it."""
    if not isinstance(value, str):
        return value
    return _IN_QUERY.sub(r"\1***", _IN_ADDRESS.sub(r"\1***@", value))
