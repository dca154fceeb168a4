"""Models in a few lines of NumPy that behave like real ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainshed.serving.errors import InvalidInputsError
from trainshed.serving.signatures import Signature, Tensor

ROWS = Signature(
    inputs={"x": Tensor(dtype="float32", shape=(-1, 3))},
    outputs={"label": Tensor(dtype="int64", shape=(-1,)), "scores": Tensor(dtype="float32", shape=(-1, 2))},
)

#: Scores rows of three by two columns of weights. The program imports `tf`.
DENSE = """
import tensorflow as tf

class Dense(tf.Module):
    def __init__(self):
        self.weights = tf.Variable([[1.0, -1.0], [2.0, 0.5], [-3.0, 4.0]])

    @tf.function(input_signature=[tf.TensorSpec([None, 3], tf.float32, name="x")])
    def score(self, x):
        scores = x @ self.weights
        return {"classes": tf.argmax(scores, 1), "scores": scores}
"""


class Scorer:
    """Scores rows of three by two columns of weights, with an optional error `off`."""

    detail = "NumPy"
    weights = np.array([[1.0, -1.0], [2.0, 0.5], [-3.0, 4.0]])

    def __init__(self, *, off: float = 0.0, signatures: Mapping[str, Signature] | None = None) -> None:
        self.signatures = {"serving_default": ROWS} if signatures is None else signatures
        self.off = off

    def run(self, signature: str, inputs: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        assert signature in self.signatures
        scores = inputs["x"].astype(np.float64) @ self.weights + self.off
        return {"label": scores.argmax(axis=1), "scores": scores.astype(np.float32)}

    def gradients(
        self, signature: str, inputs: dict[str, NDArray[Any]], *, output: str, labels: NDArray[Any]
    ) -> dict[str, NDArray[Any]]:
        assert (signature, output) == ("serving_default", "scores")
        return {"x": self.weights[:, labels].T}


class Shouter:
    """Takes strings, returns them in capitals, and rejects non-ASCII text."""

    detail = "Python"
    signatures: Mapping[str, Signature] = {
        "serving_default": Signature(
            inputs={"text": Tensor(dtype="string", shape=(-1,))}, outputs={"loud": Tensor(dtype="string", shape=(-1,))}
        )
    }

    def run(self, signature: str, inputs: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        loud = np.empty(len(inputs["text"]), object)
        for at, text in enumerate(inputs["text"]):
            if not text.isascii():
                raise InvalidInputsError("This is no text.")
            loud[at] = text.upper()
        return {"loud": loud}


class Weighing:
    """A model of tabular data: a weighted sum of columns."""

    detail = "NumPy"
    merges = True
    names: tuple[str, ...] = ()
    weights = np.array([2.0, -1.0, 0.5])
    width = 3

    def predict(self, instances: list[Any], /, **_kwargs: Any) -> list[Any]:
        return [float(value) for value in self.scores(self.rows(instances))[:, 0]]

    def rows(self, instances: list[Any]) -> NDArray[Any]:
        return np.array(instances, np.float64)

    def scores(self, rows: NDArray[Any]) -> NDArray[np.float64]:
        return np.asarray(rows @ self.weights, np.float64).reshape(-1, 1)


class Mirror:
    """Returns its input. It has a signature for each type of numbers, with the type's name."""

    detail = "NumPy"
    signatures: Mapping[str, Signature] = {
        dtype: Signature(
            inputs={dtype: Tensor(dtype=dtype, shape=(-1, 3))}, outputs={dtype: Tensor(dtype=dtype, shape=(-1, 3))}
        )
        for dtype in (
            *("bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"),
            *("float16", "float32", "float64"),
        )
    }

    def run(self, signature: str, inputs: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        return dict(inputs)
