"""Pickled models: of joblib, which is preferred, or of pickle.

Unpickling runs code of the file. Only the host of its version may do it.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import joblib

from ..errors import LoaderError

JOBLIB, PICKLE = "model.joblib", "model.pkl"
_FRAMEWORKS = ("xgboost", "lightgbm", "catboost", "sklearn")  #: there is an `xgboost.sklearn`


def read(path: Path) -> Any:
    """The object in the file. Raises `LoaderError` with the message of any error."""
    try:
        if path.name == JOBLIB:
            return joblib.load(path)
        with path.open("rb") as file:
            return pickle.load(file)  # noqa: S301 - the owner's model, in the owner's host
    except KeyError as exc:  # joblib's error for a file that is no pickle
        raise NotPickledError(path, exc) from exc
    except Exception as exc:  # the model's own code may raise anything
        raise LoaderError(f"Could not load the model: {path}. {type(exc).__name__}: {exc}.") from exc


class NotPickledError(LoaderError):
    """The file is not a pickle."""

    def __init__(self, path: Path, cause: Exception) -> None:
        super().__init__(f"Could not load the model: {path}. {type(cause).__name__}: {cause}.")


def framework(value: Any) -> str:
    """The loader of an object, by the module of its class; empty if none is known."""
    module = type(value).__module__
    return next((name for name in _FRAMEWORKS if name in module), "")


def model_path(model_dir: Path, own: Sequence[str]) -> Path:
    """The first of joblib's file, pickle's and a framework's `own` that a folder has. Raises `LoaderError` if none is
    there."""
    names = (JOBLIB, PICKLE, *own)
    for name in names:
        if (path := model_dir / name).is_file():
            return path
    raise LoaderError(f"Could not find {', '.join(names[:-1])}, or {names[-1]} in {model_dir}")
