"""The running server: its endpoints and its effective settings."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from trainshed.config import Settings
from trainshed.domain.iam import ALL_PROJECTS, Access, Principal

_URL_PASSWORD = re.compile(r"(://[^:/@]*:).*@", re.DOTALL)
_QUERY_PASSWORD = re.compile(r"([?&](?:ssl)?password=)[^&#]*", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerInfo:
    """The endpoints and the process of the server."""

    url: str
    tls_url: str
    pid: int
    home: str
    version: str
    fast_path_off_reason: str  #: with the remedy; empty if predictions have the fast path
    sandbox: str = "none"  #: the level of the sandbox around user code
    sandbox_reason: str = ""  #: why it is not a higher one
    network: str = "machine"  #: whether user code has a network of its own: `own`, `proxied` or `machine`
    network_reason: str = ""  #: why it has not, or why it reaches other machines by a proxy alone
    limits: str = "none"  #: by which means the limits of user code are kept
    limits_reason: str = ""  #: why they are not kept by control groups

    def body(self, principal: Principal) -> dict[str, Any]:
        """Return the endpoints, and for owners of the server its process and folder."""
        process = {"pid": self.pid, "home": self.home} if principal.may(Access.ADMIN, ALL_PROJECTS) else {}
        return {
            "url": self.url,
            "tlsUrl": self.tls_url,
            **process,
            "version": self.version,
            "fastPathOffReason": self.fast_path_off_reason,
            "sandbox": self.sandbox,
            "sandboxReason": self.sandbox_reason,
            "network": self.network,
            "networkReason": self.network_reason,
            "limits": self.limits,
            "limitsReason": self.limits_reason,
        }


@dataclass(frozen=True, slots=True)
class EffectiveSettings:
    """The settings in effect. `sources` names where each value comes from, as `Settings.sources` returns it."""

    settings: Settings
    sources: Mapping[str, str]

    def body(self) -> dict[str, Any]:
        """Return all settings in the order of the documentation, without secrets."""
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
    """Return the value. Masks the password if it is a database URL."""
    if not isinstance(value, str):
        return value
    return _QUERY_PASSWORD.sub(r"\1***", _URL_PASSWORD.sub(r"\1***@", value))
