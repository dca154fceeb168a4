"""Models of CatBoost: `model.cbm`, or a model in `model.joblib` or `model.pkl`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import catboost
import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidInputsError, LoaderError
from ..spec import ServingSpec
from . import pickles
from .tabular import predictions, table

FILE = "model.cbm"


def load(spec: ServingSpec) -> CatBoostModel:
    """The model in a folder. joblib's file has precedence over pickle's, and that over CatBoost's own."""
    path = pickles.model_path(spec.model_dir, (FILE,))
    return model_of(_read(path) if path.name == FILE else pickles.read(path), threads=spec.threads)


def model_of(value: Any, *, threads: int) -> CatBoostModel:
    """The model of a CatBoost object. Raises `LoaderError` for any other."""
    if not isinstance(value, catboost.CatBoost):
        raise LoaderError(f"The file holds a {type(value).__name__}, which is no model of CatBoost.")
    if not value.is_fitted():
        raise LoaderError(f"The {type(value).__name__} is not fitted.")
    return CatBoostModel(value, threads=threads)


class CatBoostModel:
    """A classifier, which predicts classes, or a model that predicts values."""

    merges = True

    def __init__(self, model: Any, *, threads: int) -> None:
        self.detail = f"CatBoost {catboost.__version__}"
        self._model = model
        self._threads = threads
        self._categories = tuple(model.get_cat_feature_indices())
        names = tuple(map(str, model.feature_names_))
        self.names: tuple[str, ...] = () if names == tuple(map(str, range(len(names)))) else names
        self.width = len(names)

    def predict(self, instances: list[Any], /, **_kwargs: Any) -> list[Any]:
        outputs = np.asarray(self._call(self._model.predict, self.rows(instances)))
        if outputs.ndim == 2 and outputs.shape[1] == 1:  # classes of more than two are a column
            outputs = outputs[:, 0]
        return predictions(outputs, count=len(instances))

    def rows(self, instances: list[Any]) -> NDArray[Any]:
        """The instances as a table, for explanations and for the model. Categories are text, as in training."""
        rows = table(instances, names=self.names, width=self.width)
        if not self._categories:
            return rows
        values = rows.astype(object)
        for at in self._categories:
            values[:, at] = [_category(value) for value in values[:, at]]
        return values

    def scores(self, rows: NDArray[Any]) -> NDArray[np.float64]:
        """A number for each row and label: probabilities of a classifier, else its predictions."""
        method = getattr(self._model, "predict_proba", None) or self._model.predict
        return np.asarray(self._call(method, rows), np.float64).reshape(len(rows), -1)

    def _call(self, method: Any, rows: NDArray[Any]) -> Any:
        if not len(rows):
            return []
        try:
            return method(rows, thread_count=self._threads)
        except catboost.CatBoostError as exc:  # a word where it wants a number: tables have the right width
            raise InvalidInputsError(f"Exception during catboost prediction: {exc}") from exc


def _category(value: Any) -> str:
    """JSON has one kind of numbers; CatBoost has categories that are integers or text."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _read(path: Path) -> Any:
    model = catboost.CatBoost()
    try:
        model.load_model(str(path))
        kind = catboost.CatBoostClassifier if len(model.classes_) else catboost.CatBoostRegressor
        return kind().load_model(str(path))
    except catboost.CatBoostError as exc:
        reason = re.sub(r"^\S+\.(cpp|h):\d+: ", "", str(exc))  # without the location in its sources
        raise LoaderError(f"Could not load the model: {path}. It is damaged, or no file of CatBoost: {reason}") from exc
