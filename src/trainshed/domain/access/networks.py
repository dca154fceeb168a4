"""What user code of a project reaches over the network."""

from __future__ import annotations

from collections.abc import Mapping

from trainshed.errors import InvalidArgumentError

MACHINE = "machine"  #: of the setting alone: user code has the machine's own network
#: each network that a project can have, for people
NETWORKS: Mapping[str, str] = {
    "none": "its own gang alone",
    "google-storage": "its own gang, this server, and Google's storage",
    "all": "its own gang, this server, and other machines",
}


def check_network(network: object) -> str:
    """Return the network. Raises `InvalidArgumentError` if there is no such one."""
    if not isinstance(network, str) or network not in NETWORKS:
        raise InvalidArgumentError(
            f"A network is {', '.join(list(NETWORKS)[:-1])} or {list(NETWORKS)[-1]}; {str(network)[:40]!r} is not.",
            field="network",
        )
    return network
