"""What serves a folder of MLflow, by what its file says."""

from __future__ import annotations

from typing import Any

import pytest

from trainshed.domain.models.mlflow_models import MlflowModel, check_runtime, mlflow_model, own_requirements
from trainshed.errors import FailedPreconditionError

PYFUNC: dict[str, Any] = {"loader_module": "mlflow.sklearn", "predict_fn": "predict"}
PICKLED = {"pickled_model": "model.pkl", "serialization_format": "cloudpickle", "code": None}
KERAS = {"model_type": "keras", "data": "data", "code": None}
MLFLOW = ("mlflow",)


def served(flavors: dict[str, Any], *names: str) -> MlflowModel:
    return mlflow_model({"flavors": flavors, "mlflow_version": "3.17.2"}, names, where="gs://b/m")


@pytest.mark.parametrize(
    ("flavors", "names", "expected"),
    [
        ({"sklearn": PICKLED}, ("model.pkl",), (("sklearn",), "")),
        ({"sklearn": PICKLED}, ("other.pkl",), (MLFLOW, "")),
        ({"sklearn": {**PICKLED, "serialization_format": "skops"}}, ("model.pkl",), (MLFLOW, "")),
        ({"sklearn": {**PICKLED, "code": "code"}}, ("model.pkl", "code/a.py"), (MLFLOW, "")),
        (
            {"sklearn": PICKLED, "python_function": {**PYFUNC, "predict_fn": "predict_proba"}},
            ("model.pkl",),
            (MLFLOW, ""),
        ),
        ({"tensorflow": KERAS}, ("data/model.keras",), (("keras",), "data")),
        ({"tensorflow": KERAS}, ("data/model/saved_model.pb",), (("openvino", "tensorflow"), "data/model")),
        ({"tensorflow": {"model_type": "tf2-module"}}, ("tf2model/saved_model.pb",), (MLFLOW, "")),
        ({"pytorch": {"model_data": "data"}}, ("data/model.pt2",), (("pytorch",), "data")),
        ({"pytorch": {"model_data": "data"}}, ("data/model.pth",), (MLFLOW, "")),
        ({"onnx": {"data": "model.onnx"}}, ("model.onnx",), (("openvino_onnx", "onnxruntime"), "")),
        ({"lightgbm": {"data": "model.lgb"}}, ("model.lgb",), (("lightgbm",), "")),
        ({"prophet": {}}, (), (MLFLOW, "")),
    ],
)
def test_what_serves_a_flavor(flavors: dict[str, Any], names: tuple[str, ...], expected: tuple[Any, str]) -> None:
    model = served({"python_function": PYFUNC, **flavors}, *names)
    assert (model.loaders, model.subfolder) == expected
    assert model.needs_mlflow is (expected[0] == MLFLOW)


@pytest.mark.parametrize("document", [None, [], "text", {}, {"flavors": None}, {"flavors": {}}, {"flavors": "sklearn"}])
def test_what_is_no_file_of_mlflow(document: object) -> None:
    with pytest.raises(FailedPreconditionError, match="gs://b/m/MLmodel is no file of MLflow"):
        mlflow_model(document, (), where="gs://b/m")


def test_a_flavor_that_nothing_serves() -> None:
    with pytest.raises(FailedPreconditionError, match="it has the flavours spark, and not python_function"):
        served({"spark": {}})


def test_requirements_are_those_that_the_runtime_lacks() -> None:
    lines = ["mlflow==3.17.2", "# a comment", "", " Scikit_Learn==1.5.0", "skops >=0.16  # why", "a.b[extra]~=2"]
    model = served({"python_function": PYFUNC})
    assert own_requirements(lines, model, {"scikit-learn"}) == ("mlflow-skinny==3.17.2", "skops>=0.16", "a.b[extra]~=2")
    assert own_requirements([], MlflowModel(loaders=MLFLOW), ()) == ("mlflow-skinny",)
    assert own_requirements([], MlflowModel(loaders=MLFLOW, version="3.0 --x"), ()) == ("mlflow-skinny",)
    for line in ("-c constraints.txt", "--index-url x", "./local.whl"):
        with pytest.raises(FailedPreconditionError, match="is no requirement such as"):
            own_requirements([line], model, ())


def test_a_framework_comes_with_the_runtime() -> None:
    model = served({"python_function": PYFUNC, "pytorch": {}})
    check_runtime(model, "torch", {"torch"}, where="gs://b/m")
    with pytest.raises(FailedPreconditionError, match="with --runtime-version torch"):
        check_runtime(model, "2.21", {"tensorflow"}, where="gs://b/m")
