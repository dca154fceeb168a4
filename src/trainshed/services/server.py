"""What there is to know about the running server."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerInfo:
    url: str
    tls_url: str
    pid: int
    home: str
    version: str

    def body(self) -> dict[str, Any]:
        return asdict(self)
