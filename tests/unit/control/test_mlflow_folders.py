"""Folders of MLflow as the server reads them, and the package of what they require."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from trainshed.control.deployments.mlflow_folders import read_mlflow_model, requirements_of
from trainshed.errors import FailedPreconditionError

WHERE = "gs://b/m"
PYFUNC = """
flavors:
  python_function:
    loader_module: mlflow.pyfunc.model
mlflow_version: 3.17.2
signature:
  inputs: '[{"type": "tensor", "tensor-spec": {"dtype": "float32", "shape": [-1,
    2]}}]'
"""


def folder(tmp_path: Path, content: str | bytes, **files: str) -> Path:
    (tmp_path / "MLmodel").write_bytes(content if isinstance(content, bytes) else content.encode())
    for name, text in files.items():
        (tmp_path / f"{name}.txt").write_text(text)
    return tmp_path


def test_another_folder_is_none(tmp_path: Path) -> None:
    assert read_mlflow_model(tmp_path, where=WHERE) is None


@pytest.mark.parametrize(
    "content",
    [b"\xff\xfe", "a: [", "!!python/object:os.system {}", "[" * 5000, "&a [*a, x", "x" * (1 << 20)],
    ids=range(6),
)
def test_a_bad_file_is_refused_with_its_name(tmp_path: Path, content: str | bytes) -> None:
    with pytest.raises(FailedPreconditionError, match="gs://b/m/MLmodel"):
        read_mlflow_model(folder(tmp_path, content), where=WHERE)


@pytest.mark.parametrize(
    ("written", "version"),
    [("2.10", "2.10"), ("null", ""), ("[&a [x, x], *a]", ""), ("0x" + "f" * 5000, "0x" + "f" * 5000)],
    ids=range(4),
)
def test_values_are_texts(tmp_path: Path, written: str, version: str) -> None:
    """A number of many digits, or a list that names another one again and again, costs no more than its text."""
    merged = "m: &m {a: 1}\nn: {<<: [*m, *m]}\nt: 1:59:59\nd: 2026-13-45\n"
    content = f"{merged}flavors: {{python_function: {{}}}}\nmlflow_version: {written}\n"
    model = read_mlflow_model(folder(tmp_path, content), where=WHERE)
    assert model is not None
    assert model.version == version


def test_a_package_requires_what_the_runtime_lacks(tmp_path: Path) -> None:
    folder(tmp_path, PYFUNC, requirements="mlflow==3.17.2\ntensorflow==2.20\nnumpy==1.0\nskops==0.16\n")
    model = read_mlflow_model(tmp_path, where=WHERE)
    assert model is not None
    [package] = requirements_of(model, tmp_path, "2.21", tmp_path / "copies", where=WHERE)
    with zipfile.ZipFile(package.path) as wheel:
        metadata = wheel.read("mlflow_model_requirements-1.0.dist-info/METADATA").decode().splitlines()
    assert metadata[3:] == ["Requires-Dist: mlflow-skinny==3.17.2", "Requires-Dist: skops==0.16"]
    [again] = requirements_of(model, tmp_path, "2.21", tmp_path / "others", where=WHERE)
    assert again.sha256 == package.sha256


def test_a_model_without_mlflow_needs_no_package(tmp_path: Path) -> None:
    content = "flavors: {sklearn: {pickled_model: model.pkl}, python_function: {}}"
    (tmp_path / "model.pkl").touch()
    model = read_mlflow_model(folder(tmp_path, content, requirements="-c x"), where=WHERE)
    assert model is not None
    assert model.loaders == ("sklearn",)
    assert requirements_of(model, tmp_path, "2.21", tmp_path / "copies", where=WHERE) == ()
