"""Whether a gang finds room on the machines of a cluster, and what to say if it does not."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from trainshed.domain.capacity.machine_types import MachineType, MachineTypes

CPU, MEMORY, GPU = "CPU", "memory", "GPU"  #: the names that Ray has for them
GB = 1 << 30
_ENOUGH = 1e-6  #: that shares of cores may be off by

Resources = Mapping[str, float]  #: of each kind of resource


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeCapacity:
    """One machine of a cluster."""

    host: str
    total: Resources
    free: Resources | None = None  #: None: nobody knows


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceShares:
    """How much of what a machine type stands for is asked of a cluster."""

    cpu: float = 1.0
    memory: float = 1.0

    def bundle(self, machine: str, machines: MachineTypes, *, gpus: int = 0) -> dict[str, float]:
        """What one replica on such a machine asks for, with GPUs beside it. What it needs none of is left out."""
        found = machines.of(machine)
        return self.amounts(replace(found, gpu=found.gpu + gpus))

    def amounts(self, found: MachineType) -> dict[str, float]:
        """As `bundle`, for a machine itself."""
        asked = {CPU: found.cpu * self.cpu, MEMORY: int(found.memory_gb * self.memory * GB), GPU: found.gpu}
        return {kind: amount for kind, amount in {**asked, **found.resources}.items() if amount}


def fits(bundles: Iterable[Resources], nodes: Iterable[Resources]) -> bool:
    """Whether each bundle finds a machine that has all of it. The largest are placed first, each where it just fits.

    This may be wrong about gangs that fit only if they are placed in one clever way.
    """
    left = [dict(node) for node in nodes]
    for bundle in sorted(bundles, key=_weight, reverse=True):
        node = min((each for each in left if _has(each, bundle)), key=_weight, default=None)
        if node is None:
            return False
        for kind, amount in bundle.items():
            node[kind] -= amount
    return True


def fits_in_total(bundles: Iterable[Resources], nodes: Iterable[Resources]) -> bool:
    """Whether all machines together have as much. Not all that would may fit, but it is known at once."""
    left: defaultdict[str, float] = defaultdict(float)
    for sign, amounts in ((1, nodes), (-1, bundles)):
        for kind, amount in (item for each in amounts for item in each.items()):
            left[kind] += sign * amount
    return all(amount > -_ENOUGH for amount in left.values())


def pending_reason(bundles: Sequence[Resources], nodes: Sequence[NodeCapacity]) -> str:
    """How a gang that waits stands, to end a sentence."""
    kinds = list(dict.fromkeys(kind for bundle in bundles for kind in bundle))
    needs = f"it needs {_counted(bundles, kinds)}"
    if not nodes:
        return f"{needs}; the cluster has no machine"
    if not fits(bundles, [node.total for node in nodes]):
        return f"{needs}; the cluster has {_machines([node.total for node in nodes], kinds)}"
    free = [node.free for node in nodes if node.free is not None]
    if len(free) < len(nodes):
        return f"{needs}; the cluster has {_machines([node.total for node in nodes], kinds)}, some of it in use"
    if fits(bundles, free):
        return f"{needs}, which the cluster has; it is being reserved"
    return f"{needs}; free on its machines are {_each(free, kinds)}"


def largest_fitting_type(
    count: int, nodes: Sequence[NodeCapacity], machines: MachineTypes, shares: ResourceShares
) -> str:
    """The largest machine type that a gang of so many replicas would fit with; empty if there is none."""
    bundles = {name: shares.bundle(name, machines) for name in machines}
    plain = [name for name in machines if set(bundles[name]) <= {CPU, MEMORY}]
    for name in sorted(plain, key=lambda name: _weight(bundles[name]), reverse=True):
        if fits([bundles[name]] * count, [node.total for node in nodes]):
            return name
    return ""


def _has(node: Resources, bundle: Resources) -> bool:
    return all(node.get(kind, 0) + _ENOUGH >= amount for kind, amount in bundle.items())


def _weight(amounts: Resources) -> tuple[float, float, float]:
    """Rare things first, then cores, then memory."""
    rare = sum(amount for kind, amount in amounts.items() if kind not in (CPU, MEMORY))
    return rare, amounts.get(CPU, 0), amounts.get(MEMORY, 0)


def _counted(bundles: Iterable[Resources], kinds: Sequence[str]) -> str:
    """As 3 times 8 CPUs and 7.2 GB, 1 times 4 CPUs and 15 GB."""
    counts = Counter(_words(bundle, [kind for kind in kinds if bundle.get(kind)]) for bundle in bundles)
    return ", ".join(f"{count} × {words}" for words, count in counts.items())


def _machines(nodes: Iterable[Resources], kinds: Sequence[str]) -> str:
    """As 2 machines with 4 CPUs and 7.2 GB, 1 machine with 2 CPUs and 3 GB."""
    counts = Counter(_words(node, kinds) for node in nodes)
    return ", ".join(
        f"{count} {'machine' if count == 1 else 'machines'} with {words}" for words, count in counts.items()
    )


def _each(nodes: Iterable[Resources], kinds: Sequence[str]) -> str:
    """As 1 CPU and 7.2 GB on 2, 0 CPUs and 0 GB on 1."""
    counts = Counter(_words(node, kinds) for node in nodes)
    return ", ".join(f"{words} on {count}" for words, count in counts.items())


def _words(amounts: Resources, kinds: Sequence[str]) -> str:
    parts = [_word(kind, amounts.get(kind, 0)) for kind in kinds] or ["nothing"]
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def _word(kind: str, amount: float) -> str:
    if kind == MEMORY:
        return f"{round(amount / GB, 1):g} GB"
    number = f"{round(amount, 2):g}"
    return f"{number} {kind}{'' if kind not in (CPU, GPU) or number == '1' else 's'}"
