"""The network, and the digits that it learns."""

from __future__ import annotations

import numpy
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler


class Digits:
    """A network with one hidden layer, which learns epoch by epoch."""

    def __init__(self, units, activation, learning_rate):
        images, digits = load_digits(return_X_y=True)  # 1,797 images of 8 by 8 pixels, which are part of scikit-learn
        split = train_test_split(images, digits, test_size=0.25, random_state=0, stratify=digits)
        learn_images, test_images, self._learn_digits, self._test_digits = split
        self._scaler = StandardScaler().fit(learn_images)
        self._learn, self._test = self._scaler.transform(learn_images), self._scaler.transform(test_images)
        self._network = MLPClassifier((units,), activation=activation, learning_rate_init=learning_rate, random_state=0)

    def epoch(self):
        """Learn all images once. Returns the loss, and the accuracy on images that it did not learn."""
        self._network.partial_fit(self._learn, self._learn_digits, classes=numpy.arange(10))
        return self._network.loss_, self._network.score(self._test, self._test_digits)

    def model(self):
        """Scaler and network as one model, which answers with a digit for each row of 64 pixels."""
        return make_pipeline(self._scaler, self._network)
