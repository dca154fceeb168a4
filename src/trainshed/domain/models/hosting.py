"""The rules by which versions have hosts: how many, when the next one is tried, when they sleep. Without I/O."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from trainshed.errors import FailedPreconditionError

STEADY_S = 60.0  #: a host that lived this long had nothing to do with those before it
MANY_DEATHS = 5  #: within STEADY_S: the version is unhealthy
RETRY_S = 30.0  #: between two tries at an unhealthy version, and the longest pause for others
_MIN_MEMORY = 1 << 30


class ServingState(StrEnum):
    """How a version stands towards requests."""

    READY = "READY"  #: at least one host answers
    STARTING = "STARTING"  #: no host yet, or none any more and the next one is on its way: 503, come back
    SLEEPING = "SLEEPING"  #: nobody called for long; the next request wakes it and is held until it answers
    WAKING = "WAKING"  #: a host is on its way because of a request; further ones are held too
    UNHEALTHY = "UNHEALTHY"  #: its hosts keep dying, or it could not be created: 503 with the reason


@dataclass(frozen=True, slots=True, kw_only=True)
class HostEndpoint:
    """Where a host on another machine listens, and what whoever connects to it has to say first."""

    host: str
    port: int
    secret: str = field(repr=False)

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CrashHistory:
    """When hosts of a version died lately, by the monotonic clock. A value."""

    crashes_s: tuple[float, ...] = ()
    unhealthy: bool = False  #: until a host has lived, or none has died, for STEADY_S

    def after(self, *, now_s: float, lived_s: float) -> CrashHistory:
        """One more died."""
        lately = (*(then for then in self.crashes_s if now_s - then < STEADY_S), now_s)
        steady = lived_s >= STEADY_S
        return CrashHistory(
            crashes_s=(now_s,) if steady else lately,
            unhealthy=not steady and (self.unhealthy or len(lately) >= MANY_DEATHS),
        )

    def after_ready(self, *, now_s: float) -> CrashHistory:
        """A host is ready: what died long ago says nothing of it."""
        return CrashHistory() if self.crashes_s and now_s - self.crashes_s[-1] >= STEADY_S else self

    @property
    def next_s(self) -> float:
        """When the next one may be started: at once after the first death, then ever later."""
        if not self.crashes_s:
            return 0.0
        if self.unhealthy:
            return self.crashes_s[-1] + RETRY_S
        earlier = len(self.crashes_s) - 1
        return self.crashes_s[-1] + (min(2.0 ** (earlier - 1), RETRY_S) if earlier else 0.0)


def desired_hosts(nodes: int, *, awake: bool) -> int:
    """How many hosts a version shall have. `nodes` 0: one while it is awake."""
    return nodes or int(awake)


def should_sleep(nodes: int, *, last_used_us: int, awake_since_us: int, now_us: int, sleep_after_s: float) -> bool:
    """Whether a version that is awake shall go to sleep."""
    return nodes == 0 and now_us - max(last_used_us, awake_since_us) >= sleep_after_s * 1e6


def serving_state(*, ready: int, wanted: int, roused: bool, unhealthy: bool) -> ServingState:
    """`ready` hosts answer of those `wanted`; `roused`: a request asked for it."""
    if ready:
        return ServingState.READY
    if not wanted:
        return ServingState.SLEEPING
    if unhealthy:
        return ServingState.UNHEALTHY
    return ServingState.WAKING if roused else ServingState.STARTING


def threads_per_host(cpus: int, hosts: int) -> int:
    return max(1, cpus // max(hosts, 1))


def memory_per_host(total_bytes: int, hosts: int) -> int:
    """Bytes of data that one host may have: all of them together leave a quarter of the machine to others."""
    return max(_MIN_MEMORY, total_bytes * 3 // 4 // max(hosts, 1))


SAVED_MODELS = ("saved_model.pb", "saved_model.pbtxt")
_PICKLES = ("model.joblib", "model.pkl")
_BOOSTED = "model.bst"
_KERAS = (".keras", ".h5", ".hdf5")
_TENSORFLOW = "TENSORFLOW"
_GRADIENTS = "integratedGradientsAttribution"


def candidate_loaders(names: Collection[str], *, framework: str, prediction_class: str, where: str) -> tuple[str, ...]:
    """What may serve a model with files of these names, best first. An empty one: the host finds out.

    `FailedPreconditionError` if the files can't be a model of that framework. `where` is the address they came from.
    """
    if prediction_class:
        return ("custom",)
    top = {name for name in names if "/" not in name}
    saved = any(name in top for name in SAVED_MODELS)
    keras = {name for name in top if name.endswith(_KERAS)}
    kinds = [saved, bool(keras), _BOOSTED in top, any(name in top for name in _PICKLES)]
    if not framework and sum(kinds) > 1:
        found = ", ".join(sorted(top & {*SAVED_MODELS, *_PICKLES, _BOOSTED} | keras))
        raise FailedPreconditionError(
            f"Multiple model files are found in {where}: {found}. Say which framework to use."
        )
    if framework == _TENSORFLOW or (not framework and (saved or keras)):
        if saved:
            return ("openvino", "tensorflow")
        if keras:
            return ("keras",)
        raise FailedPreconditionError(_nothing_to_load(names, where))
    named = {"SCIKIT_LEARN": "sklearn", "XGBOOST": "xgboost"}.get(framework, "xgboost" if _BOOSTED in top else "")
    if not named and not any(kinds):
        raise FailedPreconditionError(_nothing_to_load(names, where))
    return (named,)


def explainable_loaders(names: tuple[str, ...], config: Mapping[str, Any]) -> tuple[str, ...]:
    """Those of the loaders that can explain as a version's explanationConfig asks: OpenVINO has no gradients."""
    return tuple(name for name in names if name != "openvino" or _GRADIENTS not in config)


def _nothing_to_load(names: Collection[str], where: str) -> str:
    deeper = sorted(name.rpartition("/")[0] for name in names if name.rpartition("/")[2] in SAVED_MODELS)
    if deeper:
        return f"There is no SavedModel in {where} itself, but there is one in {where.rstrip('/')}/{deeper[-1]}."
    return (
        f"There is no model in {where}: it has none of saved_model.pb, a .keras or .h5 file, model.joblib, model.pkl "
        f"and model.bst. A custom prediction routine needs a prediction class."
    )
