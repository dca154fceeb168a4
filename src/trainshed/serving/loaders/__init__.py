"""Loaders: from the files of a version to a model that can be called. Each is a module, imported when it is needed."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import LoaderError, ServingError

if TYPE_CHECKING:
    from ..spec import ServingSpec
    from .base import Loader, Model

LOADERS = ("openvino", "tensorflow", "keras", "sklearn", "xgboost", "custom")

#: files that tell what a model was made with; the loaders that they are for. Pickles are looked into by `sklearn`.
_FILES = {
    "saved_model.pb": "tensorflow",
    "saved_model.pbtxt": "tensorflow",
    "model.keras": "keras",
    "model.bst": "xgboost",
    "model.joblib": "sklearn",
    "model.pkl": "sklearn",
}


def detect(model_dir: Path) -> str:
    """The loader for the files in a folder; `custom` if none of them is known. `LoaderError` if it is not clear."""
    found = {name: loader for name, loader in _FILES.items() if (model_dir / name).is_file()}
    if not found:
        kept = sorted(path.name for path in model_dir.iterdir() if path.name.endswith((".keras", ".h5", ".hdf5")))
        found = dict.fromkeys(kept, "keras")
    if len(set(found.values())) > 1 or (len(found) > 1 and "keras" in found.values()):
        raise LoaderError(f"Multiple model files are found in the model_path: {', '.join(sorted(found))}.")
    return next(iter(found.values()), "custom")


def load(spec: ServingSpec) -> Model:
    """The model of a host. `LoaderError`, or another `ServingError`, with the framework's own words if it can't be."""
    name = spec.loader or ("custom" if spec.prediction_class else detect(spec.model_dir))
    if name not in LOADERS:
        raise LoaderError(f"There is no loader {name!r}. The loaders are: {', '.join(LOADERS)}.")
    try:
        loader: Loader = importlib.import_module(f".{name}", __name__).load
        return loader(spec)
    except ServingError:
        raise
    except (Exception, SystemExit) as exc:  # loading runs code of models and frameworks, which may raise anything
        raise LoaderError(f"{type(exc).__name__}: {exc}") from exc
