"""Train the network on MNIST with synchronous data parallelism: all replicas take each step together.

Each one computes the gradient of its share of the batch, and all of them apply the sum.

The program is the same on the chief and on each worker; `TF_CONFIG` says which one it is. Without it, it trains alone.
"""

import argparse
import json
import logging
import os
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # before TensorFlow is imported, or it has no effect
os.environ["TF_USE_LEGACY_KERAS"] = "1"  # Keras 3 does not know MultiWorkerMirroredStrategy

import tensorflow as tf
import tf_keras as keras

from trainer.model import create_model, read

MODEL = "mnist_classification_multiworkermirrored"


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data_dir", required=True, help="folder with MNIST's four files")
    parser.add_argument("--job-dir", required=True, help="where the model, summaries and backups go")
    parser.add_argument("--model_path", help="where the chief saves the model; else a folder in the job's")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch_size", type=int, default=64, help="images in a step, over all replicas")
    parser.add_argument("--seed", type=int, default=1, help="of the first weights and of the order of the images")
    parser.add_argument("--steps_per_epoch", type=int, help="fewer than all the images, for a short try")
    return parser.parse_args()


def limit_threads(config):
    """This replica's share of the cores. Before TensorFlow does anything, or it is too late."""
    addresses = [address for group in config.get("cluster", {}).values() for address in group]
    one_host = len({address.rpartition(":")[0] for address in addresses}) == 1
    cores = len(os.sched_getaffinity(0))
    share = max(1, cores // len(addresses)) if one_host else cores
    tf.config.threading.set_intra_op_parallelism_threads(int(os.environ.get("OMP_NUM_THREADS") or share))


def is_chief(task_type):
    """The chief, or the only process there is."""
    return task_type in (None, "chief", "master")


def write_path(path, task_type, task_id):
    """Where this replica saves: all of them must, because they do it together, but one model is enough."""
    if is_chief(task_type):
        return path
    folder = os.path.join(os.path.dirname(path), "workertemp_%d" % task_id)
    tf.io.gfile.makedirs(folder)
    return os.path.join(folder, os.path.basename(path))


def batches(images, labels, batch_size, seed=None):
    """The dataset of all replicas: each one reads every image and takes another share of every batch.

    With a seed the images come without end and in another order each time; without one they come once, as they are.
    """
    data = tf.data.Dataset.from_tensor_slices((images, labels))
    if seed is not None:  # the same one everywhere, or an image could be in two shares
        data = data.shuffle(len(images), seed=seed).repeat()
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    scaled = data.batch(batch_size).map(lambda some, digits: (tf.cast(some, tf.float32) / 255, digits))
    return scaled.prefetch(2).with_options(options)


def meet(strategy):
    """Wait for all replicas. The job ends with the chief, and a worker that still saves would be stopped."""
    strategy.reduce(tf.distribute.ReduceOp.SUM, strategy.run(lambda: tf.constant(1.0)), axis=None)


class Report(keras.callbacks.Callback):
    """A line now and then and one at the end of each epoch, and the same numbers as summaries if there is a writer."""

    def __init__(self, name, epochs, steps, replicas, writer):
        super().__init__()
        self._replicas = replicas
        self._name, self._epochs, self._steps, self._writer = name, epochs, steps, writer
        self._epoch = 0
        self._since, self._since_batch = time.monotonic(), 0

    def on_epoch_begin(self, epoch, logs=None):
        self._epoch, self._since, self._since_batch = epoch, time.monotonic(), 0

    def on_train_batch_end(self, batch, logs=None):
        if batch + 1 < self._steps and time.monotonic() - self._since >= 5:
            # Within an epoch Keras gives the sum of what the replicas measured, at its end the mean.
            self._write(batch + 1, {key: value / self._replicas for key, value in logs.items()}, "Train")

    def on_epoch_end(self, epoch, logs=None):
        self._write(self._steps, logs, "End of epoch")

    def _write(self, batch, logs, what):
        now = time.monotonic()
        pace = (batch - self._since_batch) / (now - self._since)
        step = self._epoch * self._steps + batch
        line = "%s [%s], epoch %d/%d, step %d: loss: %.4f, accuracy: %.4f, %.1f steps/s"
        logging.info(line, what, self._name, self._epoch + 1, self._epochs, step, logs["loss"], logs["accuracy"], pace)
        if self._writer is not None:
            with self._writer.as_default(step=step):
                tf.summary.scalar("loss", logs["loss"])
                tf.summary.scalar("accuracy", logs["accuracy"])
                tf.summary.scalar("global_step/sec", pace)
            self._writer.flush()
        self._since, self._since_batch = now, batch


def main():
    logging.basicConfig(level=logging.INFO)
    tf.get_logger().setLevel(logging.ERROR)
    args = arguments()
    config = json.loads(os.environ.get("TF_CONFIG") or "{}")
    limit_threads(config)
    distributed = bool(config.get("cluster", {}).get("worker"))
    strategy = tf.distribute.MultiWorkerMirroredStrategy() if distributed else tf.distribute.get_strategy()
    resolver = strategy.cluster_resolver if distributed else None
    task_type, task_id = (resolver.task_type, resolver.task_id) if resolver else (None, 0)
    name = "%s/%d" % ("master" if is_chief(task_type) else task_type, task_id)
    logging.info("Replica %s of %d in step with each other", name, strategy.num_replicas_in_sync)

    images, labels = read(args.data_dir, "train")
    steps = args.steps_per_epoch or len(images) // args.batch_size
    keras.utils.set_random_seed(args.seed)
    with strategy.scope():
        model = create_model(steps * args.epochs)
    writer = tf.summary.create_file_writer(args.job_dir) if is_chief(task_type) else None
    backup = keras.callbacks.BackupAndRestore(os.path.join(args.job_dir, "backup"))
    model.fit(
        batches(images, labels, args.batch_size, args.seed),
        epochs=args.epochs,
        steps_per_epoch=steps,
        callbacks=[backup, Report(name, args.epochs, steps, strategy.num_replicas_in_sync, writer)],
        verbose=0,
    )

    test = batches(*read(args.data_dir, "t10k"), args.batch_size * 8)
    loss, accuracy = model.evaluate(test, verbose=0)
    logging.info("Test loss: %.4f", loss)
    logging.info("Test accuracy: %.4f", accuracy)
    path = write_path(args.model_path or os.path.join(args.job_dir, MODEL), task_type, task_id)
    model.save(path)
    logging.info("Saved the model to %s", path)
    meet(strategy)


if __name__ == "__main__":
    main()
