"""Loaders with the real frameworks: small models are made and asked in the Python of a runtime, all in one process."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from trainshed.testing.cache import runtime_python
from trainshed.testing.fakes.models import DENSE

ROOT = Path(__file__).resolve().parents[2]

#: Small models in folders of their own, with weights that can be computed with by hand.
MAKER = """
import pickle, sys, warnings
from pathlib import Path
import joblib, keras, numpy as np, pandas, xgboost
from sklearn.ensemble import RandomForestClassifier
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline

root = Path(sys.argv[1])

def folder(name):
    (root / name).mkdir()
    return root / name

class More(Dense):
    @tf.function(input_signature=[tf.TensorSpec([None, 3], tf.float32, name="x")])
    def double(self, x):
        return {"scores": 2 * (x @ self.weights)}

    @tf.function(input_signature=[tf.TensorSpec([None, 3], tf.float32, name="x")])
    def curve(self, x):
        return {"probabilities": tf.nn.softmax(tf.tanh(x) @ self.weights)}

class Words(tf.Module):
    @tf.function(input_signature=[tf.TensorSpec([None], tf.string), tf.TensorSpec([None], tf.int64)])
    def shout(self, text, n):
        return {"loud": tf.strings.upper(text), "same_bytes": text, "next": n + 1}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="examples")])
    def parse(self, examples):
        return tf.io.parse_example(examples, {"a": tf.io.FixedLenFeature([], tf.float32)})

dense, words = More(), Words()
for name in ("dense", "ops", "warm"):
    tf.saved_model.save(dense, str(folder(name)), signatures={"serving_default": dense.score, "double": dense.double})
tf.saved_model.save(dense, str(folder("one")), signatures=dense.score)
tf.saved_model.save(dense, str(folder("curve")), signatures=dense.curve)
tf.saved_model.save(words, str(folder("words")), signatures={"serving_default": words.shout, "parse": words.parse})

for name, content in (("words", '{"instances": [{"text": "hello", "n": 1}, {"text": {"b64": "/w=="}, "n": 2}]}'),):
    extra = root / name / "assets.extra"
    extra.mkdir()
    (extra / "sample_request.json").write_text(content)

def piece(field, data):  # of a protocol buffer whose class only TensorFlow Serving has
    return bytes([field << 3 | 2, len(data)]) + data

tensor = tf.make_tensor_proto(np.array([[1, 2, 0], [0, 0, 1]], np.float32)).SerializeToString()
request = piece(1, piece(3, b"double")) + piece(2, piece(1, b"x") + piece(2, tensor))
extra = root / "warm" / "assets.extra"
extra.mkdir()
with tf.io.TFRecordWriter(str(extra / "tf_serving_warmup_requests")) as writer:
    writer.write(piece(6, piece(1, request)))
(root / "ops" / "assets.extra").mkdir()
(root / "ops" / "assets.extra" / "mine.so").write_bytes(b"no library")
folder("broken")
(root / "broken" / "saved_model.pb").write_bytes(b"no graph")

v1 = tf.compat.v1
with tf.Graph().as_default(), v1.Session() as session:
    x = v1.placeholder(tf.float32, [None, 2], name="in/x")
    table = v1.get_variable("w", initializer=[[1.0], [10.0]], use_resource=False)
    y = tf.identity(tf.squeeze(x @ table, 1), name="out/y")
    session.run(v1.global_variables_initializer())
    builder = v1.saved_model.Builder(str(root / "old"))
    signature = v1.saved_model.predict_signature_def({"rows": x}, {"sums": y})
    builder.add_meta_graph_and_variables(session, ["serve"], {"predict": signature})
    builder.add_meta_graph(["serve", "other"], {"predict": signature})
    builder.save()

def fixed(layer, *weights):
    layer.set_weights([np.array(w, np.float32) for w in weights])

line = keras.layers.Dense(1, name="line")
sequence = keras.Sequential([keras.Input((2,), name="pair"), line])
fixed(line, [[1], [10]], [0.5])
sequence.save(folder("keras_file") / "some.keras")
if keras.__version__ >= "3":
    keras.saving.save_model(sequence, root / "keras_folder", zipped=False)
else:  # which saves no such folders
    sequence.save(folder("keras_folder") / "old.h5")
a, b = keras.Input((2,), name="a"), keras.Input((1,), name="b")
many = keras.Model([a, b], [keras.layers.Dense(1, name="first")(a), keras.layers.Dense(2, name="second")(b)])
many.save(folder("keras_many") / "model.keras")

