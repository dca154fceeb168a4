"""Training the Estimator: alone, or as one replica of a gang with parameter servers."""

from __future__ import annotations

import functools
import logging

import tensorflow as tf

from trainer.arguments import layers, steps
from trainer.model import create, serving_input
from trainer.trips import batches, count

_SEED = 19831006
_WAIT_S = (
    1  #: a worker looks this often whether the master is ready; TensorFlow's own 30 s would be most of a short job
)


def run(args, cluster):
    cluster.call_master()
    session_manager = tf.compat.v1.train.SessionManager
    session_manager.__init__ = functools.partialmethod(session_manager.__init__, recovery_wait_secs=_WAIT_S)
    total, epoch = steps(args, count(args.train_files))
    config = tf.estimator.RunConfig(
        model_dir=args.job_dir,
        tf_random_seed=_SEED,
        save_summary_steps=100,
        log_step_count_steps=100,
        keep_checkpoint_max=3,
        save_checkpoints_secs=args.eval_frequency_secs,
        experimental_max_worker_delay_secs=0,  # workers start with the master, not 5 seconds after one another
    )
    logging.info("Hidden layers %s, %d steps of %d trips", layers(args), total, args.batch_size)
    model = create(args, config, layers(args), epoch)
    seed = _SEED + cluster.number  # each replica sees the trips in another order
    tf.estimator.train_and_evaluate(
        model,
        tf.estimator.TrainSpec(lambda: batches(args.train_files, args.batch_size, seed), max_steps=total),
        tf.estimator.EvalSpec(
            lambda: batches(args.eval_files, args.batch_size),
            steps=args.eval_steps,
            exporters=[tf.estimator.FinalExporter("estimate", serving_input(args.serving_export_format))],
            start_delay_secs=0,
            throttle_secs=args.eval_frequency_secs,
        ),
    )
