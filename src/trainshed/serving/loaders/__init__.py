"""Loaders: from the files of a version to a model. Each loader is a module, imported on first use."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import LoaderError, ServingError

if TYPE_CHECKING:
    from ..spec import ServingSpec
    from .base import Loader, Model

LOADERS = (
    "openvino",
    "tensorflow",
    "keras",
    "openvino_onnx",
    "onnxruntime",
    "sklearn",
    "xgboost",
    "lightgbm",
    "catboost",
    "pytorch",
    "mlflow",
    "custom",
)

#: the loader for each file name. `sklearn` detects the framework of a pickle.
_FILES = {
    "saved_model.pb": "tensorflow",
    "saved_model.pbtxt": "tensorflow",
    "model.keras": "keras",
    "model.bst": "xgboost",
    "model.lgb": "lightgbm",
    "model.cbm": "catboost",
    "model.pt": "pytorch",
    "model.joblib": "sklearn",
    "model.pkl": "sklearn",
}

#: for files of any name, if no file above is there
_SUFFIXES = {".keras": "keras", ".h5": "keras", ".hdf5": "keras", ".onnx": "onnxruntime", ".pt2": "pytorch"}


def detect(model_dir: Path) -> str:
    """The loader for the files in a folder; `custom` if none matches. Raises `LoaderError` if it is ambiguous."""
    loaders = {name: loader for name, loader in _FILES.items() if (model_dir / name).is_file()}
    if not loaders:
        names = sorted(path.name for path in model_dir.iterdir() if path.suffix in _SUFFIXES)
        loaders = {name: _SUFFIXES[Path(name).suffix] for name in names}
    if len(set(loaders.values())) > 1 or (len(loaders) > 1 and "keras" in loaders.values()):
        raise LoaderError(f"Multiple model files are found in the model_path: {', '.join(sorted(loaders))}.")
    return next(iter(loaders.values()), "custom")


def load(spec: ServingSpec) -> Model:
    """Load the model of a spec. Raises `LoaderError` or another `ServingError` with the framework's message."""
    name = spec.loader or ("custom" if spec.prediction_class else detect(spec.model_dir))
    if name not in LOADERS:
        raise LoaderError(f"There is no loader {name!r}. The loaders are: {', '.join(LOADERS)}.")
    try:
        loader: Loader = importlib.import_module(f".{name}", __name__).load
        return loader(spec)
    except ServingError:
        raise
    except ModuleNotFoundError as exc:
        remedy = "Create the version with a runtime that has it, or with a package of its own"
        raise LoaderError(f"The model needs {exc.name}, which its runtime does not have. {remedy}.") from exc
    except (Exception, SystemExit) as exc:  # models and frameworks may raise anything
        raise LoaderError(f"{type(exc).__name__}: {exc}") from exc
