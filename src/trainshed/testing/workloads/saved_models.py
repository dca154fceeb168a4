"""Small models that TensorFlow, scikit-learn and XGBoost write, made once for a checkout and shared by all tests."""

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

#: Writes what OpenVINO can give whole, `names` and `types`, and what it can not, into the folder `openvino`.
_OPENVINO = """
weights = np.arange(12, dtype="f4").reshape(4, 3)
fours = tf.TensorSpec([None, 4], tf.float32, name="x")

class Model(tf.Module):
    def __init__(self):
        self.weights = tf.Variable(weights)

    @tf.function(input_signature=[fours])
    def score(self, x):
        return {"scores": x @ self.weights, "best": tf.argmax(x @ self.weights, 1)}

    @tf.function(input_signature=[fours])
    def twice(self, x):
        return {"scores": 2 * x @ self.weights, "best": tf.argmax(x @ self.weights, 1)}

    @tf.function(input_signature=[fours])
    def add(self, x):
        return {"sum": tf.reduce_sum(x, 1)}

    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.float32), tf.TensorSpec([None], tf.int32)])
    def types(self, p, q):
        small, wide = tf.cast(q, tf.int8), tf.cast(q, tf.int64)
        return {"double": tf.cast(p, tf.float64), "truth": q > 1, "small": small, "wide": wide}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="s")])
    def words(self, s):
        return {"length": tf.strings.length(s)}

    @tf.function(input_signature=[fours])
    def strange(self, x):
        return {"y": tf.raw_ops.Betainc(a=x, b=x, x=x)}

model, folder = Model(), root / "openvino"
two = {"serving_default": model.score, "sum": model.add}
one = {"serve": model.score, "serving_default": model.score}
like = {"serve": model.twice, "serving_default": model.score}
several = {"two": two, "one": one, "like": like}
for name, signatures in {**several, "types": model.types, "words": model.words, "strange": model.strange}.items():
    tf.saved_model.save(model, str(folder / name), signatures=signatures)
with tf.Graph().as_default(), v1.Session() as session:
    x = v1.placeholder(tf.float32, [None, 4], name="x")
    y = x @ v1.get_variable("w", initializer=weights)
    best = tf.argmax(y, 1)
    whole = {"scores": y, "again": y, "best": best}
    session.run(v1.global_variables_initializer())
    builder = v1.saved_model.Builder(str(folder / "names"))
    builder.add_meta_graph_and_variables(session, ["serve"], signature_def_map={
        "serving_default": predict_signature({"inputs": x}, whole),
        "prediction": predict_signature({"inputs": x}, whole),
        "part": predict_signature({"image": x}, {"winner": best}),
    })
    builder.save()
"""

#: Writes the folders that `saved_models` tells of.
_PROGRAM = f"""{DENSE}
import gzip, itertools, pathlib, sys
import joblib, xgboost
import numpy as np
from sklearn.linear_model import LinearRegression, LogisticRegression

root, mnist = map(pathlib.Path, sys.argv[1:])
v1, predict_signature = tf.compat.v1, tf.compat.v1.saved_model.predict_signature_def
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

class Times(tf.Module):
    def __init__(self, factor):
        self.factor = tf.Variable(factor)

    @tf.function(input_signature=[tf.TensorSpec([None, 1], tf.float32, name="x")])
    def line(self, x):
        return {{"y": tf.reduce_sum(x * self.factor, 1)}}

def read(name, skip, width, count=6000):
    with gzip.open(mnist / f"train-{{name}}-ubyte.gz") as file:
        return np.frombuffer(file.read(skip + count * width)[skip:], np.uint8).reshape(count, width)

def save(name, module, signature):
    tf.saved_model.save(module, str(root / name), signatures={{"serving_default": signature}})

def save_digits(known):
    with tf.Graph().as_default(), v1.Session() as session:
        inputs = v1.placeholder(tf.float32, [None, 784], name="inputs")
        weights = v1.get_variable("weights", initializer=known.coef_.T.astype("float32"))
        scores = inputs @ weights + known.intercept_.astype("float32")
        outputs = {{"classes": tf.argmax(scores, 1), "probabilities": tf.nn.softmax(scores)}}
        signature = predict_signature({{"inputs": inputs}}, outputs)
        session.run(v1.global_variables_initializer())
        builder = v1.saved_model.Builder(str(root / "digits"))
        signatures = {{"serving_default": signature, "prediction": signature}}
        builder.add_meta_graph_and_variables(session, ["serve"], signatures)
        builder.save()

def save_cnn(images, labels):
    tf.keras.utils.set_random_seed(0)
    network = tf.keras.Sequential([
        tf.keras.Input((28, 28, 1)),
        tf.keras.layers.Conv2D(8, 3, strides=2, activation="relu"),
        tf.keras.layers.Conv2D(16, 3, strides=2, activation="relu"),
        tf.keras.layers.Flatten(),
        tf.keras.layers.Dense(10, activation="softmax"),
    ])
    network.compile("adam", "sparse_categorical_crossentropy")
    network.fit(images.reshape(-1, 28, 28, 1), labels, batch_size=64, verbose=0)
    tf.saved_model.save(network, str(root / "cnn"))

known = LogisticRegression(max_iter=60, C=0.1).fit(read("images-idx3", 16, 784) / 255, read("labels-idx1", 8, 1)[:, 0])
dense, words = Dense(), Words()
plain, best = Scores(dense.weights.numpy()), Scores(tf.random.Generator.from_seed(7).normal([3, 5]))
save("dense", dense, dense.score)
save("plain", plain, plain.plain)
save("scores", best, best.best)
save("words", words, words.shout)
for factor in (1, 2):
    times = Times(float(factor))
    save(f"times{{factor}}", times, times.line)
save_digits(known)
save_cnn(read("images-idx3", 16, 784) / 255, read("labels-idx1", 8, 1)[:, 0])
table = np.random.RandomState(0).rand(60, 3)
(root / "linear").mkdir()
joblib.dump(LinearRegression().fit(table, table @ [1.0, 2.0, -3.0]), root / "linear" / "model.joblib")
corners = np.array(list(itertools.product((0.0, 1.0), repeat=3)))
matrix = xgboost.DMatrix(corners, label=corners @ [1.0, 2.0, -3.0])
(root / "boosted").mkdir()
(root / "boosted" / "model.bst").write_bytes(
    xgboost.train({{"max_depth": 3, "eta": 1.0}}, matrix, num_boost_round=20).save_raw("ubj")
)
{_OPENVINO}"""


def saved_models() -> Path:
    """Return the folder of the models, each in a folder of its own. Only for reading.

    SavedModels that OpenVINO can serve: `dense`, which has the weights of `Scorer`, and `plain` too, without classes;
    `scores`; `times1` and `times2`, y = x and y = 2x; `digits`, which is linear, with the signatures of the MNIST
    samples; `cnn`, an ordinary Keras network with convolutions. One that it can not serve: `words`. Of scikit-learn and
    XGBoost: `linear` and `boosted`, a + 2b - 3c.
    `openvino` is a folder of more, for the loader of that name.
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
