"""The sandbox of a server: its level, which is found while the server starts, and what all user code sees in it."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from urllib.parse import urlsplit

from trainshed.config import Home, Settings
from trainshed.domain.access.networks import MACHINE
from trainshed.engines.local.limits import find_limits, machine_memory
from trainshed.engines.local.networks import Networks
from trainshed.engines.local.sandbox import FULL, NONE, Sandbox, SandboxCheck, SandboxLevel
from trainshed.errors import CannotProceedError
from trainshed.proxy import google_hosts
from trainshed.services.server import ServerInfo


def begin_sandbox(home: Home, settings: Settings) -> Callable[[], Sandbox]:
    """Begin to look for the level. Returns a function that waits for it, and raises `CannotProceedError` if it is less
    than the setting asks for."""
    check = SandboxCheck(home, settings.sandbox)

    def find() -> Sandbox:
        level = check.result()
        require_network(level, settings)
        limits = find_limits(home, settings, machine_memory()) if level.level != NONE else None
        return Sandbox(home=home, level=level, paths=settings.visible_paths, limits=limits)

    return find


def require_network(level: SandboxLevel, settings: Settings) -> None:
    """Raises `CannotProceedError` if user code must have a network of its own, and can't."""
    if settings.sandbox == FULL and settings.network != MACHINE and not level.network:
        raise CannotProceedError(
            f"The setting sandbox is {FULL!r}, but this machine has no networks for sandboxes: {level.network_reason}. "
            f"Allow them (`sysctl user.max_net_namespaces`), or set network to {MACHINE!r}."
        )


def with_networks(sandbox: Sandbox, settings: Settings, urls: Iterable[str], proxy_url: str) -> Sandbox:
    """The sandbox with a network of its own, if the machine and the setting allow it.

    `urls` are those of the server as jobs know them, and `proxy_url` that of its proxy, or empty.
    """
    level = sandbox.level
    if not level.network or settings.network == MACHINE:
        return sandbox
    networks = Networks(
        access=lambda project: settings.network,
        ports=tuple(_endpoint(url) for url in urls),
        proxy=urlsplit(proxy_url).port or 0,
        names=google_hosts.PATTERN,
        refused=partial(_addresses, settings.ray_host),
        package_hosts=tuple(host.strip() for host in settings.package_hosts.split(",") if host.strip()),
        redirects=level.redirects,
        redirects_reason=level.redirects_reason,
    )
    return replace(sandbox, networks=networks)


def _endpoint(url: str) -> tuple[str, int]:
    """An address at which the server listens."""
    parts = urlsplit(url)
    host = parts.hostname or "127.0.0.1"
    return next(iter(_addresses(host)), host), parts.port or 80


def _addresses(host: str) -> list[str]:
    """The addresses of a host, those of version 4 first. Empty if it is not known."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM) if host else []
    except OSError:
        return []
    return sorted({str(each[4][0]) for each in found}, key=lambda address: ":" in address)


def with_levels(info: ServerInfo, sandbox: Sandbox, settings: Settings) -> ServerInfo:
    """The server's description with the levels in force of the sandbox, its network and its limits."""
    limits, level = sandbox.limits, sandbox.level
    if settings.network == MACHINE:
        network, reason = "machine", "the setting `network` says so"
    elif not level.network:
        network, reason = "machine", level.network_reason
    else:
        network, reason = ("own", "") if level.redirects else ("proxied", level.redirects_reason)
    return replace(
        info,
        sandbox=sandbox.level.level,
        sandbox_reason=sandbox.level.reason,
        network=network,
        network_reason=reason,
        limits=limits.level if limits else NONE,
        limits_reason=limits.reason if limits else "there is no sandbox",
    )
