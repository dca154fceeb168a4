"""Finding the server: the one whose state folder this is, or the one that a URL names."""

from __future__ import annotations

import fcntl
import json
import os
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from trainshed.client.transport import Client
from trainshed.config import ClientSettings, Home
from trainshed.errors import CannotProceedError
from trainshed.proxy.client_config import ServerEndpoints


class ServerNotRunningError(CannotProceedError):
    """There is no server to talk to."""

    def __init__(self, home: Home) -> None:
        super().__init__(f"No Trainshed server is running for {home.path}. Start one with: trainshed up")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerProcess:
    """A server that is alive: it holds the lock of its state folder."""

    url: str
    tls_url: str
    pid: int
    home: str
    version: str


def running(home: Home) -> ServerProcess | None:
    """The server of this state folder. What server.json says counts only while that very process holds the lock."""
    if not locked(home):
        return None
    try:
        body = json.loads(home.server.read_text())
        server = ServerProcess(**{name: body[name] for name in ServerProcess.__slots__})
    except (OSError, ValueError, KeyError, TypeError):
        return None  # it has the lock, but has not yet written who it is
    holders = _holders(home)
    return server if not holders or server.pid in holders else None  # else the file is its predecessor's


def reach(home: Home) -> ServerEndpoints | None:
    """How programs here are led to this state folder's server under Google's names; None if it leads nobody."""
    if running(home) is None:
        return None
    said = json.loads(home.server.read_text()).get("reach")
    return ServerEndpoints(**said | {"bundle": Path(said["bundle"])}) if said else None


def _holders(home: Home) -> set[int]:
    """The processes that hold the lock, as far as the kernel tells: some sandboxes don't show its list."""
    try:
        inode = home.lock.stat().st_ino
        rows = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    except OSError:
        return set()
    ours = [row[4] for row in rows if len(row) > 5 and row[1] == "FLOCK" and row[5].endswith(f":{inode}")]
    return {int(pid) for pid in ours if pid.isdigit() and pid != "0"}  # 0: of another container


def locked(home: Home) -> bool:
    """Whether some process holds the state folder's lock. The kernel drops it when that process dies.

    Trying to take it is the last resort: a server that starts at that very moment would be refused.
    """
    if _holders(home):
        return True
    if not home.server.exists():
        return False
    try:
        fd = os.open(home.lock, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def connect(settings: ClientSettings) -> Client:
    """A client of TRAINSHED_URL, else of this state folder's server. `ServerNotRunningError` if there is none."""
    if settings.url is None:
        server = running(settings.home)
        if server is None:
            raise ServerNotRunningError(settings.home)
        return Client(server.url, token=settings.token or owner_token(settings.home))
    token = settings.token
    if token is None and (is_loopback(settings.url) or _is_for(settings.home, settings.url)):
        token = owner_token(settings.home)
    return Client(settings.url, token=token, ca_file=_authority(settings.home))


def _is_for(home: Home, url: str) -> bool:
    """Whether the folder's token is for a server elsewhere, and this is it. The owner's is for this machine only."""
    try:
        return home.token_for.read_text().strip() == url
    except OSError:
        return False


def owner_token(home: Home) -> str | None:
    try:
        return home.token.read_text().strip() or None
    except FileNotFoundError:
        return None
    except OSError as exc:
        raise CannotProceedError(f"The token in {home.token} can't be read: {exc.strerror}.") from exc


def is_loopback(url: str) -> bool:
    """Whether it leads to this machine, whatever names mean here."""
    import ipaddress

    host = urlsplit(url).hostname or ""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False  # a name such as 127.0.0.1.example is anyone's


def _authority(home: Home) -> str | None:
    path = home.certificates / "ca.pem"
    return str(path) if path.is_file() else None
