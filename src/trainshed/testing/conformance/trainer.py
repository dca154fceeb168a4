"""A trainer for suites of pipelines: it exports a SavedModel that doubles numbers, and instances to predict with."""

from __future__ import annotations

import subprocess
import tarfile
from pathlib import Path

from trainshed.testing.conformance.targets import Target

_SETUP = "import setuptools\nsetuptools.setup(name='trainer', version='1.0', packages=['trainer'])\n"
_TASK = """
import argparse

import tensorflow as tf

parser = argparse.ArgumentParser()
parser.add_argument("--job-dir", required=True)
parser.add_argument("--steps", type=int, default=1)
arguments = parser.parse_args()


class Double(tf.Module):
    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, "x")])
    def __call__(self, x):
        return {"y": 2.0 * x}


model = Double()
tf.saved_model.save(model, arguments.job_dir + "/export", signatures={"serving_default": model.__call__})
with tf.io.gfile.GFile(arguments.job_dir + "/instances.json", "w") as file:
    file.write('{"x": 1.0}\\n{"x": 2.5}\\n')
"""


def write_package(folder: Path) -> Path:
    """Write the trainer as a source distribution. Returns the archive."""
    root = folder / "trainer-1.0"
    (root / "trainer").mkdir(parents=True)
    (root / "trainer" / "__init__.py").touch()
    (root / "trainer" / "task.py").write_text(_TASK)
    (root / "setup.py").write_text(_SETUP)
    (root / "PKG-INFO").write_text("Metadata-Version: 1.0\nName: trainer\nVersion: 1.0\n")
    archive = folder / "trainer-1.0.tar.gz"
    with tarfile.open(archive, "w:gz") as file:
        file.add(root, arcname=root.name)
    return archive


def upload_trainer(target: Target, folder: Path, bucket: str) -> str:
    """Make a bucket and put the trainer's package into it. Returns the package's URI."""
    archive = write_package(folder)
    uri = f"{bucket}/packages/{archive.name}"
    for words in (("mb", bucket), ("cp", archive, uri)):
        command = ["trainshed", "--project", target.project, "buckets", *map(str, words)]
        subprocess.run(command, env=dict(target.environment), check=True, capture_output=True)
    return uri
