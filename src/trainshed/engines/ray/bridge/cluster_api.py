"""Questions about groups, nodes and actors, asked where Ray answers them at once.

A link on a machine of the cluster asks by itself. Any other one is a client of Ray, for which each of these would be a
task of its own: it has a desk on the head, an actor that asks in its place. Pickled by value, as `actor` is.
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

CREATED = "CREATED"  #: the state of a group that is placed as a whole
_PENDING = "PENDING"
_REMOVED = "REMOVED"
_PLACING_S = 0.3  #: Ray places a group that it has room for sooner than this
_LOOK_S = 0.02


class ClusterApi:
    """Answers at once. All names are those of one namespace."""

    def __init__(self) -> None:
        self._keeper = ray.remote(AgentActor)  # once: each has a place of its own in the cluster's memory

    def nodes(self) -> list[dict[str, Any]]:
        """The machines that the cluster has, or had."""
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
        """What each of them has left, by id."""
        from ray._private.state import available_resources_per_node

        answer: dict[str, dict[str, float]] = available_resources_per_node()
        return answer

    def reserve(
        self, gang: str, bundles: list[dict[str, float]], strategy: str, apart: str = "", shunned: Collection[str] = ()
    ) -> str:
        """Ask for a group, unless there is one of this name; returns its state.

        A group of one bundle may be kept apart from those whose names begin with `apart`: where there is a machine with
        none of them, it goes there, but not to one that is shunned if there is another. While one of them is being
        placed, none is made.
        """
        group = _group(gang)
        if group is not None:
            return _state(group)
        if not apart:
            return _placed(placement_group(bundles, strategy=strategy, name=gang, lifetime="detached"))
        others = [each for each in placement_group_table().values() if each["name"].startswith(apart)]
        if any(each["state"] == _PENDING for each in others):
            return _PENDING
        target = self._apart_from(others, bundles[0], shunned)
        return _placed(
            placement_group(
                bundles, strategy="STRICT_PACK", name=gang, lifetime="detached", _soft_target_node_id=target
            )
        )

    def _apart_from(
        self, others: list[dict[str, Any]], bundle: dict[str, float], shunned: Collection[str]
    ) -> str | None:
        """The machine with fewest of the other groups that has room, and of those the one with most of it."""
        crowd = Counter(
            node for each in others if each["state"] == CREATED for node in each["bundles_to_node_id"].values()
        )
        free = {
            node: left
            for node, left in self.free().items()
            if node not in shunned and all(left.get(kind, 0.0) >= amount for kind, amount in bundle.items())
        }
        return min(free, key=lambda node: (crowd[node], -free[node].get("CPU", 0.0)), default=None)

    def remove(self, gang: str) -> list[str]:
        """Give up a group, if there is one, and if none of its actors lives: else their names are the answer."""
        living = self.actors(gang + "/")
        group = None if living else _group(gang)
        if group is not None:
            remove_placement_group(group)
        return living

    def gangs(self, prefix: str) -> list[str]:
        """The names of groups that begin so."""
        table = placement_group_table().values()
        names = {each["name"] for each in table if each["state"] != _REMOVED and each["name"].startswith(prefix)}
        return sorted(name for name in names if _group(name) is not None)

    def actors(self, prefix: str) -> list[str]:
        """The names of living actors that begin so."""
        return [name for name in ray.util.list_named_actors() if name.startswith(prefix)]

    def start(self, name: str, gang: str, bundle: int, gpus: float, lease_s: float) -> list[str] | None:
        """Have the actor of a replica in a bundle of its gang's group, unless there is one of this name.

        None is made while others of the same replica live, whose names are the answer, nor while the group is not
        whole: then the answer is None.
        """
        group = _group(gang)
        if group is None or _state(group) != CREATED:
            return None
        others = [each for each in self.actors(name.rpartition("/")[0] + "/") if each != name]
        if not others:
            self._start(name, group, bundle, gpus, lease_s)
        return others

    def _start(self, name: str, group: Any, bundle: int, gpus: float, lease_s: float) -> None:
        strategy = PlacementGroupSchedulingStrategy(placement_group=group, placement_group_bundle_index=bundle)
        self._keeper.options(
            name=name,
            lifetime="detached",
            get_if_exists=True,
            num_cpus=0,
            num_gpus=gpus,
            max_restarts=0,
            max_concurrency=8,
            scheduling_strategy=strategy,
        ).remote(lease_s)


def _group(gang: str) -> Any:
    """The group of this name; None if there is none."""
    try:
        group = ray.util.get_placement_group(gang)
    except ValueError:
        return None
    return None if _state(group) == _REMOVED else group


def _placed(group: Any) -> str:
    """The state of a new group: that it is placed, if it takes no longer than it should."""
    until_s = time.monotonic() + _PLACING_S
    while (state := _state(group)) != CREATED and time.monotonic() < until_s:
        time.sleep(_LOOK_S)
    return state


def _state(group: Any) -> str:
    return str(placement_group_table(group)["state"])
