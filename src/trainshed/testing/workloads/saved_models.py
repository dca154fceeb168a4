"""Small models that TensorFlow and scikit-learn write, made once for a checkout and shared by all tests."""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
from pathlib import Path

from trainshed.runtimes.catalogue import CATALOGUE, DEFAULT_RUNTIME
from trainshed.testing.cache import CACHE, runtime_python
from trainshed.testing.fakes.models import DENSE
from trainshed.testing.workloads.digits import MNIST

_TIMEOUT_S = 600.0

#: Writes `dense` and `scores`, which OpenVINO can serve, `words`, which it can not, `linear` and `digits`.
_PROGRAM = f"""{DENSE}
import gzip, pathlib, sys
import joblib
import numpy as np
from sklearn.linear_model import LinearRegression, LogisticRegression

root, mnist = map(pathlib.Path, sys.argv[1:])
rows = tf.TensorSpec([None, 3], tf.float32, name="x")

class Scores(tf.Module):
    def __init__(self, weights):
        self.weights = tf.Variable(weights)

    @tf.function(input_signature=[rows])
    def plain(self, x):
        return {{"scores": x @ self.weights}}

    @tf.function(input_signature=[rows])
    def best(self, x):
        return {{"best": tf.argmax(x @ self.weights, 1), "scores": tf.nn.softmax(x @ self.weights)}}

class Words(tf.Module):
    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="text")])
    def shout(self, text):
        return {{"loud": tf.strings.regex_replace(tf.strings.upper(text), "A+", "A")}}

class Digits(tf.Module):
    def __init__(self, known):
        self.weights = tf.Variable(known.coef_.T.astype("float32"))
        self.bias = tf.Variable(known.intercept_.astype("float32"))

    @tf.function(input_signature=[tf.TensorSpec([None, 784], tf.float32, name="inputs")])
    def read(self, inputs):
        scores = inputs @ self.weights + self.bias
        return {{"classes": tf.argmax(scores, 1), "probabilities": tf.nn.softmax(scores)}}

def read(name, skip, width, count=6000):
    with gzip.open(mnist / f"train-{{name}}-ubyte.gz") as file:
        return np.frombuffer(file.read(skip + count * width)[skip:], np.uint8).reshape(count, width)

def save(name, module, signature):
    tf.saved_model.save(module, str(root / name), signatures={{"serving_default": signature}})

known = LogisticRegression(max_iter=60, C=0.1).fit(read("images-idx3", 16, 784) / 255, read("labels-idx1", 8, 1)[:, 0])
dense, words, digits = Dense(), Words(), Digits(known)
plain, best = Scores(dense.weights.numpy()), Scores(tf.random.Generator.from_seed(7).normal([3, 5]))
save("dense", dense, dense.score)
save("plain", plain, plain.plain)
save("scores", best, best.best)
save("words", words, words.shout)
save("digits", digits, digits.read)
table = np.random.RandomState(0).rand(60, 3)
(root / "linear").mkdir()
joblib.dump(LinearRegression().fit(table, table @ [1.0, 2.0, -3.0]), root / "linear" / "model.joblib")
"""


def saved_models() -> Path:
    """Return the folder of the models: `dense`, `plain`, `scores`, `words`, `digits`, `linear`. Only for reading.

    `dense` has the weights of `Scorer`, and `plain` too, without classes. `digits` is linear, with the inputs and
    outputs of the MNIST samples.
    """
    content = "\n".join((CATALOGUE[DEFAULT_RUNTIME].key, _PROGRAM))
    folder = CACHE / "models" / hashlib.sha256(content.encode()).hexdigest()[:12]
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open(folder.with_suffix(".lock"), "ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            unfinished = folder.with_suffix(".unfinished")
            shutil.rmtree(unfinished, ignore_errors=True)
            unfinished.mkdir()
            command: list[str | Path] = [runtime_python(DEFAULT_RUNTIME), "-c", _PROGRAM, unfinished, MNIST]
            subprocess.run(command, check=True, capture_output=True, timeout=_TIMEOUT_S)
            unfinished.rename(folder)
    return folder
