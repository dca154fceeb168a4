"""Train the network on MNIST, alone or as one replica of a cluster that shares parameter servers.

Every worker and the master compute gradients, each from its own batches, and the parameter servers apply each gradient
as it comes. The master also measures the network on the test set now and then, saves checkpoints and exports the model.
"""

import argparse
import json
import logging
import os
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # before TensorFlow is imported, or it has no effect

import tensorflow.compat.v1 as tf

from trainer.model import Evaluator, export, training_batches, training_step

EVALUATION_SHARE = 0.2  # of the master's time, at most


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--data_dir", help="folder with train.tfrecords and test.tfrecords")
    add("--train_data_paths", action="append", help="records to learn from, in place of --data_dir")
    add("--eval_data_paths", action="append", help="records to measure with, in place of --data_dir")
    add("--output_dir", "--output_path", help="where checkpoints, summaries and the model go; else the job's folder")
    add("--job-dir", help="given by the service to every trainer")
    add("--train_steps", "--max_steps", type=int, default=10000, help="batches in all, over all workers")
    add("--train_batch_size", "--batch_size", type=int, default=100)
    add("--learning_rate", type=float, default=0.001)
    add("--eval_batch_size", type=int, default=500)
    add("--eval_steps", type=int, default=-1, help="batches of the test set to measure with; -1 is all of it")
    add("--eval_interval_secs", type=float, default=30, help="between two evaluations; longer if they take long")
    add("--eval_delay_secs", type=float, default=0, help="before the first evaluation")
    add("--min_eval_frequency", type=int, default=1, help="steps between two evaluations, at least")
    add("--save_checkpoint_secs", type=float, default=30, help="between two checkpoints")
    add("--log_interval_secs", type=float, default=1)
    args = parser.parse_args()
    args.output_dir = args.output_dir or args.job_dir
    if args.output_dir is None:
        parser.error("say where the output goes, with --output_dir or --job-dir")
    args.train_data_paths = data_files(parser, args, args.train_data_paths, "train.tfrecords")
    args.eval_data_paths = data_files(parser, args, args.eval_data_paths, "test.tfrecords")
    return args


def data_files(parser, args, given, name):
    """The files that the repeatable, comma-separated patterns in `given` name; without any, one in --data_dir."""
    if given is None and args.data_dir is None:
        parser.error("say where the records are, with --data_dir or with --train_data_paths and --eval_data_paths")
    patterns = ",".join(given).split(",") if given else [os.path.join(args.data_dir, name)]
    found = [path for pattern in patterns for path in sorted(tf.io.gfile.glob(pattern))]
    if not found:
        parser.error("there is no file %s; scripts/create_records.py makes the records" % ", ".join(patterns))
    return found


