"""Train a classifier of digits with scikit-learn and report its accuracy: `python -m trainer.task --job-dir output`."""

from __future__ import annotations

import argparse
import logging
import os

import hypertune
import joblib

from trainer.model import Digits

METRIC = "accuracy"  # hyperparameterMetricTag of hptuning_config.yaml


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--job-dir", required=True, help="where the model goes; each trial has its own")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--learning_rate", type=float, default=0.001)
    parser.add_argument("--units", type=int, default=32, help="of the hidden layer")
    parser.add_argument("--activation", choices=("relu", "tanh", "logistic"), default="relu")
    return parser.parse_args()


def main():
    args = arguments()
    logging.basicConfig(level=logging.INFO)
    digits, tuner = Digits(args.units, args.activation, args.learning_rate), hypertune.HyperTune()
    for epoch in range(1, args.epochs + 1):
        loss, accuracy = digits.epoch()
        logging.info("epoch %d of %d: loss = %.4f, accuracy = %.4f", epoch, args.epochs, loss, accuracy)
        tuner.report_hyperparameter_tuning_metric(METRIC, accuracy, epoch)

    folder = os.path.join(args.job_dir, "export")
    os.makedirs(folder, exist_ok=True)
    joblib.dump(digits.model(), os.path.join(folder, "model.joblib"))
    logging.info("Exported the model to %s", folder)


if __name__ == "__main__":
    main()
