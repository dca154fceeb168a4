"""Custom prediction routines: a class of the user's, with `from_path` and `predict`, from the version's packages."""

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

#: The named arguments of `predict`; more of them could never be given.
PREDICT = ("self", "instances")

_HEADER = re.compile(r"[ -~]{1,1000}")  #: what a content type is made of
_ANY = (Exception, SystemExit)  # a class that calls exit() must not end the thread that all others wait for
_NOT_THEIRS = (__file__, importlib.__file__)


def load(spec: ServingSpec) -> CustomModel:
    """An instance of the version's prediction class, made by its `from_path` with the folder of the model."""
    name = spec.prediction_class
    if not name:
        raise LoaderError(
            "The model's files are of no known framework and no prediction class is given. "
            "Save the model as saved_model.pb, model.joblib, model.pkl or model.bst, "
            "or name a class with --prediction-class."
        )
    if spec.site and spec.site not in sys.path:
        sys.path.insert(0, spec.site)
        importlib.invalidate_caches()
    found = _find(name)
    _check(found, name)
    try:
        instance = found.from_path(str(spec.model_dir))
    except _ANY as exc:
        raise UserCodeError(f"{name}.from_path failed: {_words(exc)}") from exc
    if not callable(getattr(instance, "predict", None)):
        kind = type(instance).__name__
        raise UserCodeError(f"{name}.from_path returned a {kind}, which has no predict method.")
    return (
        RawCustomModel(instance, name)
        if callable(getattr(instance, "raw_predict", None))
        else CustomModel(instance, name)
    )


class CustomModel:
    """The user's object. Its requests are never put together: what it does with a list is its own affair."""

    merges = False

    def __init__(self, instance: Any, name: str) -> None:
        self.detail = f"{name} on Python {sys.version.split()[0]}"
        self._instance = instance
        self._name = name

    def predict(self, instances: list[Any], /, **kwargs: Any) -> list[Any]:
        if taken := kwargs.keys() & set(PREDICT):
            raise InvalidInputsError(
                f"A request can't have a field {min(taken)!r}: {self._name}.predict has that already."
            )
        try:
            answer = self._instance.predict(instances, **kwargs)
        except ServingError:
            raise
        except _ANY as exc:
            raise UserCodeError(f"{self._name}.predict failed: {_words(exc)}") from exc
        if not isinstance(given := plain(answer), list):
            raise BadOutputsError(f"{self._name}.predict must return a list, not a {type(answer).__name__}.")
        return given


class RawCustomModel(CustomModel):
    """A routine that also answers bodies of any content type."""

    def raw_predict(self, body: bytes, content_type: str) -> tuple[bytes, str]:
        try:
            answer = self._instance.raw_predict(body, content_type)
        except _ANY as exc:
            raise UserCodeError(f"{self._name}.raw_predict failed: {_words(exc)}") from exc
        match answer:
            case (bytes() as given, str() as kind):
                if not _HEADER.fullmatch(kind):
                    raise UserCodeError(
                        f"{self._name}.raw_predict returned {kind[:100]!r}, which can't be a content type."
                    )
                return given, kind
        raise UserCodeError(f"{self._name}.raw_predict must return bytes and their content type.")


def _find(name: str) -> Any:
    module_name, _, class_name = name.rpartition(".")
    if not module_name:
        raise UserCodeError(
            f"{name} cannot be found: a prediction class is named with its module, as in package.module.{name}."
        )
    try:
        module = importlib.import_module(module_name)
    except _ANY as exc:
        raise UserCodeError(f"{name} cannot be found. Importing {module_name} failed: {_words(exc)}") from exc
    if not hasattr(module, class_name):
        raise UserCodeError(f"{name} cannot be found: the module {module_name} has no {class_name}.")
    return getattr(module, class_name)


def _check(found: Any, name: str) -> None:
    """The class has what a routine needs. Raises UserCodeFailed with the method that is missing or wrong."""
    for method in ("from_path", "predict"):
        if not callable(getattr(found, method, None)):
            raise UserCodeError(f"The provided class {name} is missing the required {method} method.")
    named = tuple(inspect.getfullargspec(found.predict).args)
    if len(named) != len(PREDICT):
        raise UserCodeError(
            f"The provided class {name} has a predict method with an invalid signature: "
            f"expected ({', '.join(PREDICT)}, **kwargs), found {inspect.signature(found.predict)}."
        )


def _words(exc: BaseException) -> str:
    """The error, and where in the user's code it came from."""
    frames = [
        f for f in traceback.extract_tb(exc.__traceback__) if f.filename not in _NOT_THEIRS and f.filename[0] != "<"
    ]
    where = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    return f"{type(exc).__name__}: {exc}{where}"
