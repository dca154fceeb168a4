"""Keras models: a `.keras` or `.h5` file, or the folder of `save_model(zipped=False)`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from ..errors import LoaderError
from ..signatures import DEFAULT
from ..spec import ServingSpec
from .tensorflow import TensorFlowModel, error_message, limit_threads

SUFFIXES = (".keras", ".h5", ".hdf5")


def find_model(folder: Path) -> Path | None:
    """The path of the Keras model in a folder. Returns None without one. Raises `LoaderError` if there are several."""
    if (folder / "config.json").is_file() and (folder / "model.weights.h5").is_file():
        return folder
    paths = sorted(path for path in folder.iterdir() if path.suffix in SUFFIXES and path.is_file())
    if len(paths) > 1:
        names = ", ".join(path.name for path in paths)
        raise LoaderError(f"Multiple model files are found in the model_path: {names}")
    return paths[0] if paths else None


def load(spec: ServingSpec) -> TensorFlowModel:
    """The model as one signature, `serving_default`, with the names of the model's keys or layers."""
    limit_threads(spec.threads)
    path = find_model(spec.model_dir)
    if path is None:
        raise LoaderError(f"Could not find a .keras file, an .h5 file or a saved Keras folder in {spec.model_dir}")
    model = _read(path)
    if not getattr(model, "inputs", None):
        raise LoaderError(f"The Keras model of {path.name} does not say its inputs. Call it once before it is saved.")
    tensorflow_model = TensorFlowModel({DEFAULT: _function(model)}, keep=model)
    tensorflow_model.detail = f"Keras {keras.__version__} on {tensorflow_model.detail}"
    return tensorflow_model


def _read(path: Path) -> Any:
    try:
        return keras.models.load_model(str(path), compile=False)
    except Exception as exc:  # layers may raise anything
        raise LoaderError(f"Keras does not load {path.name}: {error_message(exc)}") from exc


def _function(model: Any) -> Any:
    """A concrete function from the model's inputs by name to its outputs by name."""
    inputs, output_names = _inputs(model), _output_names(model)

    def serve(**feeds: Any) -> dict[str, Any]:
        arguments: Any = dict(feeds) if isinstance(inputs, dict) else [feeds[name] for name in specs]
        outputs = model(
            arguments[0] if isinstance(arguments, list) and len(arguments) == 1 else arguments, training=False
        )
        if isinstance(outputs, dict):
            return outputs
        return dict(zip(output_names, outputs if isinstance(outputs, list | tuple) else [outputs], strict=True))

    tensors = inputs.items() if isinstance(inputs, dict) else zip(_names(t.name for t in inputs), inputs, strict=True)
    specs = {name: tf.TensorSpec(tensor.shape, tensor.dtype, name=name) for name, tensor in tensors}
    return tf.function(serve, autograph=False).get_concrete_function(**specs)


def _inputs(model: Any) -> dict[str, Any] | list[Any]:
    """The inputs by key if the model takes a dict, else in order. An uncalled Sequential has no `input`."""
    try:
        inputs = model.input
    except AttributeError:
        inputs = None
    return inputs if isinstance(inputs, dict) else list(model.inputs)


def _output_names(model: Any) -> list[str]:
    names = getattr(model, "output_names", None)
    return list(_names(names if names else [model.layers[-1].name]))


def _names(names: Iterable[str]) -> Iterator[str]:
    """The names, made unique by a number."""
    counts: dict[str, int] = {}
    for name in names:
        plain = name.split(":", 1)[0]
        yield f"{plain}_{counts[plain]}" if plain in counts else plain
        counts[plain] = counts.get(plain, 0) + 1
