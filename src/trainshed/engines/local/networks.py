"""The networks of sandboxes on this machine: what user code of a project reaches."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

_WHAT = {
    "none": "reaches its own gang alone",
    "google-storage": "reaches its own gang, this server and Google's storage",
    "all": "reaches its own gang, this server and other machines",
}
NO_NAME = "(?!)"  #: a regular expression that fits nothing
_PROXY_ALONE = " It reaches other machines by the proxy in its variables alone"


@dataclass(frozen=True, slots=True, kw_only=True)
class Networks:
    """What user code reaches from a network of its own."""

    access: Callable[[str], str]  #: the network of a project: none, google-storage or all
    ports: tuple[tuple[str, int], ...] = ()  #: of this server, as jobs know them
    proxy: int = 0  #: the port of the proxy that answers for Google's hosts; 0: Google itself answers
    names: str = ""  #: a regular expression for those hosts
    refused: Callable[[], Iterable[str]] = tuple  #: addresses of the cluster, which nobody reaches
    package_hosts: tuple[str, ...] = ()  #: that builds of packages reach besides the index
    redirects: bool = False  #: whether all connections are led to the forwarder
    redirects_reason: str = ""  #: why not

    def render(self, project: str, *, server: bool = False) -> dict[str, Any]:
        """The part of a spec file about the network. With `server`, it reaches the API of this server."""
        access = self.access(project)
        return {
            "access": access,
            "ports": [list(each) for each in self.ports] if server and access != "none" else [],
            "proxy": self.proxy,
            "names": self.names,
            "refused": sorted(self.refused()),
            "redirects": self.redirects and access == "all",
            "remedy": f"An owner of the project can change it: `trainshed network set all --project {project}`.",
        }

    def render_build(self) -> dict[str, Any]:
        """As `render`, for a package build, to which `node.sandbox.builds` adds the hosts of the index."""
        return {
            "access": "index",
            "ports": [],
            "proxy": 0,
            "names": NO_NAME,
            "refused": sorted(self.refused()),
            "redirects": False,
            "hosts": [[host.lower(), port] for host in self.package_hosts for port in (80, 443)],
            "remedy": "Builds of packages reach the package index, and hosts that the setting package_hosts names.",
        }

    def note(self, project: str) -> str:
        """A line for people."""
        access = self.access(project)
        by_proxy = access == "all" and not self.redirects
        more = f"{_PROXY_ALONE}: {self.redirects_reason or 'the kernel has no such rules'}." if by_proxy else ""
        return f"Its network is {access!r}: it {_WHAT[access]}.{more}"
