"""Pickled models: of joblib, which is preferred, or of pickle.

Unpickling runs code of the file. Only the host of its version may do it.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import joblib

from ..errors import LoaderError

JOBLIB, PICKLE = "model.joblib", "model.pkl"


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
    """`xgboost` or `sklearn`, by the module of the object's class; empty if it is neither."""
    module = type(value).__module__
    return next((name for name in ("xgboost", "sklearn") if name in module), "")  # there is an `xgboost.sklearn`
