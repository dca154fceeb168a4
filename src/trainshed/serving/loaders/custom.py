"""Custom prediction routines: a user's class with `from_path` and `predict`, from the version's packages."""

from __future__ import annotations

import importlib
import inspect
import re
import sys
import traceback
from pathlib import Path
from typing import Any

from ..errors import BadOutputsError, InvalidInputsError, LoaderError, ServingError, UserCodeError
from ..spec import ServingSpec
from .tabular import plain

#: the named arguments of `predict`
PREDICT_ARGUMENTS = ("self", "instances")

_CONTENT_TYPE = re.compile(r"[ -~]{1,1000}")  #: a content type
_USER_ERRORS = (Exception, SystemExit)  #: a class that calls exit() must not end the model's thread
_OUR_FILES = (__file__, importlib.__file__)


def load(spec: ServingSpec) -> CustomModel:
    """The instance that the prediction class's `from_path` returns for the model's folder."""
    name = spec.prediction_class
    if not name:
        raise LoaderError(
            "The model's files are of no known framework and no prediction class is given. "
            "Save the model as saved_model.pb, model.onnx, model.joblib, model.pkl, model.bst, model.lgb, model.cbm, "
            "model.pt2 or model.pt, or name a class with --prediction-class."
        )
    if spec.site and spec.site not in sys.path:
        sys.path.insert(0, spec.site)
        importlib.invalidate_caches()
    prediction_class = _find_class(name)
    _check_class(prediction_class, name)
    try:
        instance = prediction_class.from_path(str(spec.model_dir))
    except _USER_ERRORS as exc:
        raise UserCodeError(f"{name}.from_path failed: {_describe(exc)}") from exc
    if not callable(getattr(instance, "predict", None)):
        kind = type(instance).__name__
        raise UserCodeError(f"{name}.from_path returned a {kind}, which has no predict method.")
    return (
        RawCustomModel(instance, name)
        if callable(getattr(instance, "raw_predict", None))
        else CustomModel(instance, name)
    )


class CustomModel:
    """A user's object. Its requests are not batched, since it may depend on the whole list."""

    merges = False

    def __init__(self, instance: Any, name: str) -> None:
        self.detail = f"{name} on Python {sys.version.split()[0]}"
        self._instance = instance
        self._name = name

    def predict(self, instances: list[Any], /, **kwargs: Any) -> list[Any]:
        if reserved := kwargs.keys() & set(PREDICT_ARGUMENTS):
            raise InvalidInputsError(
                f"A request can't have a field {min(reserved)!r}: {self._name}.predict has that already."
            )
        try:
            outputs = self._instance.predict(instances, **kwargs)
        except ServingError:
            raise
        except _USER_ERRORS as exc:
            raise UserCodeError(f"{self._name}.predict failed: {_describe(exc)}") from exc
        if not isinstance(predictions := plain(outputs), list):
            raise BadOutputsError(f"{self._name}.predict must return a list, not a {type(outputs).__name__}.")
        return predictions


class RawCustomModel(CustomModel):
    """A routine that also serves bodies of any content type."""

    def raw_predict(self, body: bytes, content_type: str) -> tuple[bytes, str]:
        try:
            outputs = self._instance.raw_predict(body, content_type)
        except _USER_ERRORS as exc:
            raise UserCodeError(f"{self._name}.raw_predict failed: {_describe(exc)}") from exc
        match outputs:
            case (bytes() as response, str() as content_type):
                if not _CONTENT_TYPE.fullmatch(content_type):
                    raise UserCodeError(
                        f"{self._name}.raw_predict returned {content_type[:100]!r}, which can't be a content type."
                    )
                return response, content_type
        raise UserCodeError(f"{self._name}.raw_predict must return bytes and their content type.")


def _find_class(name: str) -> Any:
    module_name, _, class_name = name.rpartition(".")
    if not module_name:
        raise UserCodeError(
            f"{name} cannot be found: a prediction class is named with its module, as in package.module.{name}."
        )
    try:
        module = importlib.import_module(module_name)
    except _USER_ERRORS as exc:
        raise UserCodeError(f"{name} cannot be found. Importing {module_name} failed: {_describe(exc)}") from exc
    if not hasattr(module, class_name):
        raise UserCodeError(f"{name} cannot be found: the module {module_name} has no {class_name}.")
    return getattr(module, class_name)


def _check_class(prediction_class: Any, name: str) -> None:
    """Raises `UserCodeError` if a method is missing or has another signature."""
    for method in ("from_path", "predict"):
        if not callable(getattr(prediction_class, method, None)):
            raise UserCodeError(f"The provided class {name} is missing the required {method} method.")
    arguments = tuple(inspect.getfullargspec(prediction_class.predict).args)
    if len(arguments) != len(PREDICT_ARGUMENTS):
        raise UserCodeError(
            f"The provided class {name} has a predict method with an invalid signature: "
            f"expected ({', '.join(PREDICT_ARGUMENTS)}, **kwargs), found {inspect.signature(prediction_class.predict)}."
        )


def _describe(exc: BaseException) -> str:
    """The error and its line in the user's code."""
    frames = [
        f for f in traceback.extract_tb(exc.__traceback__) if f.filename not in _OUR_FILES and f.filename[0] != "<"
    ]
    where = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    return f"{type(exc).__name__}: {exc}{where}"
