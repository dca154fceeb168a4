"""Writes the SavedModel that all systems serve: the convolutional network of the MNIST sample, with random weights.

python model.py FOLDER
"""

from __future__ import annotations

import sys

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


if __name__ == "__main__":
    model = Mnist()
    tf.saved_model.save(model, sys.argv[1], signatures={"serving_default": model.__call__})
