"""Finding the server: that of this state folder, or the one that a URL names."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from trainshed.client.transport import Client
from trainshed.config import ClientSettings, Home
from trainshed.errors import CannotProceedError
from trainshed.node.files import write_file
from trainshed.proxy.client_config import ServerEndpoints


class ServerNotRunningError(CannotProceedError):
    """No server is running for this state folder."""

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
    fast_path_off_reason: str  #: with the remedy; empty if predictions have the fast path
    sandbox: str  #: the level of the sandbox around user code
    sandbox_reason: str  #: why it is not a higher one; empty at the full level
    network: str  #: the network of user code
    network_reason: str  #: why it is not `own`; empty if it is
    limits: str  #: by which means the limits of user code are kept
    limits_reason: str  #: why control groups do not keep them; empty if they do


def running(home: Home) -> ServerProcess | None:
    """Return the server of this state folder. Returns None if none runs.

    server.json counts only while the process that it names holds the lock.
    """
    if not locked(home):
        return None
    try:
        body = json.loads(home.server.read_text())
        server = ServerProcess(**{name: body[name] for name in ServerProcess.__slots__})
    except (OSError, ValueError, KeyError, TypeError):
        return None  # it has the lock, but has not written server.json yet
    holders = _holders(home)
    return server if not holders or server.pid in holders else None  # else the file is its predecessor's


def server_endpoints(home: Home) -> ServerEndpoints | None:
    """Return how programs here reach this state folder's server under Google's names.

    Returns None if no server runs, or if it intercepts nothing.
    """
    if running(home) is None:
        return None
    endpoints = json.loads(home.server.read_text()).get("endpoints")
    return ServerEndpoints(**endpoints | {"bundle": Path(endpoints["bundle"])}) if endpoints else None


def _holders(home: Home) -> set[int]:
    """Return the processes that hold the lock. Empty if unknown: some sandboxes hide the kernel's list of locks."""
    try:
        inode = home.lock.stat().st_ino
        rows = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    except OSError:
        return set()
    holders = [row[4] for row in rows if len(row) > 5 and row[1] == "FLOCK" and row[5].endswith(f":{inode}")]
    return {int(pid) for pid in holders if pid.isdigit() and pid != "0"}  # 0: a process of another container


def locked(home: Home) -> bool:
    """Return whether a process holds the state folder's lock. The kernel releases it when that process dies.

    Taking the lock is the last resort: a server that starts at the same moment would fail.
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
    """Return a client of TRAINSHED_URL, else of this state folder's server.

    Raises `ServerNotRunningError` if there is none.
    """
    if settings.url is None:
        server = running(settings.home)
        if server is None:
            raise ServerNotRunningError(settings.home)
        return Client(server.url, token=current_token(settings))
    return Client(settings.url, token=current_token(settings), ca_file=_ca_file(settings.home))


def current_token(settings: ClientSettings) -> str | None:
    """Return TRAINSHED_TOKEN, else the token of a sign-in to the server of TRAINSHED_URL, else the owner's.

    An owner's token is for this machine, or for the server that it was made for.
    """
    if settings.token is not None or settings.url is None:
        return settings.token or owner_token(settings.home)
    if (token := client_sessions(settings.home).get(settings.url)) is not None:
        return token
    if is_loopback(settings.url) or _has_token_for(settings.home, settings.url):
        return owner_token(settings.home)
    return None


def client_sessions(home: Home) -> dict[str, str]:
    """Return the tokens of `trainshed auth login`, by the URL of their server."""
    path = _sessions_path(home)
    try:
        sessions = json.loads(path.read_text())
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, ValueError) as exc:
        raise CannotProceedError(f"The sign-ins in {path} can't be read: {exc}. Remove the file.") from exc
    if not isinstance(sessions, dict):
        raise CannotProceedError(f"{path} has no sign-ins. Remove the file.")
    return {str(url): str(token) for url, token in sessions.items()}


def write_client_sessions(home: Home, sessions: Mapping[str, str]) -> None:
    """Replace the tokens of sign-ins."""
    home.path.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_file(_sessions_path(home), json.dumps(sessions).encode(), durable=True)


def _sessions_path(home: Home) -> Path:
    return home.path / "sessions.json"


def _has_token_for(home: Home, url: str) -> bool:
    """Return whether the folder's token is for the remote server at `url`."""
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
    """Return whether the URL is on this machine, without resolving names."""
    import ipaddress

    host = urlsplit(url).hostname or ""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False  # anyone can register a name such as 127.0.0.1.example


def _ca_file(home: Home) -> str | None:
    path = home.certificates / "ca.pem"
    return str(path) if path.is_file() else None
