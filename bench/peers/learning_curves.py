"""Records learning curves: small networks of scikit-learn on its digits, trained epoch by epoch with random settings.

Prints a JSON list of curves, each the accuracy on held-out digits after each epoch. Runs in a runtime.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import warnings

for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import numpy as np  # noqa: E402
from sklearn.datasets import load_digits  # noqa: E402
from sklearn.model_selection import train_test_split  # noqa: E402
from sklearn.neural_network import MLPClassifier  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--curves", type=int, required=True)
    parser.add_argument("--epochs", type=int, required=True)
    args = parser.parse_args()
    warnings.simplefilter("ignore")  # of settings with which a network diverges
    images, digits = load_digits(return_X_y=True)
    train_x, test_x, train_y, test_y = train_test_split(images / 16, digits, test_size=0.4, random_state=0)
    chance = np.random.default_rng(0)
    curves = []
    for number in range(args.curves):
        network = MLPClassifier(
            hidden_layer_sizes=(int(2 ** chance.uniform(2, 7)),) * int(chance.integers(1, 3)),
            activation=str(chance.choice(["relu", "tanh", "logistic"])),
            solver=str(chance.choice(["adam", "sgd"])),
            learning_rate_init=float(10 ** chance.uniform(-4, -0.5)),
            alpha=float(10 ** chance.uniform(-6, 0)),
            batch_size=int(2 ** chance.integers(4, 8)),
            random_state=number,
        )
        curve = []
        for _ in range(args.epochs):
            network.partial_fit(train_x, train_y, classes=range(10))
            curve.append(float(network.score(test_x, test_y)))
        curves.append(curve)
    json.dump(curves, sys.stdout)


if __name__ == "__main__":
    main()
