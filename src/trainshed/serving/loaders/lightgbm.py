"""Models of LightGBM: `model.lgb` or `model.txt`, or a Booster or estimator in `model.joblib` or `model.pkl`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidInputsError, LoaderError, ModelRunError
from ..spec import ServingSpec
from . import pickles
from .tabular import predictions, table

BOOSTERS = ("model.lgb", "model.txt")
_END = "\nend of trees\n"
_DEFAULT_NAME = re.compile(r"Column_\d+")


def load(spec: ServingSpec) -> LightGbmModel:
    """The model in a folder. joblib's file has precedence over pickle's, and that over LightGBM's own."""
    path = pickles.model_path(spec.model_dir, BOOSTERS)
    return model_of(_booster(path) if path.name in BOOSTERS else pickles.read(path), threads=spec.threads)


def model_of(value: Any, *, threads: int) -> LightGbmModel:
    """The model of a LightGBM object. Raises `LoaderError` for any other."""
    if isinstance(value, lightgbm.LGBMModel):
        if not value.__sklearn_is_fitted__():
            raise LoaderError(f"The {type(value).__name__} is not fitted.")
        return LightGbmModel(value.booster_, estimator=value, threads=threads)
    if not isinstance(value, lightgbm.Booster):
        raise LoaderError(f"The file holds a {type(value).__name__}, which is no model of LightGBM.")
    return LightGbmModel(value, threads=threads)


class LightGbmModel:
    """A booster, or an estimator, which predicts classes."""

    merges = True

    def __init__(self, booster: lightgbm.Booster, *, estimator: Any = None, threads: int) -> None:
        self.detail = f"LightGBM {lightgbm.__version__}"
        self._booster = booster
        self._predict = booster.predict if estimator is None else estimator.predict
        self._threads = threads
        names = tuple(booster.feature_name())
        self.names: tuple[str, ...] = () if all(map(_DEFAULT_NAME.fullmatch, names)) else names
        self.width = int(booster.num_feature())

    def predict(self, instances: list[Any], /, **_kwargs: Any) -> list[Any]:
        return predictions(self._call(self._predict, self.rows(instances)), count=len(instances))

    def rows(self, instances: list[Any]) -> NDArray[Any]:
        """The instances as a table of numbers, for explanations and for the booster. A null is a missing value."""
        rows = table(instances, names=self.names, width=self.width)
        if rows.dtype == object:
            raise InvalidInputsError("An instance holds text. LightGBM takes numbers: send the codes of categories.")
        return rows

    def scores(self, rows: NDArray[Any]) -> NDArray[np.float64]:
        """The booster's output for each row: a probability, a value, or one for each class."""
        return np.asarray(self._call(self._booster.predict, rows), np.float64).reshape(len(rows), -1)

    def _call(self, method: Any, rows: NDArray[Any]) -> Any:
        if not len(rows):
            return []
        try:
            return method(rows, num_threads=self._threads, validate_features=False)
        except Exception as exc:
            raise ModelRunError(f"Exception during lightgbm prediction: {type(exc).__name__}: {exc}") from exc


def _booster(path: Path) -> lightgbm.Booster:
    try:
        text = path.read_text()
        if _END not in text:  # LightGBM ends the process at trees that are cut off
            raise LoaderError(f"Could not load the model: {path}. It is cut short, or no file of LightGBM.")
        return lightgbm.Booster(model_str=text)
    except (OSError, UnicodeDecodeError, lightgbm.basic.LightGBMError) as exc:
        raise LoaderError(f"Could not load the model: {path}. {exc}") from exc
