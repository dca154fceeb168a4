"""Train the iris network and export it: `python -m trainer.task --train_file ... --test_file ... --outdir ...`."""

from __future__ import annotations

import argparse
import logging
import os
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # before TensorFlow is imported, or it has no effect

import tensorflow as tf

from trainer.model import IrisNet, read

BATCH = 40
REPORT_EVERY = 100


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--train_file", required=True, help="CSV file to learn from; in --bucket, if that is given")
    parser.add_argument("--test_file", required=True, help="CSV file to measure with; in --bucket, if that is given")
    parser.add_argument("--bucket", help="the bucket that holds the files, such as my-bucket or gs://my-bucket")
    parser.add_argument("--project", help="the project of the bucket; shown in the log")
    parser.add_argument("--outdir", help="where summaries and the exported model go; else the job's folder")
    parser.add_argument("--train_steps", type=int, default=1000)
    parser.add_argument("--learning_rate", type=float, default=0.01)
    parser.add_argument("--job-dir", help="given by the service to every trainer")
    args = parser.parse_args()
    args.outdir = args.outdir or args.job_dir
    if args.outdir is None:
        parser.error("say where the output goes, with --outdir or --job-dir")
    return args


def location(file, bucket):
    """Where a file is: as it is named, or in the bucket. A name with a scheme of its own needs no bucket."""
    if not bucket or "://" in file or os.path.isabs(file):
        return file
    return "%s/%s" % (bucket.rstrip("/") if "/" in bucket else "gs://" + bucket, file)


def evaluate(net, inputs, kinds):
    logits = net(inputs)
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=kinds, logits=logits))
    right = tf.equal(tf.argmax(logits, axis=1, output_type=tf.int32), kinds)
    return float(loss), float(tf.reduce_mean(tf.cast(right, tf.float32)))


def train(net, inputs, kinds, steps, rate, writer):
    """Adam on small batches; a line of progress now and then."""
    adam = Adam(net.trainable_variables, rate)

    @tf.function
    def learn(x, y):
        with tf.GradientTape() as tape:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=net(x))
            loss = tf.reduce_mean(losses)
        adam.apply(tape.gradient(loss, adam.variables))
        return loss

    batches = tf.data.Dataset.from_tensor_slices((inputs, kinds)).shuffle(len(inputs), seed=1).repeat().batch(BATCH)
    began = time.monotonic()
    for step, (x, y) in enumerate(batches.take(steps), start=1):
        loss = learn(x, y)
        if step == 1 or step % REPORT_EVERY == 0 or step == steps:
            pace = step / (time.monotonic() - began)
            done = 100 * step / steps
            logging.info("step %d of %d (%.0f %%): loss = %.4f, %.0f steps/s", step, steps, done, float(loss), pace)
            with writer.as_default():
                tf.compat.v2.summary.scalar("loss", loss, step=step)
                tf.compat.v2.summary.scalar("global_step/sec", pace, step=step)


class Adam:
    """The optimizer, small enough to need no framework on top of TensorFlow."""

    def __init__(self, variables, rate, fast=0.9, slow=0.999):
        self.variables, self.rate, self.fast, self.slow = list(variables), rate, fast, slow
        self.count = tf.Variable(0.0)
        self.first = [tf.Variable(tf.zeros_like(v)) for v in self.variables]
        self.second = [tf.Variable(tf.zeros_like(v)) for v in self.variables]

    def apply(self, gradients):
        count = self.count.assign_add(1.0)
        scale = self.rate * tf.sqrt(1 - self.slow**count) / (1 - self.fast**count)
        for variable, m, s, g in zip(self.variables, self.first, self.second, gradients):
            m.assign(self.fast * m + (1 - self.fast) * g)
            s.assign(self.slow * s + (1 - self.slow) * g * g)
            variable.assign_sub(scale * m / (tf.sqrt(s) + 1e-7))


def main():
    args = arguments()
    logging.basicConfig(level=logging.INFO)
    train_file, test_file = (location(file, args.bucket) for file in (args.train_file, args.test_file))
    logging.info("Learning from %s%s", train_file, " of project %s" % args.project if args.project else "")
    inputs, kinds = read(train_file)
    logging.info("TensorFlow %s, %d flowers to learn from", tf.__version__, len(inputs))
    net = IrisNet(inputs)
    writer = tf.compat.v2.summary.create_file_writer(args.outdir)
    train(net, inputs, kinds, args.train_steps, args.learning_rate, writer)

    loss, accuracy = evaluate(net, *read(test_file))
    with writer.as_default():
        tf.compat.v2.summary.scalar("accuracy", accuracy, step=args.train_steps)
    summary = "Saving dict for global step %d: accuracy = %.4g, global_step = %d, loss = %.6g"
    logging.info(summary, args.train_steps, accuracy, args.train_steps, loss)
    export = os.path.join(args.outdir, "export", "exporter", str(int(time.time())))
    tf.saved_model.save(net, export, signatures={"serving_default": net.serve})
    logging.info("Exported the model to %s", export)


if __name__ == "__main__":
    main()
