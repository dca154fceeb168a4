"""What serves a folder of MLflow, without I/O: its `MLmodel` file gives the loaders, or says that MLflow itself is
needed, with the packages of its `requirements.txt`."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainshed.errors import FailedPreconditionError

MLMODEL = "MLmodel"
REQUIREMENTS = "requirements.txt"
PYFUNC = "python_function"
MLFLOW_LOADER = "mlflow"
_MLFLOW, _SKINNY = "mlflow", "mlflow-skinny"
#: flavours whose framework must come with the runtime -> its package there, and a runtime that has it
_FRAMEWORKS = {"pytorch": ("torch", "torch"), "tensorflow": ("tensorflow", "2.21")}
_REQUIREMENT = re.compile(r"([A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)\s*(\[[^\]]*\])?\s*([^#]*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class MlflowModel:
    """How a folder of MLflow is served."""

    loaders: tuple[str, ...]  #: best first
    subfolder: str = ""  #: that has the files for the loaders; empty: the folder itself
    flavors: tuple[str, ...] = ()
    version: str = ""  #: of the MLflow that wrote it

    @property
    def needs_mlflow(self) -> bool:
        return self.loaders == (MLFLOW_LOADER,)


def mlflow_model(document: object, names: Collection[str], *, where: str) -> MlflowModel:
    """How a folder with these file names is served, by its parsed `MLmodel`.

    Files of a framework that a loader reads are served without MLflow. Everything else, and whatever brings code, needs
    it. Raises `FailedPreconditionError` if the folder has no flavour that can be served.
    """
    flavors = document.get("flavors") if isinstance(document, Mapping) else None
    if not isinstance(document, Mapping) or not isinstance(flavors, Mapping) or not flavors:
        raise FailedPreconditionError(f'{where}/{MLMODEL} is no file of MLflow: it must have "flavors".')
    written = document.get("mlflow_version")
    version = written if isinstance(written, str) else ""  # a list of lists may be endless as a text
    given = tuple(sorted(map(str, flavors)))
    for flavor, find in _NATIVE.items():
        config = flavors.get(flavor)
        if isinstance(config, Mapping) and not config.get("code") and (found := find(config, names, flavors)):
            loaders, subfolder = found
            return MlflowModel(loaders=loaders, subfolder=subfolder, flavors=given, version=version)
    if PYFUNC not in flavors:
        raise FailedPreconditionError(
            f"The model of MLflow in {where} can't be served: it has the flavours {', '.join(given)}, and not {PYFUNC}."
        )
    return MlflowModel(loaders=(MLFLOW_LOADER,), flavors=given, version=version)


_Found = tuple[tuple[str, ...], str] | None  #: loaders, and the subfolder for them


def _sklearn(config: Mapping[str, Any], names: Collection[str], flavors: Mapping[str, Any]) -> _Found:
    pyfunc = flavors.get(PYFUNC)
    calls_predict = not isinstance(pyfunc, Mapping) or pyfunc.get("predict_fn", "predict") == "predict"
    is_pickle = config.get("serialization_format", "pickle") in ("pickle", "cloudpickle")
    if calls_predict and is_pickle and config.get("pickled_model") == "model.pkl" in names:
        return ("sklearn",), ""
    return None


def _tensorflow(config: Mapping[str, Any], names: Collection[str], flavors: Mapping[str, Any]) -> _Found:
    data = config.get("data")
    if config.get("model_type") != "keras" or not isinstance(data, str):
        return None  # other SavedModels are called without their signatures
    if f"{data}/model.keras" in names:
        return ("keras",), data
    return (("openvino", "tensorflow"), f"{data}/model") if f"{data}/model/saved_model.pb" in names else None


def _pytorch(config: Mapping[str, Any], names: Collection[str], flavors: Mapping[str, Any]) -> _Found:
    data = config.get("model_data")
    return (("pytorch",), data) if isinstance(data, str) and f"{data}/model.pt2" in names else None


def _onnx(config: Mapping[str, Any], names: Collection[str], flavors: Mapping[str, Any]) -> _Found:
    return (("openvino_onnx", "onnxruntime"), "") if config.get("data") == "model.onnx" in names else None


def _lightgbm(config: Mapping[str, Any], names: Collection[str], flavors: Mapping[str, Any]) -> _Found:
    return (("lightgbm",), "") if config.get("data") == "model.lgb" in names else None


_NATIVE = {
    "tensorflow": _tensorflow,
    "pytorch": _pytorch,
    "onnx": _onnx,
    "lightgbm": _lightgbm,
    "sklearn": _sklearn,
}


def check_runtime(model: MlflowModel, runtime: str, packages: Collection[str], *, where: str) -> None:
    """Raise `FailedPreconditionError` if a runtime with these packages lacks the framework of a model."""
    for flavor, (package, remedy) in _FRAMEWORKS.items():
        if flavor in model.flavors and package not in packages:
            raise FailedPreconditionError(
                f"The model of MLflow in {where} is of {flavor}, which runtime {runtime} does not have. "
                f"Create the version with --runtime-version {remedy}."
            )


def own_requirements(lines: Sequence[str], model: MlflowModel, packages: Collection[str]) -> tuple[str, ...]:
    """The requirements to install for a model that needs MLflow, from the lines of its `requirements.txt`.

    What the runtime has stays the runtime's: its builds fit each other, and MLflow logs each version that differs. Of
    MLflow itself only the part that loads models is installed, in the version that wrote the folder. Raises
    `FailedPreconditionError` for a line that is no requirement.
    """
    found = []
    for line in map(str.strip, lines):
        if not line or line.startswith("#"):
            continue
        match = _REQUIREMENT.match(line)
        if match is None:
            raise FailedPreconditionError(
                f"The line {line[:100]!r} of the model's {REQUIREMENTS} is no requirement such as name==1.0. "
                f"Write requirements alone, and deploy the folder again."
            )
        name = canonical(match[1])
        if name not in (_MLFLOW, _SKINNY) and name not in packages:
            found.append(f"{match[1]}{match[2] or ''}{match[3].strip()}")
    pin = f"=={model.version}" if re.fullmatch(r"\d+(\.\d+)*((a|b|rc)\d+)?", model.version) else ""
    return (f"{_SKINNY}{pin}", *found)


def canonical(name: str) -> str:
    """The one spelling of a package's name."""
    return re.sub(r"[-_.]+", "-", name).lower()
