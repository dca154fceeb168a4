"""Learn whether a taxi trip is tipped, and export the model to JOB_DIR/export/estimate/TIME.

`python -m trainer.task --train-files taxi_train.csv --eval-files taxi_eval.csv --job-dir model`
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # before TensorFlow is imported, or it has no effect
if importlib.util.find_spec("tf_keras"):  # Keras 3 knows no parameter servers
    os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")

import tensorflow as tf

from trainer import folder
from trainer.arguments import arguments
from trainer.cluster import Cluster

_NOISE = ("is deprecated", "tf.function retracing", "Waiting for all global closures")


def main():
    args = arguments()
    tf.get_logger().propagate = False
    tf.get_logger().addFilter(lambda record: not any(words in str(record.msg) for words in _NOISE))
    tf.get_logger().setLevel(logging.INFO)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    logging.getLogger("absl").setLevel(logging.ERROR)  # says how long each checkpoint took to lay out
    cluster = Cluster.of_environment()
    chosen = args.model or ("estimator" if hasattr(tf, "estimator") else "keras")
    if chosen == "estimator" and not hasattr(tf, "estimator"):
        raise SystemExit("TensorFlow %s has no Estimators: use --model keras or runtime 2.15." % tf.__version__)
    logging.info("TensorFlow %s, %s, %s %d", tf.__version__, chosen, cluster.type, cluster.index)
    if cluster.chief:
        folder.clean(args.job_dir, os.environ.get("CLOUD_ML_JOB_ID", ""), args.reuse_job_dir)
    importlib.import_module("trainer." + chosen).run(args, cluster)


if __name__ == "__main__":
    main()
