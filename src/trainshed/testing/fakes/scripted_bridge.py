"""A bridge to an imaginary cluster: it responds from memory, immediately."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from trainshed.domain.capacity.placement import Resources, fits
from trainshed.engines.ray.bridge_process import ClusterNode, ClusterStatus
from trainshed.errors import EngineUnavailableError


class ScriptedBridge:
    """`machines` are the resources of each node. A placement group is created at its request, if it fits."""

    def __init__(self, machines: Sequence[Resources], socket: Path = Path("/nowhere/sock")) -> None:
        """`socket` is where replica proxies are served, if they are."""
        self.machines = list(machines)
        self.socket = socket
        self.groups: dict[str, list[Resources]] = {}
        self.silent_since_us = 0  #: since when the cluster is unreachable
        self.placing = False  #: groups stay pending although they fit
        self.why = ""

    def cluster(self) -> ClusterStatus:
        silent = bool(self.silent_since_us)
        alive = [
            ClusterNode(id=str(number), host=f"10.0.0.{number}", alive=True, total=total, free=free)
            for number, (total, free) in enumerate(zip(self.machines, self._free(), strict=True), start=1)
        ]
        dead = ClusterNode(id="0", host="10.0.0.99", alive=False, total={}, free={})
        return ClusterStatus(
            address="10.0.0.1:6379",
            reachable=not silent,
            since_us=self.silent_since_us,
            reason=self.why,
            nodes=() if silent else (*alive, dead),
        )

    def reserve(self, gang: str, bundles: Mapping[str, Resources], strategy: str) -> bool:
        self._check()
        if gang not in self.groups and not self.placing and fits(bundles.values(), self._free()):
            self.groups[gang] = list(bundles.values())
        return gang in self.groups

    def release(self, gang: str) -> None:
        self._check()
        self.groups.pop(gang, None)

    def _free(self) -> list[dict[str, float]]:
        """Return the free resources of each node, with the groups placed in the order of their creation."""
        free = [dict(machine) for machine in self.machines]
        for bundle in (bundle for group in list(self.groups.values()) for bundle in group):
            machine = next(each for each in free if fits([bundle], [each]))
            for kind, amount in bundle.items():
                machine[kind] -= amount
        return free

    def _check(self) -> None:
        if self.silent_since_us:
            raise EngineUnavailableError("The cluster does not answer.")
