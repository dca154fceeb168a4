"""Estimators and pipelines of scikit-learn: `model.joblib` or `model.pkl`."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import sklearn
import threadpoolctl
from numpy.typing import NDArray
from sklearn.exceptions import NotFittedError

from ..errors import InvalidInputsError, LoaderError, ModelRunError
from ..spec import ServingSpec
from . import pickles
from .tabular import TabularModel, predictions, table


def load(spec: ServingSpec) -> TabularModel:
    """The estimator in the model's folder. Raises `LoaderError` if there is none that can predict.

    A pickle of XGBoost, LightGBM or CatBoost is loaded by its loader.
    """
    threadpoolctl.threadpool_limits(spec.threads)
    paths = [path for name in (pickles.JOBLIB, pickles.PICKLE) if (path := spec.model_dir / name).is_file()]
    if not paths:
        raise LoaderError(f"Could not find either {pickles.JOBLIB} or {pickles.PICKLE} in {spec.model_dir}")
    estimator = pickles.read(paths[0])
    if (framework := pickles.framework(estimator)) not in ("sklearn", ""):
        module = importlib.import_module(f".{framework}", __package__)  # takes a second
        model: TabularModel = module.model_of(estimator, threads=spec.threads)
        return model
    if not callable(getattr(estimator, "predict", None)):
        raise LoaderError(f"{paths[0].name} holds a {type(estimator).__name__}, which has no predict method.")
    _disable_workers(estimator)
    return SklearnModel(estimator)


class SklearnModel:
    """An estimator. It gets rows of numbers as 64-bit floats, whatever else is in the batch."""

    merges = True

    def __init__(self, estimator: Any) -> None:
        self.detail = f"scikit-learn {sklearn.__version__}"
        self._estimator = estimator
        self._needs_frame = hasattr(estimator, "feature_names_in_")  # fitted with a data frame
        self.names = tuple(str(name) for name in getattr(estimator, "feature_names_in_", ()))
        self.width = int(getattr(estimator, "n_features_in_", 0))

    def predict(self, instances: list[Any], /, **_kwargs: Any) -> list[Any]:
        features = self._features(instances)
        return predictions(self._call(self._estimator.predict, features), count=len(instances))

    def rows(self, instances: list[Any]) -> NDArray[Any]:
        """The instances as a table, for explanations."""
        return table(instances, names=self.names, width=self.width)

    def scores(self, rows: NDArray[Any]) -> NDArray[np.float64]:
        """A number for each row and label: probabilities if the estimator has them, else its predictions."""
        method = getattr(self._estimator, "predict_proba", None) or self._estimator.predict
        scores = np.asarray(self._call(method, self._with_columns(rows)))
        try:
            return scores.astype(np.float64).reshape(len(rows), -1)
        except (ValueError, TypeError) as exc:
            raise ModelRunError(
                "The estimator predicts words and has no probabilities, which cannot be explained."
            ) from exc

    def _features(self, instances: list[Any]) -> Any:
        if instances and all(isinstance(instance, str) for instance in instances):
            return instances  # for a pipeline that starts with a vectorizer
        return self._with_columns(self.rows(instances))

    def _with_columns(self, rows: NDArray[Any]) -> Any:
        if not self._needs_frame:
            return rows
        import pandas  # only estimators that were fitted with a data frame need it

        return pandas.DataFrame(rows, columns=list(self.names)).infer_objects()

    def _call(self, method: Any, features: Any) -> Any:
        try:
            return method(features)
        except NotFittedError as exc:  # a ValueError, but not the caller's fault
            raise ModelRunError(f"Exception during sklearn prediction: {exc}") from exc
        except ValueError as exc:
            raise InvalidInputsError(f"Exception during sklearn prediction: {exc}") from exc
        except (Exception, SystemExit) as exc:  # a pipeline may run any code
            raise ModelRunError(f"Exception during sklearn prediction: {type(exc).__name__}: {exc}") from exc


def _disable_workers(estimator: Any) -> None:
    """Disable parallel workers: they add sums in any order, and cost more than a row."""
    if callable(getattr(estimator, "get_params", None)):
        counts = {key: 1 for key, value in estimator.get_params().items() if key.split("__")[-1] == "n_jobs" and value}
        if counts:
            estimator.set_params(**counts)
