"""TensorFlow models as text, for scripts that run in a runtime and save them."""

from __future__ import annotations

#: Scores rows of three by two columns of weights. `tf` is imported by it.
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
