"""Boosters of XGBoost: `model.bst`, or a Booster or estimator in `model.joblib` or `model.pkl`."""

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
_LARGEST = float(np.finfo(np.float32).max)


def load(spec: ServingSpec) -> XgboostModel:
    """The booster in the model's folder: joblib's file before pickle's, and pickle's before XGBoost's own."""
    names = (pickles.JOBLIB, pickles.PICKLE, BOOSTER)
    paths = [path for name in names if (path := spec.model_dir / name).is_file()]
    if not paths:
        raise LoaderError(f"Could not find {pickles.JOBLIB}, {pickles.PICKLE}, or {BOOSTER} in {spec.model_dir}")
    return model_of(_read(paths[0]), threads=spec.threads)


def model_of(found: Any, *, threads: int) -> XgboostModel:
    """A model around an object of XGBoost. Raises LoaderError for any other."""
    if isinstance(found, xgboost.XGBModel):
        found.set_params(n_jobs=threads)
        return XgboostModel(found.get_booster(), estimator=found, threads=threads)
    if not isinstance(found, xgboost.Booster):
        raise LoaderError(f"The file holds a {type(found).__name__}, which is no model of XGBoost.")
    return XgboostModel(found, threads=threads)


class XgboostModel:
    """A booster, or an estimator around one, whose classes are answered then."""

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
        answer = self._run(rows) if self._estimator is None else self._call(self._estimator.predict, rows)
        return predictions(answer, count=len(instances))

    def rows(self, instances: list[Any]) -> NDArray[Any]:
        """The instances as a table, for explanations and for the booster. A null is a missing value."""
        rows = table(instances, names=self.names, width=self.width)
        if rows.dtype == np.float64 and (large := np.flatnonzero((np.abs(rows) > _LARGEST).any(1))).size:
            raise InvalidInputsError(
                f"Instance {large[0]} holds a number that is too large: XGBoost has 32-bit floats."
            )
        return rows

    def scores(self, rows: NDArray[Any]) -> NDArray[np.float64]:
        """What the booster says of each row: a probability, a value, or one for each class."""
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

    def _call(self, method: Any, given: Any) -> Any:
        try:
            return method(given)
        except Exception as exc:
            raise ModelRunError(f"Exception during xgboost prediction: {_words(exc)}") from exc


def _read(path: Path) -> Any:
    if path.name == BOOSTER:
        return _booster(path)
    try:
        return pickles.read(path)
    except pickles.NotPickledError:  # some save a booster under the other's name
        return _booster(path)


def _booster(path: Path) -> xgboost.Booster:
    booster = xgboost.Booster()
    try:
        booster.load_model(bytearray(path.read_bytes()))  # a name would be taken for the format
    except xgboost.core.XGBoostError as exc:
        raise LoaderError(f"Could not load the model: {path}. {_words(exc)}") from exc
    return booster


def _words(exc: BaseException) -> str:
    """What XGBoost says, without the time, the place in its sources and the stack of its C++."""
    said = str(exc).split("\nStack trace:", 1)[0].strip()
    return re.sub(r"^\[[\d:]+\] \S+?:\d+: ", "", said) or type(exc).__name__
