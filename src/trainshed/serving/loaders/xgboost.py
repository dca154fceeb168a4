"""Models of XGBoost: `model.bst`, or a Booster or estimator in `model.joblib` or `model.pkl`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import xgboost
from numpy.typing import NDArray

from ..errors import InvalidInputsError, LoaderError, ModelRunError
from ..spec import ServingSpec
from . import pickles
from .tabular import predictions, table

BOOSTER = "model.bst"
_MAX_FLOAT = float(np.finfo(np.float32).max)


def load(spec: ServingSpec) -> XgboostModel:
    """The model in a folder. joblib's file has precedence over pickle's, and that over XGBoost's own."""
    return model_of(_read(pickles.model_path(spec.model_dir, (BOOSTER,))), threads=spec.threads)


def model_of(value: Any, *, threads: int) -> XgboostModel:
    """The model of an XGBoost object. Raises `LoaderError` for any other."""
    if isinstance(value, xgboost.XGBModel):
        value.set_params(n_jobs=threads)
        return XgboostModel(value.get_booster(), estimator=value, threads=threads)
    if not isinstance(value, xgboost.Booster):
        raise LoaderError(f"The file holds a {type(value).__name__}, which is no model of XGBoost.")
    return XgboostModel(value, threads=threads)


class XgboostModel:
    """A booster, or an estimator, which predicts classes."""

    merges = True

    def __init__(self, booster: xgboost.Booster, *, estimator: Any = None, threads: int) -> None:
        self.detail = f"XGBoost {xgboost.__version__}"
        self._booster = booster
        self._estimator = estimator
        self._threads = threads
        booster.set_param({"nthread": threads})
        self._types = booster.feature_types
        self.names: tuple[str, ...] = tuple(booster.feature_names or ())
        self.width = int(booster.num_features())

    def predict(self, instances: list[Any], /, **_kwargs: Any) -> list[Any]:
        rows = self.rows(instances)
        outputs = self._run(rows) if self._estimator is None else self._call(self._estimator.predict, rows)
        return predictions(outputs, count=len(instances))

    def rows(self, instances: list[Any]) -> NDArray[Any]:
        """The instances as a table, for explanations and for the booster. A null is a missing value."""
        rows = table(instances, names=self.names, width=self.width)
        if rows.dtype == np.float64 and (too_large := np.flatnonzero((np.abs(rows) > _MAX_FLOAT).any(1))).size:
            raise InvalidInputsError(
                f"Instance {too_large[0]} holds a number that is too large: XGBoost has 32-bit floats."
            )
        return rows

    def scores(self, rows: NDArray[Any]) -> NDArray[np.float64]:
        """The booster's output for each row: a probability, a value, or one for each class."""
        return np.asarray(self._run(rows), np.float64).reshape(len(rows), -1)

    def _run(self, rows: NDArray[Any]) -> Any:
        matrix = self._call(self._matrix, rows)
        return self._call(self._booster.predict, matrix)

    def _matrix(self, rows: NDArray[Any]) -> Any:
        return xgboost.DMatrix(
            rows,
            feature_names=list(self.names) or None,
            feature_types=self._types,
            enable_categorical=True,
            nthread=self._threads,
        )

    def _call(self, method: Any, features: Any) -> Any:
        try:
            return method(features)
        except Exception as exc:
            raise ModelRunError(f"Exception during xgboost prediction: {_error_message(exc)}") from exc


def _read(path: Path) -> Any:
    if path.name == BOOSTER:
        return _booster(path)
    try:
        return pickles.read(path)
    except pickles.NotPickledError:  # a booster may have a pickle's name
        return _booster(path)


def _booster(path: Path) -> xgboost.Booster:
    booster = xgboost.Booster()
    try:
        booster.load_model(bytearray(path.read_bytes()))  # a path would select the format by its suffix
    except xgboost.core.XGBoostError as exc:
        raise LoaderError(f"Could not load the model: {path}. {_error_message(exc)}") from exc
    return booster


def _error_message(exc: BaseException) -> str:
    """XGBoost's message without the time, the location in its sources and the C++ stack trace."""
    message = str(exc).split("\nStack trace:", 1)[0].strip()
    return re.sub(r"^\[[\d:]+\] \S+?:\d+: ", "", message) or type(exc).__name__