rows = np.random.RandomState(0).rand(60, 3)
joblib.dump(LinearRegression().fit(rows, rows @ [1.0, 2.0, -3.0] + 0.5), folder("linear") / "model.joblib")
labels = np.where(rows[:, 0] > 0.5, "big", "small")
forest = RandomForestClassifier(5, n_jobs=2, random_state=0).fit(rows, labels)
(folder("forest") / "model.pkl").write_bytes(pickle.dumps(forest))
(folder("both") / "model.pkl").write_bytes(b"not read")
joblib.dump(forest, root / "both" / "model.joblib")
frame = pandas.DataFrame(rows, columns=["a", "b", "c"])
joblib.dump(LogisticRegression().fit(frame, rows[:, 0] > 0.5), folder("frame") / "model.joblib")
texts = make_pipeline(CountVectorizer(), LogisticRegression()).fit(["good day", "bad day"], [1, 0])
joblib.dump(texts, folder("texts") / "model.joblib")
joblib.dump({"no": "model"}, folder("dict") / "model.joblib")
folder("nothing")
(folder("torn") / "model.joblib").write_bytes(b"\\x80torn")

matrix = xgboost.DMatrix(rows, label=rows[:, 0] > 0.5)
booster = xgboost.train({"objective": "binary:logistic", "max_depth": 2}, matrix, 5)
named = xgboost.train({"max_depth": 2}, xgboost.DMatrix(frame, label=rows[:, 0]), 5)
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    booster.save_model(folder("boosted") / "model.bst")
    named.save_model(folder("named") / "model.bst")
    booster.save_model(folder("misnamed") / "model.joblib")
    (folder("boosted_json") / "model.bst").write_bytes(booster.save_raw("json"))
joblib.dump(booster, folder("boosted_joblib") / "model.joblib")
classifier = xgboost.XGBClassifier(n_estimators=3).fit(rows, rows[:, 0] > 0.5)
joblib.dump(classifier, folder("boosted_estimator") / "model.joblib")
(folder("boosted_torn") / "model.bst").write_bytes(b"no booster")
"""

#: Reads a list of tasks, does each, and writes what came of it: the model's own words or the error's.
DRIVER = """
import json, sys
from pathlib import Path
import numpy as np
from trainshed.serving.host import parity, sample_request
from trainshed.serving.errors import ServingError
from trainshed.serving.explain.explainer import explainer
from trainshed.serving.loaders import load
from trainshed.serving.loaders.base import TensorModel
from trainshed.serving.codec.predictors import predict, predictor
from trainshed.serving.spec import ServingSpec

def do(task):
    spec = ServingSpec.from_json({"format": 1, **task["spec"]})
    try:
        model = load(spec)
        found = {"detail": model.detail, "kind": type(model).__name__}
        sample = sample_request.find_sample(spec.model_dir, model)
        found["sample"] = sample and {"body": sample.body, "source": sample.source}
        if isinstance(model, TensorModel):
            found["signatures"] = {name: s.as_json() for name, s in model.signatures.items()}
        asked = predictor(model)
        found["answers"] = [(status, json.loads(body)) for status, body in
                            (predict(asked, json.dumps(r).encode()) for r in task.get("requests", []))]
        if spec.explanation:
            told = explainer(spec.explanation, model, spec.model_dir)
            found["explained"] = told.explain(json.dumps({"instances": task["explain"]}).encode())
        if "keep" in task:
            found["kept"] = parity.write(model, parity.sample_inputs(model, spec.model_dir), Path(task["keep"]))
        if "compare" in task:
            found["parity"] = parity.compare(model, parity.read(Path(task["compare"]))).as_json()
        return found
    except ServingError as exc:
        return {"error": str(exc), "status": exc.status}

