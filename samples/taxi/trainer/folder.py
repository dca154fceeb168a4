"""The job's folder: cleaned before a new job, kept when the same job starts again after a fault."""

from __future__ import annotations

import logging
import os

import tensorflow as tf

_OWNER = "trained_by.txt"
_OURS = ("checkpoint", "model.ckpt", "events.out", "graph.pbtxt", "eval", "export", "train", "backup", _OWNER)


def clean(folder, job, keep):
    """Remove what an earlier training left in `folder`, unless `keep` or unless it was this same `job`.

    Other files stay: the service may keep the job's packages in the same folder.
    """
    mark = os.path.join(folder, _OWNER)
    if not keep and not (job and tf.io.gfile.exists(mark) and _read(mark) == job):
        names = tf.io.gfile.listdir(folder) if tf.io.gfile.isdir(folder) else []
        for name in names:
            if name.startswith(_OURS):
                logging.info("Removing %s of an earlier training", name)
                _remove(os.path.join(folder, name.rstrip("/")))
    tf.io.gfile.makedirs(folder)
    with tf.io.gfile.GFile(mark, "w") as file:
        file.write(job)


def _read(path):
    with tf.io.gfile.GFile(path) as file:
        return file.read().strip()


def _remove(path):
    if tf.io.gfile.isdir(path):
        tf.io.gfile.rmtree(path)
    else:
        tf.io.gfile.remove(path)
