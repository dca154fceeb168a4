"""How the nodes of a cluster reach this server: its TLS port, at an address that works from there."""

from __future__ import annotations

import ipaddress
import socket
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from trainshed.errors import CannotProceedError
from trainshed.proxy.client_config import ServerEndpoints
from trainshed.proxy.google_hosts import PATTERN

CREDENTIALS_FOLDER = Path("@node@/credentials")  #: of a remote replica; the node agent substitutes the placeholder
SIDECAR_PLACEHOLDER = "@sidecar_proxy@"  #: placeholder for the host and port of the sidecar proxy
_UNASSIGNED_ADDRESS = "192.0.2.1"  #: an address of TEST-NET-1, which no machine has; nothing is sent to it


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeEndpoint:
    """The endpoint of this server for nodes of a cluster."""

    tls_url: str
    authority: str  #: the CA certificate of its TLS port
    serves_gs: bool  #: whether `gs://` in trainer code means this server's buckets

    def sidecar_settings(self) -> dict[str, object] | None:
        """Return the sidecar proxy's settings: the hosts to intercept and this server's address.

        Returns None if the server does not serve `gs://`.
        """
        if not self.serves_gs:
            return None
        tls = urlsplit(self.tls_url)
        return {"host": tls.hostname, "port": tls.port, "names": PATTERN}

    @property
    def endpoints(self) -> ServerEndpoints:
        """The endpoints for programs on a node. All use TLS, because the network between is not trusted."""
        return ServerEndpoints(
            url=self.tls_url,
            tls_url=self.tls_url,
            proxy_url=f"http://{SIDECAR_PLACEHOLDER}",
            bundle=CREDENTIALS_FOLDER / "bundle.pem",
        )


def host_for_nodes(listening: str, *, given: str = "", cluster: str = "") -> str:
    """Return the name or address at which nodes reach a server that listens at `listening`.

    `given` is the operator's setting and wins. For a server that listens at every address, it is this machine's source
    address towards the `cluster`, or towards the internet.
    """
    if given:
        return given
    if listening not in ("0.0.0.0", "::"):  # noqa: S104  compared, not bound
        return listening
    local = _is_loopback(cluster) or not cluster
    return _own_address(_UNASSIGNED_ADDRESS if local else cluster) or "127.0.0.1"


def check_reachable(host: str, cluster: str) -> None:
    """Raise `CannotProceedError` if nodes of the cluster at `cluster` (its head) cannot reach the server at `host`."""
    if _is_loopback(host) and not _is_loopback(cluster):
        raise CannotProceedError(
            f"The server listens on {host}, where the machines of the cluster at {cluster} can't reach it. Start it "
            f"with --host 0.0.0.0, or with an address of this machine that they can reach."
        )


def _own_address(destination: str) -> str:
    """Return this machine's source address towards another. Returns "" if there is no route. Sends nothing."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(destination, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.connect(address)
            return str(probe.getsockname()[0])
    except OSError:
        return ""


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
