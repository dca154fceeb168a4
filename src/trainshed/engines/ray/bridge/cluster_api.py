"""Requests about placement groups, nodes and actors, run where Ray answers them quickly.

A bridge on a node of the cluster calls this class directly. Any other bridge is a Ray client, for which each call would
be a separate task, so it runs this class as an actor on the head. Pickled by value, like `actor`.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection
from typing import Any

import ray
from ray.util import placement_group, placement_group_table, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from .actor import AgentActor

CREATED = "CREATED"  #: the state of a group that is completely placed
_PENDING = "PENDING"
_REMOVED = "REMOVED"
_PLACEMENT_TIMEOUT_S = 0.3  #: Ray places a group that fits sooner than this
_POLL_INTERVAL_S = 0.02


class ClusterApi:
    """Calls to Ray that return quickly. All names belong to one namespace."""

    def __init__(self) -> None:
        self._agent_actor = ray.remote(AgentActor)  # once: each takes space in the cluster's memory

    def nodes(self) -> list[dict[str, Any]]:
        """The nodes that the cluster has, or had."""
        return [
            {
                "id": node["NodeID"],
                "host": node["NodeManagerAddress"],
                "alive": bool(node["Alive"]),
                "total": node["Resources"] if node["Alive"] else {},
            }
            for node in ray.nodes()
        ]

    def free(self) -> dict[str, dict[str, float]]:
        """Free resources of each node, by id."""
        from ray._private.state import available_resources_per_node

        free: dict[str, dict[str, float]] = available_resources_per_node()
        return free

    def reserve(
        self, gang: str, bundles: list[dict[str, float]], strategy: str, apart: str = "", cordoned: Collection[str] = ()
    ) -> str:
        """Request a placement group, unless one of this name exists. Returns its state.

        A group of one bundle may be kept apart from those whose names begin with `apart`: it goes to a node
        with none of them if there is one, and to a cordoned node only if there is no other. While one of them
        is pending, none is created.
        """
        group = _find_group(gang)
        if group is not None:
            return _state(group)
        if not apart:
            return _await_placement(placement_group(bundles, strategy=strategy, name=gang, lifetime="detached"))
        others = [other for other in placement_group_table().values() if other["name"].startswith(apart)]
        if any(other["state"] == _PENDING for other in others):
            return _PENDING
        target = self._choose_node(others, bundles[0], cordoned)
        return _await_placement(
            placement_group(
                bundles, strategy="STRICT_PACK", name=gang, lifetime="detached", _soft_target_node_id=target
            )
        )

    def _choose_node(
        self, others: list[dict[str, Any]], bundle: dict[str, float], cordoned: Collection[str]
    ) -> str | None:
        """The node with the fewest of the other groups that has capacity and, of those, the one with most of it."""
        counts = Counter(
            node for other in others if other["state"] == CREATED for node in other["bundles_to_node_id"].values()
        )
        free = {
            node: resources
            for node, resources in self.free().items()
            if node not in cordoned and all(resources.get(kind, 0.0) >= amount for kind, amount in bundle.items())
        }
        return min(free, key=lambda node: (counts[node], -free[node].get("CPU", 0.0)), default=None)

    def remove(self, gang: str) -> list[str]:
        """Remove a placement group, unless some of its actors live. Returns their names."""
        living = self.actors(gang + "/")
        group = None if living else _find_group(gang)
        if group is not None:
            remove_placement_group(group)
        return living

    def gangs(self, prefix: str) -> list[str]:
        """The names of placement groups with this prefix."""
        table = placement_group_table().values()
        names = {group["name"] for group in table if group["state"] != _REMOVED and group["name"].startswith(prefix)}
        return sorted(name for name in names if _find_group(name) is not None)

    def actors(self, prefix: str) -> list[str]:
        """The names of living actors with this prefix."""
        return [name for name in ray.util.list_named_actors() if name.startswith(prefix)]

    def start(self, name: str, gang: str, bundle: int, gpus: float, lease_s: float) -> list[str] | None:
        """Start the actor of a replica in a bundle of its gang's group, unless one of this name exists.

        Starts none while other actors of the same replica live, and returns their names. Returns None while the
        group is not completely placed.
        """
        group = _find_group(gang)
        if group is None or _state(group) != CREATED:
            return None
        others = [actor for actor in self.actors(name.rpartition("/")[0] + "/") if actor != name]
        if not others:
            self._start(name, group, bundle, gpus, lease_s)
        return others

    def _start(self, name: str, group: Any, bundle: int, gpus: float, lease_s: float) -> None:
        strategy = PlacementGroupSchedulingStrategy(placement_group=group, placement_group_bundle_index=bundle)
        self._agent_actor.options(
            name=name,
            lifetime="detached",
            get_if_exists=True,
            num_cpus=0,
            num_gpus=gpus,
            max_restarts=0,
            max_concurrency=8,
            scheduling_strategy=strategy,
        ).remote(lease_s)


def _find_group(gang: str) -> Any:
    """The group of this name. Returns None if there is none."""
    try:
        group = ray.util.get_placement_group(gang)
    except ValueError:
        return None
    return None if _state(group) == _REMOVED else group


def _await_placement(group: Any) -> str:
    """The state of a new group. Waits briefly for its placement."""
    deadline_s = time.monotonic() + _PLACEMENT_TIMEOUT_S
    while (state := _state(group)) != CREATED and time.monotonic() < deadline_s:
        time.sleep(_POLL_INTERVAL_S)
    return state


def _state(group: Any) -> str:
    return str(placement_group_table(group)["state"])