tasks = json.loads(Path(sys.argv[2]).read_text())
Path(sys.argv[3]).write_text(json.dumps({name: do(task) for name, task in tasks.items()}))
"""

GRADIENTS = {"integratedGradientsAttribution": {"numIntegralSteps": 50}}
SHAPLEY = {"sampledShapleyAttribution": {"numPaths": 5}}
ROW = [0.9, 0.1, 0.4]
ROWS = [ROW, [0.1, 0.2, 0.3], [0.6, 0.6, 0.6], [0.4, 0.9, 0.0]]


def asked(*instances: Any, **more: Any) -> dict[str, Any]:
    return {"instances": list(instances), **more}


def tasks(models: Path, scratch: Path) -> dict[str, Any]:
    def task(folder: str, loader: str, *requests: Any, explanation: Any = None, **more: Any) -> dict[str, Any]:
        spec = {"model_dir": str(models / folder), "loader": loader, "threads": 1, "explanation": explanation or {}}
        return {"spec": spec, "requests": list(requests), **more}

    kept = str(scratch / "kept.npz")
    one_by_one = [asked(*ROWS), *(asked(row) for row in ROWS)]
    return {
        "dense": task(
            "dense",
            "tensorflow",
            asked([1, 2, 0], {"x": [0, 0, 1]}),
            asked([1, 2, 0], signature_name="double"),
            asked([1, 2]),
            asked([1, 2, 0], signature_name="none"),
            keep=kept,
        ),
        "detected": task("dense", "", asked([1, 2, 0])),
        "dense by OpenVINO": task("one", "openvino", asked([1, 2, 0])),
        "one": task("one", "tensorflow", keep=str(scratch / "one.npz")),
        "one by OpenVINO": task("one", "openvino", compare=str(scratch / "one.npz")),
        "other by OpenVINO": task("curve", "openvino", compare=str(scratch / "one.npz")),
        "words": task(
            "words",
            "tensorflow",
            asked({"text": "hello", "n": 1}, {"text": {"b64": "w6k="}, "n": -2}),
            asked("torn", signature_name="parse"),
            keep=str(scratch / "words.npz"),
        ),
        "words again": task("words", "tensorflow", compare=str(scratch / "words.npz")),
        "ops": task("ops", "tensorflow"),
        "warm": task("warm", "tensorflow", asked([1, 2, 0], signature_name="double")),
        "broken": task("broken", "tensorflow"),
        "old": task("old", "tensorflow", asked([1, 2], {"rows": [3, 4]})),
        "keras file": task("keras_file", "", asked([1, 2], {"pair": [0, 0]})),
        "keras folder": task("keras_folder", "", asked([1, 2])),
        "keras many": task("keras_many", "", asked({"a": [1, 2], "b": [1]})),
        "gradients": task("dense", "tensorflow", explanation=GRADIENTS, explain=[[1, 2, 0]]),
        "curve gradients": task("curve", "tensorflow", explanation=GRADIENTS, explain=ROWS),
        "curve shapley": task("curve", "tensorflow", explanation=SHAPLEY, explain=ROWS[:2]),
        "gradients without TensorFlow": task("one", "openvino", explanation=GRADIENTS, explain=[ROW]),
        "linear": task("linear", "", asked([1, 1, 1]), asked([1, 1]), asked(7), asked(["a", "b", "c"]), *one_by_one),
        "linear explained": task("linear", "sklearn", explanation=SHAPLEY, explain=[[1, 1, 1]]),
        "forest": task("forest", "sklearn", *one_by_one),
        "forest explained": task("forest", "sklearn", explanation=SHAPLEY, explain=[ROW]),
        "both": task("both", "", asked(ROW)),
        "frame": task("frame", "sklearn", asked(ROW), asked({"c": 0.4, "b": 0.1, "a": 0.9}), asked({"a": 1})),
        "frame explained": task("frame", "sklearn", explanation=SHAPLEY, explain=[ROW]),
        "texts": task("texts", "sklearn", asked("good", "bad")),
        "dict": task("dict", "sklearn"),
        "nothing": task("nothing", "sklearn"),
        "nothing boosted": task("nothing", "xgboost"),
        "nothing at all": task("nothing", ""),
        "torn": task("torn", "sklearn"),
        "boosted": task("boosted", "", *one_by_one, asked([1, 1]), asked([1e39, 1, 1]), asked([None, 1, 1])),
        "boosted explained": task("boosted", "xgboost", explanation=SHAPLEY, explain=[ROW]),
        "boosted json": task("boosted_json", "xgboost", asked(*ROWS)),
        "boosted joblib": task("boosted_joblib", "", asked(*ROWS)),
        "misnamed": task("misnamed", "xgboost", asked(*ROWS)),
        "named": task("named", "xgboost", asked(ROW), asked({"c": 0.4, "b": 0.1, "a": 0.9})),
        "estimator": task("boosted_estimator", "", asked(ROW, [0.1, 0.5, 0.5])),
        "boosted torn": task("boosted_torn", "xgboost"),
    }


# The runtime 2.15 has the same frameworks in older versions.
@pytest.fixture(scope="module", params=["2.21", pytest.param("2.15", marks=pytest.mark.soak)])
def done(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """What came of every task, by its name."""
    python = runtime_python(request.param)
    scratch = tmp_path_factory.mktemp("loaders")
    models = scratch / "models"
    models.mkdir()
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src"), "TF_CPP_MIN_LOG_LEVEL": "3"}

    (scratch / "tasks.json").write_text(json.dumps(tasks(models, scratch)))
    command = [
        str(python),
        "-c",
        DENSE + MAKER + DRIVER,
        str(models),
        str(scratch / "tasks.json"),
        str(scratch / "done.json"),
    ]
    ended = subprocess.run(command, env=environment, cwd=scratch, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr[-4000:]
    yield json.loads((scratch / "done.json").read_text()) | {"runtime": request.param}


def answers(done: dict[str, Any], name: str) -> list[Any]:
    """The predictions of each answer, or the message of the error."""
    found = done[name]
    assert "error" not in found, found["error"]
    return [body["predictions"] if status == 200 else body["error"]["message"] for status, body in found["answers"]]


def explained(done: dict[str, Any], name: str) -> list[Any]:
    return [one["attributions_by_label"][0] for one in done[name]["explained"]["explanations"]]


def test_tensorflow_answers_by_signature(done: dict[str, Any]) -> None:
    default, double, short, unknown = answers(done, "dense")
    assert default == [{"classes": 0, "scores": [5.0, 0.0]}, {"classes": 1, "scores": [-3.0, 4.0]}]
    assert double == [{"scores": [10.0, 0.0]}]
    assert "takes values of shape [3], but instance 0 has shape [2]. (Error code: 1)" in short
    assert "No signature found for signature key none" in unknown
    assert done["dense"]["detail"].startswith(f"TensorFlow {done['runtime']}")
    assert done["dense"]["signatures"]["double"] == {
        "inputs": {"x": {"dtype": "float32", "shape": [-1, 3]}},
        "outputs": {"scores": {"dtype": "float32", "shape": [-1, 2]}},
    }


def test_files_tell_the_loader(done: dict[str, Any]) -> None:
    kinds = {
        "detected": "TensorFlowModel",
        "keras file": "TensorFlowModel",
        "linear": "SklearnModel",
        "boosted": "XgboostModel",
        "boosted joblib": "XgboostModel",
    }
    assert {name: done[name]["kind"] for name in kinds} == kinds


def test_strings_and_bytes_go_in_and_out(done: dict[str, Any]) -> None:
    good, torn = answers(done, "words")
    assert good == [
        {"loud": "HELLO", "next": 2, "same_bytes": {"b64": "aGVsbG8="}},
        {"loud": "é", "next": -1, "same_bytes": {"b64": "w6k="}},
    ]
    assert "Failed to run the provided model: Exception during running the graph: Could not parse example" in torn
    assert done["words"]["answers"][1][0] == 400  # the caller's example, and not the model, is wrong
    assert done["words"]["sample"]["source"] == "assets.extra/sample_request.json"


def test_a_graph_of_tensorflow_1_with_several_tags(done: dict[str, Any]) -> None:
    assert answers(done, "old") == [[{"sums": 21.0}, {"sums": 43.0}]]


def test_what_does_not_load_says_why(done: dict[str, Any]) -> None:
    assert done["broken"]["error"].startswith("Failed to load model: TensorFlow 2.")
    assert "custom ops of assets.extra/mine.so do not load" in done["ops"]["error"]
    assert "holds a dict, which has no predict method" in done["dict"]["error"]
    assert "Could not find either model.joblib or model.pkl in " in done["nothing"]["error"]
    assert "Could not find model.joblib, model.pkl, or model.bst in " in done["nothing boosted"]["error"]
    assert "no prediction class is given" in done["nothing at all"]["error"]
    assert "Could not load the model: " in done["torn"]["error"]
    assert "Could not load the model: " in done["boosted torn"]["error"]
    assert "Stack trace" not in done["boosted torn"]["error"]
    assert all(found["error"].endswith("(Error code: 0)") for found in done.values() if "error" in found)


def test_keras_models_keep_their_names(done: dict[str, Any]) -> None:
    assert answers(done, "keras file") == [[{"line": [21.5]}, {"line": [0.5]}]]
    [[many]] = answers(done, "keras many")
    assert {name: len(value) for name, value in many.items()} == {"first": 1, "second": 2}
    assert set(done["keras many"]["signatures"]["serving_default"]["inputs"]) == {"a", "b"}
    assert done["keras file"]["detail"].startswith("Keras ")
    assert answers(done, "keras folder") == [[{"line": [21.5]}]]


def test_openvino_is_held_against_tensorflow(done: dict[str, Any]) -> None:
    assert done["one"]["kept"] == 7
    assert done["one by OpenVINO"]["parity"]["within"]
    assert done["one by OpenVINO"]["parity"]["difference"] < 1e-5
    assert not done["other by OpenVINO"]["parity"]["within"]


def test_strings_are_held_against_each_other(done: dict[str, Any]) -> None:
    assert "signature parse" in done["words again"]["parity"]["message"]  # which no sample is there for
    assert not done["words again"]["parity"]["within"]


def test_samples_are_made_and_answered(done: dict[str, Any]) -> None:
    [instance] = done["dense"]["sample"]["body"]["instances"]
    assert [len(str(value)) <= 6 for value in instance["x"]] == [True] * 3
    assert len(done["linear"]["sample"]["body"]["instances"][0]) == 3
    assert len(done["boosted"]["sample"]["body"]["instances"][0]) == 3
    assert done["texts"]["sample"] is None


def test_a_warm_up_file_of_tensorflow_serving_is_the_sample(done: dict[str, Any]) -> None:
    assert done["warm"]["sample"] == {
        "body": {"signature_name": "double", "instances": [{"x": [1.0, 2.0, 0.0]}, {"x": [0.0, 0.0, 1.0]}]},
        "source": "assets.extra/tf_serving_warmup_requests",
    }


def test_gradients_of_a_linear_model_are_exact(done: dict[str, Any]) -> None:
    [told] = explained(done, "gradients")
    assert told["attributions"]["x"] == pytest.approx([1, 4, 0], abs=1e-5)
    assert (told["label_index"], told["example_score"], told["baseline_score"]) == (0, 5.0, 0.0)


@pytest.mark.parametrize("name", ["curve gradients", "curve shapley", "forest explained", "frame explained"])
def test_attributions_add_up_to_the_difference(done: dict[str, Any], name: str) -> None:
    for told in explained(done, name):
        total = sum(sum(values) for values in told["attributions"].values())
        difference = told["example_score"] - told["baseline_score"]
        assert abs(difference) > 0.1
        assert abs(total - difference) <= told["approx_error"] + 1e-12
        assert told["approx_error"] < 0.05


def test_gradients_need_tensorflow(done: dict[str, Any]) -> None:
    assert "needs a model that TensorFlow runs" in done["gradients without TensorFlow"]["error"]


def test_scikit_learn_answers_in_plain_values(done: dict[str, Any]) -> None:
    one, short, bare, words, *_ = answers(done, "linear")
    assert one == pytest.approx([0.5])
    assert "Instance 0 has 2 values; expected 3. (Error code: 1)" in short
    assert "Instance 0 is a bare value; expected a list of 3 values" in bare
    assert "Exception during sklearn prediction: could not convert string to float" in words
    assert answers(done, "forest")[0] == ["big", "small", "big", "small"]
    assert answers(done, "both") == [["big"]]  # joblib's file is preferred
    assert answers(done, "texts") == [[1, 0]]


@pytest.mark.parametrize("name", ["forest", "boosted"])
def test_rows_are_answered_alike_together_and_alone(done: dict[str, Any], name: str) -> None:
    together, *alone = answers(done, name)[:5]
    assert together == [row for [row] in alone]


def test_columns_may_be_given_by_name(done: dict[str, Any]) -> None:
    by_place, by_name, missing = answers(done, "frame")
    assert by_place == by_name == [True]
    assert "Input b was missing in at least one input instance" in missing
    by_place, by_name = answers(done, "named")
    assert by_place == by_name
    assert set(explained(done, "frame explained")[0]["attributions"]) == {"a", "b", "c"}


def test_tables_are_explained(done: dict[str, Any]) -> None:
    [linear] = explained(done, "linear explained")
    assert linear["attributions"]["inputs"] == pytest.approx([1, 2, -3])
    [boosted] = explained(done, "boosted explained")
    first, second, third = boosted["attributions"]["inputs"]
    assert first > 0.5
    assert abs(second) + abs(third) < 0.2


def test_xgboost_reads_all_its_files(done: dict[str, Any]) -> None:
    together, *_, short, large, missing = answers(done, "boosted")
    for name in ("boosted json", "boosted joblib", "misnamed"):
        assert answers(done, name) == [together]
    assert all(0 < value < 1 for value in together)
    assert "expected 3" in short
    assert "too large" in large
    assert len(missing) == 1
    assert answers(done, "estimator") == [[1, 0]]
