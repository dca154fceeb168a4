"""A small network that tells three kinds of iris apart by four lengths."""

from __future__ import annotations

import csv

import tensorflow as tf

if tf.__version__.startswith("1."):  # it is written for TensorFlow 2, whose ways 1.15 has too
    tf.compat.v1.enable_v2_behavior()

FEATURES = ("SepalLength", "SepalWidth", "PetalLength", "PetalWidth")
KINDS = 3


def read(path):
    """The measurements and kinds in a CSV file whose first line is a header."""
    with tf.io.gfile.GFile(path) as file:
        rows = [[float(cell) for cell in row] for row in list(csv.reader(file))[1:] if row]
    table = tf.constant(rows)
    return table[:, :-1], tf.cast(table[:, -1], tf.int32)


class IrisNet(tf.Module):
    """Two hidden layers of ten. Inputs are scaled by the mean and spread of the training data."""

    def __init__(self, inputs):
        super().__init__()
        self.mean = tf.Variable(tf.reduce_mean(inputs, axis=0), trainable=False)
        self.spread = tf.Variable(tf.math.reduce_std(inputs, axis=0), trainable=False)
        sizes = (len(FEATURES), 10, 10, KINDS)
        self.weights = [
            tf.Variable(tf.random.normal((rows, columns), stddev=(2 / rows) ** 0.5, seed=layer))
            for layer, (rows, columns) in enumerate(zip(sizes[:-1], sizes[1:]))
        ]
        self.biases = [tf.Variable(tf.zeros(columns)) for columns in sizes[1:]]

    def __call__(self, inputs):
        values = (inputs - self.mean) / self.spread
        for weight, bias in zip(self.weights[:-1], self.biases[:-1]):
            values = tf.nn.relu(values @ weight + bias)
        return values @ self.weights[-1] + self.biases[-1]

    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, name=name) for name in FEATURES])
    def serve(self, *columns):
        """The serving signature: one row for each flower."""
        logits = self(tf.stack(columns, axis=1))
        best = tf.argmax(logits, axis=1)
        return {
            "class_ids": best[:, tf.newaxis],
            "classes": tf.strings.as_string(best)[:, tf.newaxis],
            "logits": logits,
            "probabilities": tf.nn.softmax(logits),
        }
