"""Rules for the hosts of versions, without I/O: their number, restart backoff, sleep, and candidate loaders."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from trainshed.errors import FailedPreconditionError

STABLE_AFTER_S = 60.0  #: after this uptime, earlier crashes no longer count
CRASH_LIMIT = 5  #: crashes within STABLE_AFTER_S that make a version unhealthy
MAX_BACKOFF_S = 30.0  #: retry interval of an unhealthy version, and the maximum for others
_MIN_MEMORY_BYTES = 1 << 30


class ServingState(StrEnum):
    """What requests to a version meet."""

    READY = "READY"  #: at least one host is ready
    STARTING = "STARTING"  #: no host is ready and one is starting: 503, retry
    SLEEPING = "SLEEPING"  #: scaled to zero; the next request activates it and is held until a host is ready
    WAKING = "WAKING"  #: a host is starting because of a request; further requests are held too
    UNHEALTHY = "UNHEALTHY"  #: its hosts keep crashing, or its creation failed: 503 with the reason


@dataclass(frozen=True, slots=True, kw_only=True)
class HostEndpoint:
    """Where a remote host listens, and the secret that authenticates its clients."""

    host: str
    port: int
    secret: str = field(repr=False)

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CrashHistory:
    """Recent crashes of a version's hosts, by the monotonic clock. Immutable."""

    crashes_s: tuple[float, ...] = ()
    unhealthy: bool = False  #: until a host has run, or none has crashed, for STABLE_AFTER_S

    def after(self, *, now_s: float, lived_s: float) -> CrashHistory:
        """The history after one more crash."""
        recent = (*(crash_s for crash_s in self.crashes_s if now_s - crash_s < STABLE_AFTER_S), now_s)
        stable = lived_s >= STABLE_AFTER_S
        return CrashHistory(
            crashes_s=(now_s,) if stable else recent,
            unhealthy=not stable and (self.unhealthy or len(recent) >= CRASH_LIMIT),
        )

    def after_ready(self, *, now_s: float) -> CrashHistory:
        """The history after a host became ready. Old crashes are dropped."""
        return CrashHistory() if self.crashes_s and now_s - self.crashes_s[-1] >= STABLE_AFTER_S else self

    @property
    def next_s(self) -> float:
        """When the next host may start: immediately after the first crash, then with exponential backoff."""
        if not self.crashes_s:
            return 0.0
        if self.unhealthy:
            return self.crashes_s[-1] + MAX_BACKOFF_S
        retries = len(self.crashes_s) - 1
        return self.crashes_s[-1] + (min(2.0 ** (retries - 1), MAX_BACKOFF_S) if retries else 0.0)


def desired_hosts(nodes: int, *, awake: bool) -> int:
    """The desired number of hosts. `nodes` 0 means one host while the version is awake."""
    return nodes or int(awake)


def should_sleep(nodes: int, *, last_used_us: int, awake_since_us: int, now_us: int, sleep_after_s: float) -> bool:
    """Whether a version that is awake is due to sleep."""
    return nodes == 0 and now_us - max(last_used_us, awake_since_us) >= sleep_after_s * 1e6


def serving_state(*, ready: int, desired: int, activated: bool, unhealthy: bool) -> ServingState:
    """The serving state of a version. `activated` means that a request waits for it."""
    if ready:
        return ServingState.READY
    if not desired:
        return ServingState.SLEEPING
    if unhealthy:
        return ServingState.UNHEALTHY
    return ServingState.WAKING if activated else ServingState.STARTING


def threads_per_host(cpus: int, hosts: int) -> int:
    return max(1, cpus // max(hosts, 1))


def memory_per_host(total_bytes: int, hosts: int) -> int:
    """Data bytes per host. All hosts together leave a quarter of the machine to others."""
    return max(_MIN_MEMORY_BYTES, total_bytes * 3 // 4 // max(hosts, 1))


SAVED_MODELS = ("saved_model.pb", "saved_model.pbtxt")
_PICKLE_FILES = ("model.joblib", "model.pkl")
_XGBOOST_FILE = "model.bst"
_KERAS_SUFFIXES = (".keras", ".h5", ".hdf5")
_TENSORFLOW = "TENSORFLOW"
_GRADIENTS = "integratedGradientsAttribution"


def candidate_loaders(names: Collection[str], *, framework: str, prediction_class: str, where: str) -> tuple[str, ...]:
    """The loaders that may serve files with these names, best first. An empty name: the host detects the loader.

    Raises `FailedPreconditionError` if the files cannot be a model of that framework. `where` is their URI.
    """
    if prediction_class:
        return ("custom",)
    top = {name for name in names if "/" not in name}
    has_saved_model = any(name in top for name in SAVED_MODELS)
    keras_files = {name for name in top if name.endswith(_KERAS_SUFFIXES)}
    kinds = [has_saved_model, bool(keras_files), _XGBOOST_FILE in top, any(name in top for name in _PICKLE_FILES)]
    if not framework and sum(kinds) > 1:
        candidates = ", ".join(sorted(top & {*SAVED_MODELS, *_PICKLE_FILES, _XGBOOST_FILE} | keras_files))
        raise FailedPreconditionError(
            f"Multiple model files are found in {where}: {candidates}. Say which framework to use."
        )
    if framework == _TENSORFLOW or (not framework and (has_saved_model or keras_files)):
        if has_saved_model:
            return ("openvino", "tensorflow")
        if keras_files:
            return ("keras",)
        raise FailedPreconditionError(_no_model_message(names, where))
    loader = {"SCIKIT_LEARN": "sklearn", "XGBOOST": "xgboost"}.get(framework, "xgboost" if _XGBOOST_FILE in top else "")
    if not loader and not any(kinds):
        raise FailedPreconditionError(_no_model_message(names, where))
    return (loader,)


def explainable_loaders(names: tuple[str, ...], config: Mapping[str, Any]) -> tuple[str, ...]:
    """The loaders that support a version's explanationConfig. OpenVINO has no gradients."""
    return tuple(name for name in names if name != "openvino" or _GRADIENTS not in config)


def _no_model_message(names: Collection[str], where: str) -> str:
    subfolders = sorted(name.rpartition("/")[0] for name in names if name.rpartition("/")[2] in SAVED_MODELS)
    if subfolders:
        return f"There is no SavedModel in {where} itself, but there is one in {where.rstrip('/')}/{subfolders[-1]}."
    return (
        f"There is no model in {where}: it has none of saved_model.pb, a .keras or .h5 file, model.joblib, model.pkl "
        f"and model.bst. A custom prediction routine needs a prediction class."
    )
