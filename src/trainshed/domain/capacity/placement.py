"""Whether a gang fits the nodes of a cluster, and the pending reason if it does not."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from trainshed.domain.capacity.machine_types import MachineType, MachineTypes

CPU, MEMORY, GPU = "CPU", "memory", "GPU"  #: Ray's resource names
GB = 1 << 30
_TOLERANCE = 1e-6  #: rounding error of fractional cores

Resources = Mapping[str, float]  #: amounts by resource


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeCapacity:
    """The resources of one node of a cluster."""

    host: str
    total: Resources
    free: Resources | None = None  #: None: unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceShares:
    """The part of a machine type's resources that is requested from the cluster."""

    cpu: float = 1.0
    memory: float = 1.0

    def bundle(self, name: str, machines: MachineTypes, *, gpus: int = 0) -> dict[str, float]:
        """The bundle of one replica: its machine type plus extra GPUs. Resources with amount 0 are left out."""
        machine_type = machines.of(name)
        return self.amounts(replace(machine_type, gpu=machine_type.gpu + gpus))

    def amounts(self, machine_type: MachineType) -> dict[str, float]:
        """Like `bundle`, for a resolved machine type."""
        requested = {
            CPU: machine_type.cpu * self.cpu,
            MEMORY: int(machine_type.memory_gb * self.memory * GB),
            GPU: machine_type.gpu,
        }
        return {kind: amount for kind, amount in {**requested, **machine_type.resources}.items() if amount}


def fits(bundles: Iterable[Resources], nodes: Iterable[Resources]) -> bool:
    """Whether each bundle fits on one node, by best-fit decreasing.

    A heuristic: it can return False for a gang that fits only in one particular placement.
    """
    left = [dict(node) for node in nodes]
    for bundle in sorted(bundles, key=_size_key, reverse=True):
        node = min((each for each in left if _node_fits(each, bundle)), key=_size_key, default=None)
        if node is None:
            return False
        for kind, amount in bundle.items():
            node[kind] -= amount
    return True


def fits_in_total(bundles: Iterable[Resources], nodes: Iterable[Resources]) -> bool:
    """Whether the bundles fit the total of all nodes. A necessary condition only, but cheap."""
    left: defaultdict[str, float] = defaultdict(float)
    for sign, amounts in ((1, nodes), (-1, bundles)):
        for kind, amount in (item for each in amounts for item in each.items()):
            left[kind] += sign * amount
    return all(amount > -_TOLERANCE for amount in left.values())


def pending_reason(bundles: Sequence[Resources], nodes: Sequence[NodeCapacity]) -> str:
    """Why a gang is pending, as the end of a sentence."""
    kinds = list(dict.fromkeys(kind for bundle in bundles for kind in bundle))
    needs = f"it needs {_describe_bundles(bundles, kinds)}"
    if not nodes:
        return f"{needs}; the cluster has no machine"
    if not fits(bundles, [node.total for node in nodes]):
        return f"{needs}; the cluster has {_describe_nodes([node.total for node in nodes], kinds)}"
    free = [node.free for node in nodes if node.free is not None]
    if len(free) < len(nodes):
        return f"{needs}; the cluster has {_describe_nodes([node.total for node in nodes], kinds)}, some of it in use"
    if fits(bundles, free):
        return f"{needs}, which the cluster has; it is being reserved"
    return f"{needs}; free on its machines are {_describe_free(free, kinds)}"


def largest_fitting_type(
    count: int, nodes: Sequence[NodeCapacity], machines: MachineTypes, shares: ResourceShares
) -> str:
    """The largest machine type with which a gang of `count` replicas fits. Returns an empty string if none does."""
    bundles = {name: shares.bundle(name, machines) for name in machines}
    plain = [name for name in machines if set(bundles[name]) <= {CPU, MEMORY}]
    for name in sorted(plain, key=lambda name: _size_key(bundles[name]), reverse=True):
        if fits([bundles[name]] * count, [node.total for node in nodes]):
            return name
    return ""


def _node_fits(node: Resources, bundle: Resources) -> bool:
    return all(node.get(kind, 0) + _TOLERANCE >= amount for kind, amount in bundle.items())


def _size_key(amounts: Resources) -> tuple[float, float, float]:
    """Sort key: scarce resources first, then cores, then memory."""
    rare = sum(amount for kind, amount in amounts.items() if kind not in (CPU, MEMORY))
    return rare, amounts.get(CPU, 0), amounts.get(MEMORY, 0)


def _describe_bundles(bundles: Iterable[Resources], kinds: Sequence[str]) -> str:
    """For example: 3 times 8 CPUs and 7.2 GB, 1 times 4 CPUs and 15 GB."""
    counts = Counter(_describe(bundle, [kind for kind in kinds if bundle.get(kind)]) for bundle in bundles)
    return ", ".join(f"{count} × {words}" for words, count in counts.items())


def _describe_nodes(nodes: Iterable[Resources], kinds: Sequence[str]) -> str:
    """For example: 2 machines with 4 CPUs and 7.2 GB, 1 machine with 2 CPUs and 3 GB."""
    counts = Counter(_describe(node, kinds) for node in nodes)
    return ", ".join(
        f"{count} {'machine' if count == 1 else 'machines'} with {words}" for words, count in counts.items()
    )


def _describe_free(nodes: Iterable[Resources], kinds: Sequence[str]) -> str:
    """For example: 1 CPU and 7.2 GB on 2, 0 CPUs and 0 GB on 1."""
    counts = Counter(_describe(node, kinds) for node in nodes)
    return ", ".join(f"{words} on {count}" for words, count in counts.items())


def _describe(amounts: Resources, kinds: Sequence[str]) -> str:
    parts = [_describe_amount(kind, amounts.get(kind, 0)) for kind in kinds] or ["nothing"]
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def _describe_amount(kind: str, amount: float) -> str:
    if kind == MEMORY:
        return f"{round(amount / GB, 1):g} GB"
    number = f"{round(amount, 2):g}"
    return f"{number} {kind}{'' if kind not in (CPU, GPU) or number == '1' else 's'}"
