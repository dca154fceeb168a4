"""Keras models as Keras saves them: a `.keras` or `.h5` file, or the folder that `save_model(zipped=False)` writes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from ..errors import LoaderError
from ..signatures import DEFAULT
from ..spec import ServingSpec
from .tensorflow import TensorFlowModel, limit_threads, words

SUFFIXES = (".keras", ".h5", ".hdf5")


def saved_in(folder: Path) -> Path | None:
    """Where the folder holds a Keras model, if it does. Raises LoaderError if it holds several."""
    if (folder / "config.json").is_file() and (folder / "model.weights.h5").is_file():
        return folder
    found = sorted(path for path in folder.iterdir() if path.suffix in SUFFIXES and path.is_file())
    if len(found) > 1:
        names = ", ".join(path.name for path in found)
        raise LoaderError(f"Multiple model files are found in the model_path: {names}")
    return found[0] if found else None


def load(spec: ServingSpec) -> TensorFlowModel:
    """The model as one signature, `serving_default`. Its names are the model's keys, or its layers' names."""
    limit_threads(spec.threads)
    path = saved_in(spec.model_dir)
    if path is None:
        raise LoaderError(f"Could not find a .keras file, an .h5 file or a saved Keras folder in {spec.model_dir}")
    model = _read(path)
    if not getattr(model, "inputs", None):
        raise LoaderError(f"The Keras model of {path.name} does not say its inputs. Call it once before it is saved.")
    served = TensorFlowModel({DEFAULT: _function(model)}, keep=model)
    served.detail = f"Keras {keras.__version__} on {served.detail}"
    return served


def _read(path: Path) -> Any:
    try:
        return keras.models.load_model(str(path), compile=False)
    except Exception as exc:  # it holds layers of all kinds, and each raises what it likes
        raise LoaderError(f"Keras does not load {path.name}: {words(exc)}") from exc


def _function(model: Any) -> Any:
    """A concrete function that takes the model's inputs by name and gives its outputs by name."""
    inputs, outputs = _inputs(model), _output_names(model)

    def serve(**feeds: Any) -> dict[str, Any]:
        given: Any = dict(feeds) if isinstance(inputs, dict) else [feeds[name] for name in specs]
        answers = model(given[0] if isinstance(given, list) and len(given) == 1 else given, training=False)
        if isinstance(answers, dict):
            return answers
        return dict(zip(outputs, answers if isinstance(answers, list | tuple) else [answers], strict=True))

    tensors = inputs.items() if isinstance(inputs, dict) else zip(_names(t.name for t in inputs), inputs, strict=True)
    specs = {name: tf.TensorSpec(tensor.shape, tensor.dtype, name=name) for name, tensor in tensors}
    return tf.function(serve, autograph=False).get_concrete_function(**specs)


def _inputs(model: Any) -> dict[str, Any] | list[Any]:
    """By the keys of a model that takes a dict, else in order. (A Sequential that was never called has no `input`.)"""
    try:
        given = model.input
    except AttributeError:
        given = None
    return given if isinstance(given, dict) else list(model.inputs)


def _output_names(model: Any) -> list[str]:
    names = getattr(model, "output_names", None)
    return list(_names(names if names else [model.layers[-1].name]))


def _names(names: Iterable[str]) -> Iterator[str]:
    """The same names, with a number after one that came before."""
    seen: dict[str, int] = {}
    for name in names:
        plain = name.split(":", 1)[0]
        yield f"{plain}_{seen[plain]}" if plain in seen else plain
        seen[plain] = seen.get(plain, 0) + 1
