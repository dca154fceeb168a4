"""ONNX files without ONNX: their inputs and outputs, and what is no such file."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainshed.serving.errors import LoaderError
from trainshed.serving.formats.onnx import model_file, read_signature
from trainshed.testing.workloads.onnx_files import FLOAT, MODELS, model, node, tensor, write_onnx


def test_inputs_and_outputs_without_constants(tmp_path: Path) -> None:
    signature = read_signature(write_onnx(tmp_path, "dense") / "model.onnx").as_json()
    assert signature == {
        "inputs": {"x": {"dtype": "float32", "shape": [-1, 3]}},
        "outputs": {
            "classes": {"dtype": "int64", "shape": [-1]},
            "scores": {"dtype": "float32", "shape": [-1, 2]},
        },
    }
    assert read_signature(write_onnx(tmp_path, "words") / "model.onnx").inputs["text"].dtype == "string"
    fixed = read_signature(write_onnx(tmp_path, "fixed") / "model.onnx")
    assert (fixed.inputs["x"].shape, fixed.batched) == ((2, 3), False)


def test_a_scalar_has_no_dimension_and_an_unknown_type_its_number(tmp_path: Path) -> None:
    content = model(
        [node("Identity", ["x"], ["y"])], inputs=[tensor("x", FLOAT, ())], outputs=[tensor("y", 99, ("N",))]
    )
    signature = read_signature(write_onnx(tmp_path, "scalar", content) / "model.onnx")
    assert signature.inputs["x"].shape == ()
    assert signature.outputs["y"].dtype == "type 99"


def test_what_is_no_tensor_is_named_with_a_remedy(tmp_path: Path) -> None:
    path = write_onnx(tmp_path, "parts") / "model.onnx"
    with pytest.raises(LoaderError, match=r'Output "all" is a sequence\. Export the model with tensors only, as by'):
        read_signature(path)


@pytest.mark.parametrize("name", ["dense", "words", "parts"])
def test_a_file_that_is_cut_anywhere_is_refused_or_whole_enough(tmp_path: Path, name: str) -> None:
    """A cut behind the graph is left to the framework."""
    path, content, refused = write_onnx(tmp_path, name) / "model.onnx", MODELS[name], 0
    for size in range(len(content)):
        path.write_bytes(content[:size])
        try:
            read_signature(path)
        except LoaderError as exc:
            refused += 1
            assert "Traceback" not in str(exc)
    assert refused > len(content) // 2


@pytest.mark.parametrize("content", [b"", b"hello", b"\x08\x0a", bytes(100)], ids=["empty", "text", "head", "zeros"])
def test_other_content_is_no_onnx_file(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(LoaderError, match=r"model\.onnx is damaged, or no ONNX file: "):
        read_signature(write_onnx(tmp_path, "other", content) / "model.onnx")


def test_which_file_of_a_folder(tmp_path: Path) -> None:
    with pytest.raises(LoaderError, match=r"Could not find an \.onnx file in "):
        model_file(tmp_path)
    (tmp_path / "encoder.onnx").write_bytes(b"")
    assert model_file(tmp_path).name == "encoder.onnx"
    (tmp_path / "decoder.onnx").write_bytes(b"")
    with pytest.raises(LoaderError, match=r"decoder\.onnx, encoder\.onnx\. Name the one to use model\.onnx\."):
        model_file(tmp_path)
    (tmp_path / "model.onnx").write_bytes(b"")
    assert model_file(tmp_path).name == "model.onnx"
