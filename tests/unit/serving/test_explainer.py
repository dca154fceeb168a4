"""Explanations of whole requests: what they say, and what cannot be explained."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import orjson
import pytest

from trainshed.serving.errors import InvalidInputsError, LoaderError
from trainshed.serving.explain.explainer import explainer
from trainshed.serving.explain.metadata import FILE, parse
from trainshed.testing.fakes.models import Scorer, Shouter, Weighing

GRADIENTS = {"integratedGradientsAttribution": {"numIntegralSteps": 7}}
SHAPLEY = {"sampledShapleyAttribution": {"numPaths": 4}}


def asked(*instances: Any, **more: Any) -> bytes:
    return orjson.dumps({"instances": list(instances), **more})


def note(folder: Path, **content: Any) -> None:
    (folder / FILE).write_text(json.dumps(content))


@pytest.mark.parametrize("config", [GRADIENTS, SHAPLEY], ids=["gradients", "shapley"])
def test_a_linear_model_is_explained_exactly(tmp_path: Path, config: dict[str, Any]) -> None:
    answer = explainer(config, Scorer(off=0.25), tmp_path).explain(asked([1, 2, 0], {"x": [0, 0, 1]}))
    first, second = (explanation["attributions_by_label"][0] for explanation in answer["explanations"])
    assert first["label_index"] == 0
    assert first["output_name"] == "scores"
    assert first["example_score"] == pytest.approx(5.25)
    assert first["baseline_score"] == pytest.approx(0.25)
    assert first["attributions"]["x"] == pytest.approx([1, 4, 0], abs=1e-6)
    assert second["label_index"] == 1
    assert second["attributions"]["x"] == pytest.approx([0, 0, 4], abs=1e-6)
    assert 0 <= first["approx_error"] < 1e-6
    assert orjson.loads(orjson.dumps(answer)) == answer


def test_baselines_and_names_come_from_the_file(tmp_path: Path) -> None:
    note(
        tmp_path,
        framework="tensorflow",
        inputs={"pixels": {"input_tensor_name": "x:0", "input_baselines": [[1, 1, 1], 0]}},
        outputs={"score": {"output_tensor_name": "scores:0"}},
    )
    answer = explainer(GRADIENTS, Scorer(), tmp_path).explain(asked([1, 2, 0]))
    [told] = answer["explanations"][0]["attributions_by_label"]
    assert told["output_name"] == "score"
    assert told["baseline_score"] == pytest.approx((0 + 0) / 2)  # of ones and of zeros: 1 + 2 - 3, and 0
    assert told["attributions"]["pixels"] == pytest.approx([0.5, 3, 1.5])


def test_features_of_a_bag_have_their_own_names(tmp_path: Path) -> None:
    features = {"encoding": "bag_of_features", "index_feature_mapping": ["a", "b", "c"]}
    note(tmp_path, inputs={"row": features}, outputs={"sum": {}}, framework="sklearn")
    answer = explainer(SHAPLEY, Weighing(), tmp_path).explain(asked([1, 1, 4]))
    [told] = answer["explanations"][0]["attributions_by_label"]
    assert told["attributions"] == {"a": [2.0], "b": [-1.0], "c": [2.0]}
    assert told["label_index"] == 0


def test_rows_without_names_are_inputs(tmp_path: Path) -> None:
    answer = explainer(SHAPLEY, Weighing(), tmp_path).explain(asked([1, 1, 4]))
    assert answer["explanations"][0]["attributions_by_label"][0]["attributions"] == {"inputs": [2.0, -1.0, 2.0]}


def test_no_instances_have_no_explanations(tmp_path: Path) -> None:
    assert explainer(GRADIENTS, Scorer(), tmp_path).explain(asked()) == {"explanations": []}


@pytest.mark.parametrize(
    ("config", "model", "words"),
    [
        (GRADIENTS, Weighing(), "needs a model that TensorFlow runs"),
        (GRADIENTS, Shouter(), "which output"),
        ({"xraiAttribution": {}}, Scorer(), "not xraiAttribution"),
        (GRADIENTS | SHAPLEY, Scorer(), "names one of"),
        (
            {"sampledShapleyAttribution": {"numPaths": 0}},
            Scorer(),
            "numPaths of the explanationConfig must be at least 1",
        ),
        ({"sampledShapleyAttribution": {"numPaths": "many"}}, Scorer(), "must be a number"),
    ],
)
def test_what_cannot_be_explained_is_refused(tmp_path: Path, config: dict[str, Any], model: Any, words: str) -> None:
    with pytest.raises(LoaderError, match=words):
        explainer(config, model, tmp_path)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ([], "must be an object"),
        ({"inputs": {"x": {"input_tensor_nam": "x"}}}, "field 'input_tensor_nam'"),
        ({"framework": "caffe"}, "'caffe' is not known"),
        ({"outputs": {"a": {}, "b": {}}}, "it names 2"),
        ({"inputs": {"x": {"encoding": "combined_embedding"}}}, "'combined_embedding'"),
        ({"inputs": {"x": {"encoding": "bag_of_features"}}}, "index_feature_mapping"),
        ({"inputs": {"x": {"input_baselines": 0}}}, "must be lists"),
    ],
)
def test_a_wrong_file_says_which_field(content: Any, words: str) -> None:
    with pytest.raises(LoaderError, match=words):
        parse(content)


def test_names_that_the_signature_lacks_are_refused(tmp_path: Path) -> None:
    note(tmp_path, inputs={"y": {"input_tensor_name": "y:0"}}, outputs={"scores": {}})
    with pytest.raises(LoaderError, match="y is none of the signature's: x"):
        explainer(GRADIENTS, Scorer(), tmp_path)


def test_a_baseline_that_does_not_fit_is_the_request_s_end(tmp_path: Path) -> None:
    note(tmp_path, inputs={"x": {"input_baselines": [[1, 2]]}}, outputs={"scores": {}})
    with pytest.raises(InvalidInputsError, match="baseline of x"):
        explainer(GRADIENTS, Scorer(), tmp_path).explain(asked([1, 2, 3]))
