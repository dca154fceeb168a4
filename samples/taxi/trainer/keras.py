"""Training the Keras model: alone, or with the chief handing steps to workers that share parameter servers."""

from __future__ import annotations

import logging
import os
import time

import tensorflow as tf

from trainer import keras_model
from trainer.arguments import layers, steps
from trainer.trips import batches, count

_SEED = 19831006


def run(args, cluster):
    if not cluster.servers:
        if len(cluster.members.get("worker", ())):
            raise SystemExit("This gang has workers and no parameter server: set parameterServerCount to 1 or more.")
        _train(args, None)
        return
    os.environ["GRPC_FAIL_FAST"] = "use_caller"  # a replica that is not up yet is waited for
    spec = tf.train.ClusterSpec(cluster.as_chief())
    if cluster.chief:
        resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
            spec, task_type="chief", task_id=0, rpc_layer="grpc"
        )
        _train(args, tf.distribute.ParameterServerStrategy(resolver))
    else:
        tf.distribute.Server(spec, cluster.type, cluster.index, protocol="grpc").join()


def _train(args, strategy):
    total, epoch = steps(args, count(args.train_files))
    epochs = max(1, round(total / epoch))
    logging.info("Hidden layers %s, %d steps of %d trips", layers(args), total, args.batch_size)
    local = keras_model.create(args, layers(args))
    if strategy is None:
        model = _compiled(args, local, epoch)
        data = _training_data(args, 0)
    else:
        with strategy.scope():
            model = _compiled(args, keras_model.create(args, layers(args)), epoch)
        data = tf.keras.utils.experimental.DatasetCreator(
            lambda context: _training_data(args, context.input_pipeline_id)
        )
    report = Report(args, local, total // epochs)
    backup = tf.keras.callbacks.BackupAndRestore(os.path.join(args.job_dir, "backup"))
    model.fit(data, epochs=epochs, steps_per_epoch=total // epochs, callbacks=[backup, report], verbose=0)
    report.finish(model, total // epochs * epochs)
    target = os.path.join(args.job_dir, "export", "estimate", str(int(time.time())))
    signature = keras_model.serving(local, args.serving_export_format)
    tf.saved_model.save(local, target, signatures={"serving_default": signature})
    logging.info("SavedModel written to: %s", target)


def _training_data(args, pipeline):
    found = batches(args.train_files, args.batch_size, _SEED + pipeline)  # each worker sees them in another order
    return found.map(lambda columns, label: (keras_model.features(columns), label))


def _compiled(args, model, epoch):
    rate = tf.keras.optimizers.schedules.ExponentialDecay(args.learning_rate, epoch, args.learning_rate_decay_factor)
    model.compile(
        optimizer=tf.keras.optimizers.Adam(rate),
        loss=tf.keras.losses.BinaryCrossentropy(from_logits=True),
        metrics=[tf.keras.metrics.BinaryAccuracy("accuracy", threshold=0.0)],
    )
    return model


class Report(tf.keras.callbacks.Callback):
    """Lines, summaries and evaluations. `local` is a model of the same shape that lives in this process alone."""

    def __init__(self, args, local, epoch):
        super().__init__()
        self.args, self.local, self.epoch = args, local, epoch
        self.step = 0
        self.measured = -1  #: the step of the last evaluation
        self.began = self.evaluated = time.monotonic()
        self.training = tf.summary.create_file_writer(args.job_dir)
        self.evaluation = tf.summary.create_file_writer(os.path.join(args.job_dir, "eval"))

    def on_epoch_begin(self, epoch, logs=None):
        self.began = time.monotonic()

    def on_epoch_end(self, epoch, logs=None):
        self.step = (epoch + 1) * self.epoch
        took = time.monotonic() - self.began
        pace = self.epoch / took
        line = "Train [chief/0], step %d: loss: %.3f, accuracy: %.3f (%.3f sec) %.1f global steps/s"
        logging.info(line, self.step, logs["loss"], logs["accuracy"], took, pace)
        with self.training.as_default(step=self.step):
            for name, value in (("loss", logs["loss"]), ("accuracy", logs["accuracy"]), ("global_step/sec", pace)):
                tf.summary.scalar(name, value)
        self.training.flush()
        if time.monotonic() - self.evaluated >= self.args.eval_frequency_secs:
            self.evaluate(self.model)

    def finish(self, model, step):
        """The last evaluation, unless it was just made. `step` counts also if an earlier start did them all."""
        if step != self.measured:
            self.step = step
            self.evaluate(model)

    def evaluate(self, model):
        """Evaluate a copy in this process; workers may continue."""
        if model is not self.local:
            self.local.set_weights(model.get_weights())
        found = _measure(self.local, batches(self.args.eval_files, self.args.batch_size), self.args.eval_steps)
        self.evaluated, self.measured = time.monotonic(), self.step
        with self.evaluation.as_default(step=self.step):
            for name, value in found.items():
                tf.summary.scalar(name, value)
        self.evaluation.flush()
        shown = sorted({**found, "global_step": self.step}.items())
        text = ", ".join("%s = %s" % (name, "%.7g" % value) for name, value in shown)
        logging.info("Saving dict for global step %d: %s", self.step, text)


def _measure(model, data, limit):
    metrics = tf.keras.metrics
    found = {
        "accuracy": metrics.BinaryAccuracy(),
        "auc": metrics.AUC(),
        "precision": metrics.Precision(),
        "recall": metrics.Recall(),
        "loss": metrics.BinaryCrossentropy(),
    }
    for columns, label in data.take(limit or -1):
        chance = tf.sigmoid(model(keras_model.features(columns))[:, 0])
        for metric in found.values():
            metric.update_state(label, chance)
    return {name: float(metric.result()) for name, metric in found.items()}
