"""SavedModels on TensorFlow: the reference for other loaders, and the one with gradients."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from ..errors import LoaderError, ModelRunError
from ..signatures import DTYPES, Signature, Tensor
from ..spec import ServingSpec

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .base import Array

SERVE = "serve"  #: the tag of the serving graph, in models with several


class InputRejectedError(ModelRunError):
    """The graph rejected the values, such as an example that it cannot parse: the caller's fault."""

    status = 400


def load(spec: ServingSpec) -> TensorFlowModel:
    """Load the custom ops of `assets.extra`, then the SavedModel."""
    limit_threads(spec.threads)
    for library in sorted(spec.model_dir.glob("assets.extra/*.so")):
        try:
            tf.load_op_library(str(library))
        except (tf.errors.OpError, RuntimeError, OSError) as exc:
            raise LoaderError(
                f"The custom ops of assets.extra/{library.name} do not load: {error_message(exc)}"
            ) from exc
    loaded = _saved_model(spec.model_dir)
    functions = {name: function for name, function in loaded.signatures.items() if _has_json_form(function)}
    if not functions:
        raise LoaderError(
            "The SavedModel has no signature to call. Export it with at least one, named serving_default."
        )
    return TensorFlowModel(functions, keep=loaded)


def limit_threads(threads: int) -> None:
    """Limit TensorFlow's threads. Does nothing once TensorFlow has started them."""
    try:
        tf.config.threading.set_intra_op_parallelism_threads(threads)
        tf.config.threading.set_inter_op_parallelism_threads(threads)
    except RuntimeError:  # already started
        return


def error_message(exc: BaseException) -> str:
    """The message of a TensorFlow error, without the graph's stack trace, nodes and functions."""
    text = str(getattr(exc, "message", "") or exc).rpartition("<stack traces unavailable>")[2]
    return text.split("\n\t [[", 1)[0].split(" [Op:", 1)[0].strip() or type(exc).__name__


class TensorFlowModel:
    """A model whose signatures are TensorFlow functions."""

    def __init__(self, functions: Mapping[str, Any], *, keep: object) -> None:
        self.detail = f"TensorFlow {tf.__version__}"
        self.signatures: Mapping[str, Signature] = {name: _signature(functions[name]) for name in sorted(functions)}
        self._functions = functions
        self._keep = keep  # variables die with the object that owns them

    def run(self, signature: str, inputs: dict[str, Array]) -> dict[str, Array]:
        feeds = {name: _tensor(array) for name, array in inputs.items()}
        try:
            outputs = self._functions[signature](**feeds)
            return {name: outputs[name].numpy() for name in sorted(outputs)}
        except tf.errors.InvalidArgumentError as exc:
            raise InputRejectedError(f"Exception during running the graph: {error_message(exc)}") from exc
        except tf.errors.OpError as exc:
            raise ModelRunError(f"Exception during running the graph: {error_message(exc)}") from exc

    def gradients(
        self, signature: str, inputs: dict[str, Array], *, output: str, labels: NDArray[Any]
    ) -> dict[str, NDArray[Any]]:
        """Gradients of each row's score for its label, by each value of each float input."""
        feeds = {name: _tensor(array) for name, array in inputs.items()}
        watched = {name: feed for name, feed in feeds.items() if feed.dtype.is_floating}
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            for feed in watched.values():
                tape.watch(feed)
            scores = self._functions[signature](**feeds)[output]
            label_scores = tf.gather(tf.reshape(scores, [len(labels), -1]), labels, batch_dims=1)
        gradients = tape.gradient(label_scores, watched, unconnected_gradients=tf.UnconnectedGradients.ZERO)
        return {name: tf.convert_to_tensor(gradient).numpy() for name, gradient in gradients.items()}


def _saved_model(folder: Path) -> Any:
    try:
        try:
            return tf.saved_model.load(str(folder))
        except ValueError:  # there are several graphs
            return tf.saved_model.load(str(folder), tags=[SERVE])
    except (tf.errors.OpError, OSError, ValueError, RuntimeError, KeyError, TypeError, AttributeError) as exc:
        raise LoaderError(f"TensorFlow {tf.__version__} does not load the SavedModel: {error_message(exc)}") from exc


def _has_json_form(function: Any) -> bool:
    tensors = (*function.structured_input_signature[1].values(), *function.structured_outputs.values())
    return all(tensor.dtype.name in DTYPES.values() for tensor in tensors)


def _signature(function: Any) -> Signature:
    inputs, outputs = function.structured_input_signature[1], function.structured_outputs
    return Signature(
        inputs={name: tensor_of(inputs[name]) for name in sorted(inputs)},
        outputs={name: tensor_of(outputs[name]) for name in sorted(outputs)},
    )


def tensor_of(tensor: Any) -> Tensor:
    """Type and shape of a tensor or tensor spec."""
    shape = tf.TensorShape(tensor.shape)
    sizes = None if shape.rank is None else tuple(-1 if size is None else size for size in shape.as_list())
    return Tensor(dtype=tf.as_dtype(tensor.dtype).name, shape=sizes)


def _tensor(array: Array) -> Any:
    return tf.constant(array, tf.string) if array.dtype == object else tf.constant(array)
