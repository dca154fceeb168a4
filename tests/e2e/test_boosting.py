"""Models of LightGBM and CatBoost, beside the answers of the frameworks themselves."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from trainshed.testing.cache import runtime_python
from trainshed.testing.processes.servers import RunningServer
from trainshed.testing.workloads.deployer import Deployer

ROOT = Path(__file__).resolve().parents[2]

#: Trains small models into folders, and asks the frameworks.
MAKER = """
import json, sys
from pathlib import Path
import catboost, joblib, lightgbm, numpy as np, pandas

root, asked = Path(sys.argv[1]), json.loads(sys.argv[2])
rows = np.random.RandomState(0).rand(60, 3)
values, words = rows @ [1.0, 2.0, -3.0], np.where(rows[:, 0] > 0.6, "high", np.where(rows[:, 0] > 0.3, "mid", "low"))
kinds, counts = np.where(rows[:, 1] > 0.5, "x", "y"), (4 * rows[:, 2]).astype(int)
frame = pandas.DataFrame({"a": rows[:, 0], "b": kinds, "c": counts})
quiet = {"verbose": False, "allow_writing_files": False, "iterations": 8, "depth": 3}

def folder(name):
    (root / name).mkdir()
    return root / name

booster = lightgbm.train({"verbose": -1, "min_data_in_leaf": 2}, lightgbm.Dataset(rows, values), 8)
booster.save_model(folder("booster") / "model.lgb")
booster.save_model(folder("booster_text") / "model.txt")
named = lightgbm.train({"verbose": -1}, lightgbm.Dataset(rows, values, feature_name=["a", "b", "c"]), 3)
named.save_model(folder("named") / "model.lgb")
chooser = lightgbm.LGBMClassifier(n_estimators=4, verbose=-1).fit(rows, words)
joblib.dump(chooser, folder("chooser") / "model.joblib")
joblib.dump(lightgbm.LGBMRegressor(), folder("unfitted") / "model.joblib")
whole = (root / "booster" / "model.lgb").read_bytes()
for name, content in {"cut": whole[: len(whole) // 2], "head": whole[:100], "bytes": b"\\xff\\xfe"}.items():
    (folder(f"booster_{name}") / "model.lgb").write_bytes(content)

regressor = catboost.CatBoostRegressor(**quiet).fit(rows, values)
regressor.save_model(folder("regressor") / "model.cbm")
joblib.dump(regressor, folder("regressor_pickled") / "model.joblib")
pair = catboost.CatBoostClassifier(**quiet).fit(rows, values > 0)
pair.save_model(folder("pair") / "model.cbm")
classes = catboost.CatBoostClassifier(**quiet, cat_features=["b", "c"]).fit(frame, words)
classes.save_model(folder("classes") / "model.cbm")
joblib.dump(catboost.CatBoostRegressor(), folder("regressor_unfitted") / "model.joblib")
whole = (root / "pair" / "model.cbm").read_bytes()
for name, content in {"cut": whole[:-10], "empty": b"", "text": b"hello"}.items():
    (folder(f"pair_{name}") / "model.cbm").write_bytes(content)
joblib.dump({"a": 1}, folder("dict") / "model.joblib")

table = np.array(asked["rows"])
mixed = pandas.DataFrame(asked["mixed"], columns=["a", "b", "c"])
own = {
    "booster": booster.predict(table), "named": named.predict(table), "chooser": chooser.predict(table),
    "regressor": regressor.predict(table), "pair": pair.predict(table), "classes": classes.predict(mixed)[:, 0],
}
"""

DRIVER = """
from trainshed.serving.codec.predictors import predict, predictor
from trainshed.serving.errors import LoaderError
from trainshed.serving.host.sample_request import find_sample
from trainshed.serving.loaders import load
from trainshed.serving.spec import ServingSpec

def answers(name, loader, bodies):
    try:
        model = load(ServingSpec(model_dir=root / name, loader=loader, threads=1))
    except LoaderError as exc:
        return str(exc)
    given = [predict(predictor(model), json.dumps({"instances": body}).encode()) for body in bodies]
    sample = find_sample(root / name, model)
    return {
        "detail": model.detail, "sample": sample and sample.body,
        "scores": model.scores(model.rows(bodies[0])).tolist(),
        "answers": [[status, json.loads(answer)] for status, answer in given],
    }

found = {name: answers(*task) for name, task in asked["tasks"].items()}
Path(sys.argv[3]).write_text(json.dumps({"own": {name: each.tolist() for name, each in own.items()}, "found": found}))
"""

ROWS: list[list[Any]] = [[0.9, 0.1, 0.4], [0.1, 0.2, 0.3], [0.4, 0.9, 0.0], [None, 0.5, 0.5]]
NUMBERS = [[float("nan") if value is None else value for value in row] for row in ROWS]
MIXED = [[0.9, "x", 2], [0.1, "y", 0], [0.5, "x", 3]]
TASKS: dict[str, tuple[str, str, list[Any]]] = {
    "booster": ("booster", "", [ROWS, [["a", 1, 2]], [[1, 2]]]),
    "booster text": ("booster_text", "lightgbm", [ROWS]),
    "named": ("named", "", [ROWS, [{"c": 0.4, "b": 0.1, "a": 0.9}], [{"d": 1}]]),
    "chooser": ("chooser", "", [ROWS]),
    "regressor": ("regressor", "", [ROWS, [["a", 1, 2]]]),
    "regressor pickled": ("regressor_pickled", "", [ROWS]),
    "pair": ("pair", "catboost", [ROWS]),
    "classes": ("classes", "", [MIXED, [{"a": 0.9, "b": "x", "c": 2}]]),
    "nothing lightgbm": ("pair", "lightgbm", []),
    "nothing catboost": ("booster", "catboost", []),
    "dict lightgbm": ("dict", "lightgbm", []),
    "dict catboost": ("dict", "catboost", []),
    "unfitted": ("unfitted", "", []),
    "regressor unfitted": ("regressor_unfitted", "", []),
    **{name: (name, "", []) for name in ("booster_cut", "booster_head", "booster_bytes")},
    **{name: (name, "", []) for name in ("pair_cut", "pair_empty", "pair_text")},
}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="module")
def done(models: Path) -> dict[str, Any]:
    """What the frameworks say, `own`, and what the loaders say, `found`."""
    asked = {"rows": NUMBERS, "mixed": MIXED, "tasks": TASKS}
    out = models / "done.json"
    command: list[str | Path] = [runtime_python("2.21"), "-c", MAKER + DRIVER, models, json.dumps(asked), out]
    env = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    ended = subprocess.run(command, env=env, cwd=models, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr[-4000:]
    result: dict[str, Any] = json.loads(out.read_text())
    return result


@pytest.mark.parametrize(
    ("task", "framework", "detail"),
    [
        ("booster", "booster", "LightGBM"),
        ("booster text", "booster", "LightGBM"),
        ("named", "named", "LightGBM"),
        ("chooser", "chooser", "LightGBM"),
        ("regressor", "regressor", "CatBoost"),
        ("regressor pickled", "regressor", "CatBoost"),
        ("pair", "pair", "CatBoost"),
        ("classes", "classes", "CatBoost"),
    ],
)
def test_answers_are_the_framework_s(done: dict[str, Any], task: str, framework: str, detail: str) -> None:
    found = done["found"][task]
    assert "answers" in found, found
    assert found["detail"].startswith(f"{detail} ")
    status, answer = found["answers"][0]
    assert (status, answer["predictions"]) == (200, done["own"][framework])
    assert found["sample"] or task == "classes"  # nobody can guess its words


def test_names_and_categories(done: dict[str, Any]) -> None:
    by_name, unknown = done["found"]["named"]["answers"][1:]
    assert by_name[1]["predictions"] == done["own"]["named"][:1]
    assert (unknown[0], "Unexpected feature name: d." in unknown[1]["error"]["message"]) == (400, True)
    assert done["found"]["classes"]["answers"][1][1]["predictions"] == done["own"]["classes"][:1]
    assert [len(row) for row in done["found"]["classes"]["scores"]] == [3, 3, 3]


def test_rows_that_do_not_fit_are_the_caller_s_fault(done: dict[str, Any]) -> None:
    text, short = done["found"]["booster"]["answers"][1:]
    assert (text[0], "LightGBM takes numbers" in text[1]["error"]["message"]) == (400, True)
    assert (short[0], "Instance 0 has 2 values; expected 3." in short[1]["error"]["message"]) == (400, True)
    status, answer = done["found"]["regressor"]["answers"][1]
    assert (status, "Exception during catboost prediction: " in answer["error"]["message"]) == (400, True)


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ("nothing lightgbm", "Could not find model.joblib, model.pkl, model.lgb, or model.txt in "),
        ("nothing catboost", "Could not find model.joblib, model.pkl, or model.cbm in "),
        ("dict lightgbm", "The file holds a dict, which is no model of LightGBM."),
        ("dict catboost", "The file holds a dict, which is no model of CatBoost."),
        ("unfitted", "The LGBMRegressor is not fitted."),
        ("regressor unfitted", "The CatBoostRegressor is not fitted."),
        ("booster_cut", "It is cut short, or no file of LightGBM."),
        ("booster_head", "It is cut short, or no file of LightGBM."),
        ("booster_bytes", "can't decode byte"),
        ("pair_cut", "It is damaged, or no file of CatBoost: "),
        ("pair_empty", "It is damaged, or no file of CatBoost: "),
        ("pair_text", "It is damaged, or no file of CatBoost: "),
    ],
)
def test_what_does_not_load_says_why(done: dict[str, Any], task: str, message: str) -> None:
    found = done["found"][task]
    assert found.startswith("Failed to load model: ")
    assert message in found


def test_a_version_with_categories(
    framework_server: RunningServer, done: dict[str, Any], models: Path, tmp_path: Path
) -> None:
    deployer = Deployer(framework_server, "e2e-boosting", tmp_path)
    details = deployer.deploy("v1", deployer.upload_folder(models / "classes", "classes"), framework="CATBOOST")
    assert (details["loader"], details["version"]["framework"]) == ("catboost", "CATBOOST")
    assert deployer.predict("v1", *MIXED) == done["own"]["classes"]
