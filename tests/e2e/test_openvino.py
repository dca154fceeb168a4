"""The OpenVINO loader with SavedModels that TensorFlow wrote: it gives all that a model has, or leaves it alone."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from trainshed.testing.cache import runtime_python
from trainshed.testing.workloads.saved_models import saved_models

ROOT = Path(__file__).resolve().parents[2]

LOADER = """
import json, sys
from pathlib import Path
from trainshed_serving.errors import LoaderError
from trainshed_serving.loaders import load
from trainshed_serving.codec.predictors import predict, predictor
from trainshed_serving.spec import ServingSpec

def answers(folder, bodies):
    try:
        model = load(ServingSpec(model_dir=folder, loader="openvino", threads=1))
    except LoaderError as exc:
        return str(exc)
    asked = predictor(model)
    given = [predict(asked, json.dumps(body).encode()) for body in bodies]
    return [[status, json.loads(answer)] for status, answer in given]

asked = json.loads(sys.argv[2])
print(json.dumps({name: answers(Path(sys.argv[1]) / name, bodies) for name, bodies in asked.items()}))
"""

ROW = [1.0, 0.0, 2.0, 0.5]
SCORES = [16.5, 20.0, 23.5]


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    python = runtime_python("2.21")
    models, code = saved_models() / "openvino", tmp_path_factory.mktemp("code")
    (code / "trainshed_serving").symlink_to(ROOT / "src" / "trainshed" / "serving")
    env = {**os.environ, "PYTHONPATH": str(code), "TF_CPP_MIN_LOG_LEVEL": "3"}
    asked = {
        "names": [
            {"instances": [ROW], "signature_name": name} for name in ("serving_default", "prediction", "part", "no")
        ],
        "types": [{"instances": [{"p": [0.1, 2.0], "q": 2}, {"p": [3.0, 4.0], "q": -3}]}],
        "one": [{"instances": [ROW], "signature_name": name} for name in ("serve", "serving_default")],
        "two": [],
        "like": [],
        "words": [],
        "strange": [],
    }
    done = subprocess.run([python, "-c", LOADER, models, json.dumps(asked)], env=env, check=True, capture_output=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_signatures_of_the_same_tensors_are_all_served_under_their_own_names(answers: dict[str, Any]) -> None:
    whole = {"predictions": [{"again": SCORES, "best": 2, "scores": SCORES}]}
    assert answers["names"][:3] == [[200, whole], [200, whole], [200, {"predictions": [{"winner": 2}]}]]
    assert answers["names"][3][0] == 400


def test_one_function_under_two_names_is_served_as_keras_exports_it(answers: dict[str, Any]) -> None:
    assert answers["one"] == [[200, {"predictions": [{"best": 2, "scores": SCORES}]}]] * 2


def test_outputs_have_the_types_of_the_signature(answers: dict[str, Any]) -> None:
    [[status, answer]] = answers["types"]
    assert status == 200
    assert answer["predictions"] == [
        {"double": [pytest.approx(0.1), 2.0], "small": 2, "truth": True, "wide": 2},
        {"double": [3.0, 4.0], "small": -3, "truth": False, "wide": -3},
    ]
    assert type(answer["predictions"][0]["truth"]) is bool


@pytest.mark.parametrize(
    "name, reason",
    [
        ("two", "OpenVINO reads one signature of a SavedModel, and signature sum is not made of the tensors of it"),
        ("like", "signature serve is not made of the tensors of it"),
        ("words", 'OpenVINO does not do strings, which input "s" of signature serving_default has'),
        ("strange", "No conversion rule found for operations: Betainc"),
    ],
)
def test_what_it_can_not_give_whole_it_leaves_to_tensorflow(answers: dict[str, Any], name: str, reason: str) -> None:
    assert reason in answers[name]
    assert answers[name].startswith("Failed to load model: ")
    assert answers[name].endswith("(Error code: 0)")
