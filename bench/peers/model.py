"""Writes a SavedModel that all systems serve, with random weights.

python model.py FOLDER [sample|cnn|tabular]

sample: the convolutional network of the MNIST sample, which all systems are measured with. cnn: an ordinary Keras
network with two convolutions. tabular: a Keras network over 13 numbers, as of a table.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping

import tensorflow as tf


class Mnist(tf.Module):
    """Two convolutions and two dense layers, 784 floats in, a class and ten probabilities out."""

    def __init__(self) -> None:
        super().__init__()
        random = tf.random.Generator.from_seed(1)
        self.first, self.second, self.hidden, self.last = (
            tf.Variable(random.normal(shape, stddev=0.05))
            for shape in ((5, 5, 1, 32), (5, 5, 32, 64), (3136, 1024), (1024, 10))
        )

    @tf.function(input_signature=[tf.TensorSpec([None, 784], tf.float32, name="inputs")])
    def __call__(self, inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        image = tf.reshape(inputs, [-1, 28, 28, 1])
        for kernel in (self.first, self.second):
            image = tf.nn.max_pool2d(tf.nn.relu(tf.nn.conv2d(image, kernel, 1, "SAME")), 2, 2, "SAME")
        logits = tf.nn.relu(tf.reshape(image, [-1, 3136]) @ self.hidden) @ self.last
        return {"classes": tf.argmax(logits, 1), "probabilities": tf.nn.softmax(logits)}


def save_sample(folder: str) -> None:
    model = Mnist()
    tf.saved_model.save(model, folder, signatures={"serving_default": model.__call__})


def save_cnn(folder: str) -> None:
    layers = tf.keras.layers
    convolutions = [layers.Conv2D(32, 3, activation="relu"), layers.MaxPooling2D(), layers.Conv2D(64, 3), layers.ReLU()]
    dense = [layers.MaxPooling2D(), layers.Flatten(), layers.Dense(128, "relu"), layers.Dense(10, "softmax")]
    _save(tf.keras.Sequential([layers.Input((28, 28, 1)), *convolutions, *dense]), folder)


def save_tabular(folder: str) -> None:
    layers = tf.keras.layers
    hidden = [layers.BatchNormalization(), layers.Dense(64, "relu"), layers.Dense(64, "relu")]
    _save(tf.keras.Sequential([layers.Input((13,)), *hidden, layers.Dense(1)]), folder)


def _save(model: tf.keras.Model, folder: str) -> None:
    tf.keras.utils.set_random_seed(1)
    tf.saved_model.save(model, folder)


MODELS: Mapping[str, Callable[[str], None]] = {"sample": save_sample, "cnn": save_cnn, "tabular": save_tabular}

if __name__ == "__main__":
    MODELS[sys.argv[2] if len(sys.argv) > 2 else "sample"](sys.argv[1])
