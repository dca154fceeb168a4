"""ONNX files on OpenVINO, which starts sooner and is faster than ONNX Runtime. That one serves what OpenVINO lacks."""

from __future__ import annotations

from collections.abc import Mapping

from ..formats.onnx import model_file, read_signature
from ..formats.saved_model import GraphSignature
from ..signatures import DEFAULT, Tensor
from ..spec import ServingSpec
from .openvino import OpenVinoModel, compile_graphs


def load(spec: ServingSpec) -> OpenVinoModel:
    path = model_file(spec.model_dir)
    signature = read_signature(path)
    # ONNX has one name for an input or output and for its tensor
    graph = GraphSignature(
        signature=signature, inputs=_same_names(signature.inputs), outputs=_same_names(signature.outputs)
    )
    return compile_graphs(path, {DEFAULT: graph}, spec, kind="ONNX model")


def _same_names(tensors: Mapping[str, Tensor]) -> dict[str, str]:
    return {name: name for name in tensors}