class Task:
    """The task of this process, from TF_CONFIG. Without one: a master without a cluster."""

    def __init__(self, config):
        self.job = config.get("job", {})
        self.cluster = config.get("cluster") or {}
        task = config.get("task") or {}
        self.type, self.index = task.get("type") or "master", int(task.get("index") or 0)
        self.trial = task.get("trial", "")
        self.chief = self.type in ("master", "chief")
        self.name = "%s/%d" % ("master" if self.chief else self.type, self.index)

    @property
    def distributed(self):
        return bool(self.cluster.get("ps"))

    def seed(self):
        """A different seed for each worker, so that their gradients differ."""
        return 0 if self.chief else 1 + self.index

    def session_config(self):
        """A session config with this process's share of the cores; it ignores other workers."""
        threads = int(os.environ.get("OMP_NUM_THREADS") or 0) or self._cores()
        config = tf.ConfigProto(intra_op_parallelism_threads=threads, inter_op_parallelism_threads=max(2, threads))
        if self.distributed:
            config.device_filters.extend(["/job:ps", "/job:%s/task:%d" % (self.type, self.index)])
        return config

    def _cores(self):
        """This replica's share, if all of them are on this machine."""
        cores = len(os.sched_getaffinity(0))
        addresses = [address for group in self.cluster.values() for address in group]
        hosts = {address.rpartition(":")[0] for address in addresses}
        return max(1, cores // len(addresses)) if len(hosts) == 1 else cores


class WaitForMaster(tf.train.SessionCreator):
    """The session of a worker, as soon as the master has set the parameters.

    `tf.train.WorkerSessionCreator` does the same, and looks only every 30 seconds.
    """

    def __init__(self, scaffold, target, config):
        self._scaffold, self._target, self._config = scaffold, target, config

    def create_session(self):
        self._scaffold.finalize()
        manager = tf.train.SessionManager(
            local_init_op=self._scaffold.local_init_op,
            ready_op=self._scaffold.ready_op,
            ready_for_local_init_op=self._scaffold.ready_for_local_init_op,
            graph=tf.get_default_graph(),
            recovery_wait_secs=0.1,
        )
        return manager.wait_for_session(self._target, config=self._config, max_wait_secs=float("inf"))


class Progress:
    """The lines about training, and for the master its summaries too: means over the steps since the last line."""

    def __init__(self, task, interval_s, writer):
        self._name, self._interval, self._writer = task.name, interval_s, writer
        self._began = None

    def start(self, step):
        """Start at this global step. The first step has its own line."""
        self._began = time.monotonic()
        self.resume(step)
        self._last_line = 0.0

    def resume(self, step):
        """Count from here on."""
        self._since = self._last_line = time.monotonic()
        self._since_step = self._step = step
        self._count, self._loss, self._accuracy = 0, 0.0, 0.0
        self._skipped = False

    def skip_to(self, step):
        """Continue after an evaluation, without its time."""
        self.resume(step)
        self._skipped = True

    def record(self, step, loss, accuracy):
        """Count one step of this replica, and write a line if the last one was long ago."""
        if self._skipped:
            self._skipped = False
            return
        if step <= self._since_step:  # a parameter server was lost, and all went back to a checkpoint
            self.resume(step - 1)
        self._step = step
        self._count, self._loss, self._accuracy = self._count + 1, self._loss + loss, self._accuracy + accuracy
        if time.monotonic() - self._last_line >= self._interval:
            self.write()

    def write(self):
        """A line about the steps that have had none."""
        if not self._count:
            return
        now = time.monotonic()
        passed = now - self._since
        loss, accuracy = self._loss / self._count, self._accuracy / self._count
        pace, own = (self._step - self._since_step) / passed, self._count / passed
        line = "Train [%s], step %d: loss: %.3f, accuracy: %.3f (%.3f sec) %.1f global steps/s, %.1f local steps/s"
        logging.info(line, self._name, self._step, loss, accuracy, now - self._began, pace, own)
        if self._writer is not None:
            summarize(self._writer, self._step, {"loss": loss, "accuracy": accuracy, "global_step/sec": pace})
        self.resume(self._step)


def summarize(writer, step, values):
    values = [tf.Summary.Value(tag=tag, simple_value=value) for tag, value in values.items()]
    writer.add_summary(tf.Summary(value=values), step)
    writer.flush()


class Evaluation(tf.train.SessionRunHook):
    """The master's hook: saves checkpoints, and evaluates one at an interval and at the end."""

    def __init__(self, args, saver, progress, evaluator):
        self._args, self._saver, self._progress, self._evaluator = args, saver, progress, evaluator
        self._writer = tf.summary.FileWriter(os.path.join(args.output_dir, "eval"))
        self._interval = args.eval_interval_secs
        self._global_step = tf.train.get_global_step()
        self._next_save = self._next = 0.0
        self._last_step = 0
        self.result = None  # checkpoint, step, loss and accuracy of the last evaluation

    def after_create_session(self, session, coord):
        self._last_step = int(session.run(self._global_step))
        if self._last_step:
            logging.info("Going on from the checkpoint of step %d", self._last_step)
        else:
            self._save(session)  # what a restart before the next one needs
        self._next = time.monotonic() + max(self._interval, self._args.eval_delay_secs)

    def before_run(self, run_context):
        return tf.train.SessionRunArgs(self._global_step)

    def after_run(self, run_context, run_values):
        now, step = time.monotonic(), int(run_values.results)
        if step >= self._args.train_steps:
            return
        if now >= self._next and step - self._last_step >= self._args.min_eval_frequency:
            self._evaluate(run_context.session)
            self._progress.skip_to(int(run_context.session.run(self._global_step)))
        elif now >= self._next_save:
            self._save(run_context.session)

    def end(self, session):
        self._evaluate(session)

    def _save(self, session):
        """The step and the path of a new checkpoint."""
        step = int(session.run(self._global_step))
        path = self._saver.save(session, os.path.join(self._args.output_dir, "model.ckpt"), global_step=step)
        self._next_save = time.monotonic() + self._args.save_checkpoint_secs
        return step, path

    def _evaluate(self, session):
        self._progress.write()
        began = time.monotonic()
        step, checkpoint = self._save(session)
        loss, accuracy = self._evaluator.measure(checkpoint)
        logging.info("Eval, step %d: loss: %.3f, accuracy: %.3f", step, loss, accuracy)
        summarize(self._writer, step, {"loss": loss, "accuracy": accuracy})
        self.result, self._last_step = (checkpoint, step, loss, accuracy), step
        now = time.monotonic()
        interval = max(self._args.eval_interval_secs, (now - began) / EVALUATION_SHARE)
        if interval != self._interval and step < self._args.train_steps:
            logging.info("Adjusting eval interval from %.2fs to %.2fs", self._interval, interval)
        self._interval, self._next = interval, now + interval


def train(args, task, target, config):
    """Take steps until the whole cluster has taken enough of them. The master returns its last evaluation."""
    worker = "/job:%s/task:%d" % (task.type, task.index) if task.distributed else ""
    place = tf.train.replica_device_setter(cluster=task.cluster, worker_device=worker) if task.distributed else None
    with tf.Graph().as_default() as graph, tf.device(place):
        tf.set_random_seed(task.seed())
        with tf.device(worker + "/cpu:0"):
            images, labels = training_batches(args.train_data_paths, args.train_batch_size, task.seed())
        loss, accuracy, step = training_step(images, labels, args.learning_rate, args.train_steps)
        global_step = tf.train.get_global_step()
        saver = tf.train.Saver(max_to_keep=3, sharded=True)
        scaffold = tf.train.Scaffold(saver=saver)
        if task.chief:
            progress = Progress(task, args.log_interval_secs, tf.summary.FileWriter(args.output_dir, graph))
            evaluator = Evaluator(args.eval_data_paths, args.eval_batch_size, args.eval_steps, config)
            hooks = [Evaluation(args, saver, progress, evaluator)]
            creator = tf.train.ChiefSessionCreator(scaffold, target, config, checkpoint_dir=args.output_dir)
        else:
            progress, hooks = Progress(task, args.log_interval_secs, writer=None), []
            creator = WaitForMaster(scaffold, target, config)
        with tf.train.MonitoredSession(creator, hooks) as session:
            now = int(session.run(global_step))
            progress.start(now)
            while now < args.train_steps:
                now, batch_loss, batch_accuracy = session.run([step, loss, accuracy])
                progress.record(int(now), batch_loss, batch_accuracy)
            progress.write()
    return hooks[0].result if hooks else None


def finish(args, result):
    """Export the checkpoint of the last evaluation, and print its metrics."""
    checkpoint, step, loss, accuracy = result
    path = export(checkpoint, os.path.join(args.output_dir, "export", "Servo"))
    logging.info("Exporting prediction graph to %s", path)
    logging.info("Final metrics after %d steps, loss: %.3f, accuracy: %.3f", step, loss, accuracy)
    summary = "Saving dict for global step %d: accuracy = %.4g, global_step = %d, loss = %.6g"
    logging.info(summary, step, accuracy, step, loss)


def main():
    logging.basicConfig(level=logging.INFO)
    args = arguments()
    task = Task(json.loads(os.environ.get("TF_CONFIG") or "{}"))
    logging.info("Original job data: %s", task.job)
    args.output_dir = os.path.join(args.output_dir, task.trial)
    tf.logging.set_verbosity(tf.logging.ERROR)
    tf.disable_v2_behavior()
    tf.enable_resource_variables()
    config, target = task.session_config(), ""
    if task.distributed:
        server = tf.train.Server(task.cluster, task.type, task.index, config=config)
        if task.type == "ps":
            server.join()  # serves until it is ended from outside, when the master is done
        target = server.target
    result = train(args, task, target, config)
    if result is not None:
        finish(args, result)


if __name__ == "__main__":
    main()
