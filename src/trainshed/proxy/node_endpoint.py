"""How machines of a cluster get to this server: its TLS port, at an address that is good from there."""

from __future__ import annotations

import ipaddress
import socket
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from trainshed.errors import CannotProceedError
from trainshed.proxy.client_config import ServerEndpoints
from trainshed.proxy.google_hosts import PATTERN

FOLDER = Path("@node@/credentials")  #: of a replica; what runs on its machine knows the rest
RELAY = "@relay@"  #: host and port of the relay there
_ELSEWHERE = "192.0.2.1"  #: an address that nobody has; nothing is sent to it


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeEndpoint:
    """What a machine of a cluster is told of this server."""

    tls_url: str
    authority: str  #: the certificate that its TLS port is to be trusted by
    serves_gs: bool  #: whether `gs://` in the code of trainers means this server's buckets

    def relay(self) -> dict[str, object] | None:
        """Which names the relay on the machine leads to this server, and where that is."""
        if not self.serves_gs:
            return None
        tls = urlsplit(self.tls_url)
        return {"host": tls.hostname, "port": tls.port, "names": PATTERN}

    @property
    def reach(self) -> ServerEndpoints:
        """As programs on that machine have it. All of it goes over TLS: the network between is anybody's."""
        return ServerEndpoints(
            url=self.tls_url,
            tls_url=self.tls_url,
            proxy_url=f"http://{RELAY}",
            bundle=FOLDER / "bundle.pem",
        )


def host_for_nodes(listening: str, *, given: str = "", cluster: str = "") -> str:
    """The name or address by which machines of a cluster reach a server that listens at `listening`.

    `given` is what the operator says. A server that listens at every address is reached at the one from which this
    machine speaks to the `cluster`, or to the rest of the world.
    """
    if given:
        return given
    if listening not in ("0.0.0.0", "::"):  # noqa: S104  compared, not bound
        return listening
    known = _is_loopback(cluster) or not cluster
    return _own_address(_ELSEWHERE if known else cluster) or "127.0.0.1"


def check_reachable(host: str, cluster: str) -> None:
    """`CannotProceedError` if a cluster, whose head is at the host `cluster`, can't reach the server at `host`."""
    if _is_loopback(host) and not _is_loopback(cluster):
        raise CannotProceedError(
            f"The server listens on {host}, where the machines of the cluster at {cluster} can't reach it. Start it "
            f"with --host 0.0.0.0, or with an address of this machine that they can reach."
        )


def _own_address(towards: str) -> str:
    """From which address this machine would speak to another; empty if it has no way there. Sends nothing."""
    try:
        family, kind, number, _, place = socket.getaddrinfo(towards, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, number) as probe:
            probe.connect(place)
            return str(probe.getsockname()[0])
    except OSError:
        return ""


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
