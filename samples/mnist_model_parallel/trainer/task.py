"""Train one network that is too big for one machine, or would be: its layers are placed on two workers.

The master holds the program and the data and drives the session; worker 0 has the convolutional layers, worker 1 the
dense ones. Each step goes forward through both and back again. Without a cluster everything is in this process.
"""

import argparse
import json
import logging
import os
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # before TensorFlow is imported, or it has no effect

import numpy as np
import tensorflow.compat.v1 as tf

from trainer.model import SIDE, network, read


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data_dir", required=True, help="folder with MNIST's four files")
    parser.add_argument("--job-dir", required=True, help="where checkpoints and summaries go")
    parser.add_argument("--train_steps", type=int, default=400)
    parser.add_argument("--batch_size", type=int, default=100)
    parser.add_argument("--learning_rate", type=float, default=0.001)
    return parser.parse_args()


def devices(cluster):
    """Where the two halves of the network are."""
    if not cluster:
        return "/cpu:0", "/cpu:0"
    if len(cluster.get("worker", [])) < 2:
        raise SystemExit("The layers of this network go on two workers: set workerCount to 2.")
    return "/job:worker/task:0/cpu:0", "/job:worker/task:1/cpu:0"


def session_config(cluster):
    """Threads for this process's share of the cores, if all replicas are on this machine."""
    addresses = [address for group in cluster.values() for address in group]
    one_host = len({address.rpartition(":")[0] for address in addresses}) == 1
    cores = len(os.sched_getaffinity(0))
    share = max(1, cores // len(addresses)) if one_host else cores
    threads = int(os.environ.get("OMP_NUM_THREADS") or share)
    return tf.ConfigProto(intra_op_parallelism_threads=threads, inter_op_parallelism_threads=max(2, threads))


def evaluate(session, feed, outputs, images, labels):
    """The loss and the accuracy over a whole set."""
    size = 500
    found = [
        session.run(outputs, dict(zip(feed, (images[at : at + size], labels[at : at + size]))))
        for at in range(0, len(images), size)
    ]
    return np.mean(found, axis=0)


def summarize(writer, step, values):
    values = [tf.Summary.Value(tag=tag, simple_value=value) for tag, value in values.items()]
    writer.add_summary(tf.Summary(value=values), step)
    writer.flush()


def say_where(graph):
    """One line for each layer: the machine that has its weights."""
    with graph.as_default():
        for variable in tf.trainable_variables():
            logging.info("%s %s is on %s", variable.op.name, variable.shape.as_list(), variable.device)


def train(args, target, config, placed):
    """Take the steps that are left, from the last checkpoint on if there is one. Returns the step and the measures."""
    graph = tf.Graph()
    with graph.as_default():
        tf.set_random_seed(1)
        images = tf.placeholder(tf.float32, [None, SIDE, SIDE, 1], name="images")
        labels = tf.placeholder(tf.int64, [None], name="labels")
        with tf.device(placed[1]):
            global_step = tf.train.get_or_create_global_step()
        loss, accuracy = network(images, labels, *placed)
        minimize = tf.train.AdamOptimizer(args.learning_rate).minimize(loss, colocate_gradients_with_ops=True)
        with tf.device(placed[1]), tf.control_dependencies([minimize]):
            learn = tf.assign_add(global_step, 1)  # the number of steps, this one included
    say_where(graph)
    test = read(args.data_dir, "t10k")
    train_images, train_labels = read(args.data_dir, "train")
    rng = np.random.default_rng(1)
    with (
        graph.as_default(),
        tf.train.MonitoredTrainingSession(
            target, checkpoint_dir=args.job_dir, config=config, save_summaries_steps=None, log_step_count_steps=None
        ) as session,
    ):
        writer = tf.summary.FileWriter(args.job_dir, graph)
        step = int(session.run(global_step))
        began = last = time.monotonic()
        last_step = step
        while step < args.train_steps:
            chosen = rng.integers(len(train_images), size=args.batch_size)
            feed = {images: train_images[chosen], labels: train_labels[chosen]}
            step, batch_loss, batch_accuracy = session.run([learn, loss, accuracy], feed)
            now = time.monotonic()
            if now - last >= 1 or step >= args.train_steps:
                pace = (step - last_step) / (now - last)
                line = "Train [master/0], step %d: loss: %.3f, accuracy: %.3f (%.3f sec) %.1f global steps/s"
                logging.info(line, step, batch_loss, batch_accuracy, now - began, pace)
                summarize(writer, step, {"loss": batch_loss, "accuracy": batch_accuracy, "global_step/sec": pace})
                last, last_step = now, step
        return step, *evaluate(session, (images, labels), (loss, accuracy), *test)


def main():
    logging.basicConfig(level=logging.INFO)
    args = arguments()
    settings = json.loads(os.environ.get("TF_CONFIG") or "{}")
    cluster = settings.get("cluster") or {}
    if not cluster.get("worker"):
        cluster = {}
    tf.logging.set_verbosity(tf.logging.ERROR)
    tf.disable_v2_behavior()
    tf.enable_resource_variables()
    config, target = session_config(cluster), ""
    if cluster:
        task = settings["task"]
        server = tf.train.Server(cluster, task["type"], int(task["index"]), config=config)
        if task["type"] == "worker":
            server.join()  # its layers are run by the master's session until it is ended from outside
        target = server.target
    step, loss, accuracy = train(args, target, config, devices(cluster))
    logging.info("Final metrics after %d steps, loss: %.3f, accuracy: %.4f", step, loss, accuracy)


if __name__ == "__main__":
    main()
