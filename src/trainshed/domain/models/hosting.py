"""Rules for the hosts of versions, without I/O: their number, restart backoff, sleep, and candidate loaders."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import PurePosixPath
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


#: names of frameworks on command lines, where gcloud has one -> in the API; Google's are the first three
FRAMEWORKS = {
    "tensorflow": "TENSORFLOW",
    "scikit-learn": "SCIKIT_LEARN",
    "xgboost": "XGBOOST",
    "onnx": "ONNX",
    "lightgbm": "LIGHTGBM",
    "catboost": "CATBOOST",
    "pytorch": "PYTORCH",
}
SAVED_MODELS = ("saved_model.pb", "saved_model.pbtxt")
_SAVED_MODEL, _KERAS, _ONNX, _XGBOOST, _LIGHTGBM, _CATBOOST, _PYTORCH, _PICKLE = (
    ("openvino", "tensorflow"),
    ("keras",),
    ("openvino_onnx", "onnxruntime"),
    ("xgboost",),
    ("lightgbm",),
    ("catboost",),
    ("pytorch",),
    ("",),
)
#: the loaders of each kind of model, best first, by the names of its files. A pickle's loader is known to its host.
_FILES = {
    **dict.fromkeys(SAVED_MODELS, _SAVED_MODEL),
    "model.bst": _XGBOOST,
    "model.lgb": _LIGHTGBM,
    "model.cbm": _CATBOOST,
    "model.pt": _PYTORCH,
    "model.joblib": _PICKLE,
    "model.pkl": _PICKLE,
}
_SUFFIXES = {".keras": _KERAS, ".h5": _KERAS, ".hdf5": _KERAS, ".onnx": _ONNX, ".pt2": _PYTORCH}
#: the kinds of a framework that needs one of their files
_KINDS_OF_FRAMEWORK = {"TENSORFLOW": (_SAVED_MODEL, _KERAS), "ONNX": (_ONNX,), "PYTORCH": (_PYTORCH,)}
#: those whose models may be pickled; their loaders say what they miss
_PICKLED = {"SCIKIT_LEARN": ("sklearn",), "XGBOOST": _XGBOOST, "LIGHTGBM": _LIGHTGBM, "CATBOOST": _CATBOOST}
_WITHOUT_GRADIENTS = ("openvino", "openvino_onnx")
_GRADIENTS = "integratedGradientsAttribution"

#: loaders that are references for others -> their frameworks
REFERENCES = {"tensorflow": "TensorFlow", "onnxruntime": "ONNX Runtime"}


def candidate_loaders(names: Collection[str], *, framework: str, prediction_class: str, where: str) -> tuple[str, ...]:
    """The loaders that may serve files with these names, best first. An empty name: the host detects the loader.

    Raises `FailedPreconditionError` if the files cannot be a model of that framework. `where` is their URI.
    """
    if prediction_class:
        return ("custom",)
    if framework in _PICKLED:
        return _PICKLED[framework]
    files = {name: kind for name in sorted(names) if "/" not in name and (kind := _kind(name))}
    kinds = set(files.values())
    if not framework and len(kinds) > 1:
        raise FailedPreconditionError(
            f"Multiple model files are found in {where}: {', '.join(files)}. Say which framework to use."
        )
    for kind in _KINDS_OF_FRAMEWORK[framework] if framework else kinds:
        if kind in kinds:
            return kind
    raise FailedPreconditionError(_no_model_message(names, where))


def _kind(name: str) -> tuple[str, ...]:
    """The loaders for a file. Empty if it is no model."""
    return _FILES.get(name) or _SUFFIXES.get(PurePosixPath(name).suffix, ())


def explainable_loaders(names: tuple[str, ...], config: Mapping[str, Any]) -> tuple[str, ...]:
    """The loaders that support a version's explanationConfig. OpenVINO has no gradients."""
    return tuple(name for name in names if name not in _WITHOUT_GRADIENTS or _GRADIENTS not in config)


def _no_model_message(names: Collection[str], where: str) -> str:
    subfolders = sorted(name.rpartition("/")[0] for name in names if name.rpartition("/")[2] in SAVED_MODELS)
    if subfolders:
        return f"There is no SavedModel in {where} itself, but there is one in {where.rstrip('/')}/{subfolders[-1]}."
    return (
        f"There is no model in {where}: it has none of saved_model.pb, a .keras, .h5, .onnx or .pt2 file, "
        f"model.joblib, model.pkl, model.bst, model.lgb, model.cbm and model.pt. A custom prediction routine needs a "
        f"prediction class."
    )
