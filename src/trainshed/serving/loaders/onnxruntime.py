"""ONNX files on ONNX Runtime: the reference for OpenVINO, and what serves models that OpenVINO lacks operations for."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
import onnxruntime as ort

from ..errors import InvalidInputsError, LoaderError
from ..formats.onnx import model_file, read_signature
from ..signatures import DEFAULT, STRING, Signature
from ..spec import ServingSpec

if TYPE_CHECKING:
    from .base import Array

_ERRORS_ONLY = 3  #: its level of logging


def load(spec: ServingSpec) -> OnnxRuntimeModel:
    path = model_file(spec.model_dir)
    signature = read_signature(path)
    options = ort.SessionOptions()
    options.intra_op_num_threads = spec.threads
    options.inter_op_num_threads = 1
    options.log_severity_level = _ERRORS_ONLY
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # other hosts need the cores
    try:
        session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as exc:  # a class of its own for each of its status codes
        raise LoaderError(f"ONNX Runtime can't run {path.name}: {_error_message(exc)}") from exc
    return OnnxRuntimeModel(session, signature)


class OnnxRuntimeModel:
    """One session, with one signature."""

    def __init__(self, session: Any, signature: Signature) -> None:
        self.detail = f"ONNX Runtime {ort.__version__}"
        self.signatures = {DEFAULT: signature}
        self._session = session
        self._outputs = list(signature.outputs)
        self._strings = {name for name, tensor in signature.inputs.items() if tensor.dtype == STRING}

    def run(self, signature: str, inputs: dict[str, Array]) -> dict[str, Array]:
        feeds = {name: _as_text(name, array) if name in self._strings else array for name, array in inputs.items()}
        try:
            outputs = self._session.run(self._outputs, feeds)
        except Exception as exc:
            if type(exc).__name__ == "InvalidArgument":
                raise InvalidInputsError(f"Exception during running the graph: {_error_message(exc)}") from exc
            raise
        return {name: _as_bytes(array) for name, array in zip(self._outputs, outputs, strict=True)}


def _as_text(name: str, array: Any) -> Array:
    """ONNX Runtime takes text. Raises `InvalidInputsError` for other bytes."""
    texts = np.empty(array.shape, object)
    try:
        texts.reshape(-1)[:] = [value.decode() for value in array.reshape(-1)]
    except UnicodeDecodeError as exc:
        raise InvalidInputsError(f'Input "{name}" holds bytes that are no text: {exc}.') from exc
    return texts


def _as_bytes(array: Any) -> Array:
    values: Array = np.asarray(array)
    if values.dtype.kind not in "OU":
        return values
    texts = np.empty(values.shape, object)
    texts.reshape(-1)[:] = [str(value).encode() for value in values.reshape(-1)]
    return texts


def _error_message(exc: BaseException) -> str:
    """ONNX Runtime's message without its prefix, the locations in its sources and the path of the file."""
    message = re.sub(r"^\[ONNXRuntimeError\] : \d+ : \w+ : ", "", str(exc).strip())
    message = re.sub(r"/\S+?\.(cc|h):\d+ .*?\) ", "", message)
    message = re.sub(r"^Load model from \S+ failed:", "", message)
    return message.strip()[:1000] or type(exc).__name__
