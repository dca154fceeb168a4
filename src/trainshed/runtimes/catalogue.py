"""The runtimes as data. `locks/NAME.txt` pins every package of a runtime."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

_LOCKS = Path(__file__).with_name("locks")
_LAYOUT_VERSION = 1  #: incremented when the layout of environments changes, so that old ones are not reused


@dataclass(frozen=True, kw_only=True)
class Runtime:
    """A named environment for trainers. Equal digests mean the same packages on the same Python."""

    name: str
    python: str  #: major.minor
    summary: str
    unpacked_mb: int  #: measured disk usage of its packages; the scale of the build's progress
    pins: tuple[str, ...]  #: `package==version`, with all dependencies; installed exactly
    #: `package==version` whose code comes from another package; trainers that require it find it installed
    stands_for: tuple[str, ...] = ()
    resolved: bool = True  #: whether the pins are complete; if not, uv resolves further dependencies
    #: slow modules that a warm process of this runtime preloads for all jobs
    warm: tuple[str, ...] = ()
    uses_gpus: bool = False
    can_use_gs: bool = (
        True  #: whether its framework honours a custom CA certificate, so that `gs://` can mean this server's buckets
    )

    @cached_property
    def digest(self) -> str:
        parts = (str(_LAYOUT_VERSION), self.name, self.python, *self.pins, "stands for", *self.stands_for)
        content = "\n".join(parts if self.resolved else (*parts, "and what they need"))
        return hashlib.sha256(content.encode()).hexdigest()[:12]

    @property
    def key(self) -> str:
        """The name of its folder."""
        return f"{self.name}-{self.digest}"


def read_pins(text: str) -> tuple[str, ...]:
    """The requirements in a lock file, without comments and blank lines."""
    lines = (line.partition("#")[0].strip() for line in text.splitlines())
    return tuple(line for line in lines if line)


def _lock(name: str) -> tuple[str, ...]:
    return read_pins((_LOCKS / f"{name}.txt").read_text())


_WARM_TORCH = ("torch", "torch.distributed", "torch._dynamo")  # the last is imported by the first optimizer

CATALOGUE: Mapping[str, Runtime] = {
    runtime.name: runtime
    for runtime in (
        Runtime(
            name="2.21",
            python="3.11",
            summary=(
                "TensorFlow 2.21 for CPU, tf-keras, TensorBoard, pandas, scikit-learn, XGBoost, LightGBM, CatBoost, "
                "ONNX Runtime, OpenVINO"
            ),
            unpacked_mb=2265,
            pins=_lock("2.21"),
            stands_for=("tensorflow==2.21.0", "xgboost==3.2.0"),
            warm=("tensorflow", "tensorflow.python.training.monitored_session"),
        ),
        Runtime(
            name="2.15",
            python="3.11",
            summary="TensorFlow 2.15 for CPU with Estimators, TensorBoard, pandas, scikit-learn, XGBoost, OpenVINO",
            unpacked_mb=1550,
            pins=_lock("2.15"),
            stands_for=("tensorflow==2.15.1", "xgboost==3.2.0"),
            warm=("tensorflow", "tensorflow.python.training.monitored_session"),
        ),
        Runtime(
            name="1.15",
            python="3.7",
            summary="TensorFlow 1.15 with Estimators and tf.contrib, TensorBoard, pandas",
            unpacked_mb=588,
            pins=_lock("1.15"),
            can_use_gs=False,
            warm=("tensorflow", "tensorflow.python.training.monitored_session"),
        ),
        Runtime(
            name="torch",
            python="3.11",
            summary="PyTorch 2.13 for CPU, TensorBoard, pandas, scikit-learn, ONNX, ONNX Runtime, OpenVINO",
            unpacked_mb=1640,
            pins=_lock("torch"),
            warm=_WARM_TORCH,
        ),
        Runtime(
            name="torch-cuda",
            python="3.11",
            summary="PyTorch 2.13 for NVIDIA GPUs (CUDA 13; not tried), and what torch has",
            unpacked_mb=6500,
            pins=_lock("torch-cuda"),
            uses_gpus=True,
            warm=_WARM_TORCH,
        ),
        Runtime(
            name="jax",
            python="3.11",
            summary="JAX 0.10 for CPU, TensorBoard, pandas, scikit-learn",
            unpacked_mb=889,
            pins=_lock("jax"),
            warm=("jax", "jax.numpy"),
        ),
        Runtime(
            name="python", python="3.11", summary="Python alone: no framework", unpacked_mb=6, pins=_lock("python")
        ),
    )
}

DEFAULT_RUNTIME = "2.21"  #: the newest, for jobs that name no runtime

#: The environment of `trainshed notebook`, built and kept like a runtime. Not for jobs.
NOTEBOOK = Runtime(
    name="notebook",
    python="3.11",
    summary="JupyterLab, anywidget, pandas, Matplotlib, Google's clients",
    unpacked_mb=457,
    pins=_lock("notebook"),
)


def _kernel(runtime: Runtime) -> Runtime:
    """The packages of a runtime, and what a kernel of notebooks needs. A user's `pip` changes this one alone."""
    return Runtime(
        name=f"kernel-{runtime.name}",
        python=runtime.python,
        summary=f"Kernel of notebooks: runtime {runtime.name}, scikit-learn, seaborn, Matplotlib, pip",
        unpacked_mb=runtime.unpacked_mb + 150,
        pins=(*runtime.pins, *_lock(f"kernel-{runtime.name}")),
        stands_for=runtime.stands_for,
    )


#: The kernels of `trainshed notebook` by the name of their runtime, built and kept like runtimes. Not for jobs.
KERNELS: Mapping[str, Runtime] = {name: _kernel(CATALOGUE[name]) for name in ("2.21", "2.15", "1.15", "torch", "jax")}
