"""Serves the trained network with NumPy alone: the class for `versions create --prediction-class`."""

import os

import numpy as np


class Predictor:
    """Images as 784 numbers from 0 to 1 in; the digit and how probable each digit is out."""

    def __init__(self, weights):
        self._weights = weights

    @classmethod
    def from_path(cls, model_dir):
        return cls(dict(np.load(os.path.join(model_dir, "model.npz"))))

    def predict(self, instances, **kwargs):
        layers = self._weights
        hidden = np.maximum(np.asarray(instances, np.float32) @ layers["w1"] + layers["b1"], 0)
        scores = hidden @ layers["w2"] + layers["b2"]
        odds = np.exp(scores - scores.max(1, keepdims=True))
        probabilities = odds / odds.sum(1, keepdims=True)
        return [
            {"classes": int(digit), "probabilities": row.tolist()}
            for digit, row in zip(scores.argmax(1), probabilities)
        ]
