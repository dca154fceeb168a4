"""SavedModels on OpenVINO, which reads them without TensorFlow, starts sooner and is faster.

OpenVINO reads one signature of a model and lacks some operations, above all on strings. A model that it does not fully
support is rejected with the reason, and TensorFlow serves it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import openvino as ov
from openvino._pyopenvino import InferRequest as Binding  # its wrapper checks every input in Python

from ..errors import LoaderError
from ..formats.saved_model import GraphSignature, read_signatures, with_shared_tensors
from ..signatures import DEFAULT, STRING, Signature, Tensor
from ..spec import BF16, F32, ServingSpec

if TYPE_CHECKING:
    from .base import Array

_SUPPORTED_DTYPES = {
    "float16",
    "float32",
    "float64",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "bool",
}


def load(spec: ServingSpec) -> OpenVinoModel:
    graphs = with_shared_tensors(spec.model_dir, read_signatures(spec.model_dir))
    return compile_graphs(spec.model_dir, graphs, spec, kind="SavedModel")


def compile_graphs(path: Path, graphs: Mapping[str, GraphSignature], spec: ServingSpec, *, kind: str) -> OpenVinoModel:
    """The model in a file or folder, with these signatures, in the spec's precision. Raises `LoaderError` if OpenVINO
    or the processor does not support all of it; `kind` is the noun for it."""
    for name, graph in graphs.items():
        _check_types(name, graph.signature)
    main = DEFAULT if DEFAULT in graphs else next(iter(graphs))
    try:
        core = ov.Core()
        _check_processor(core, spec.precision)
        model = core.read_model(path)
        compiled = core.compile_model(model, "CPU", _settings(spec))
    except RuntimeError as exc:
        raise LoaderError(f"OpenVINO can't run this {kind}: {_error_message(exc)}") from exc
    calls = {name: _call(name, graph, graphs[main], compiled) for name, graph in graphs.items()}
    signatures = {name: graph.signature for name, graph in graphs.items()}

    def in_f32() -> OpenVinoModel:
        return compile_graphs(path, graphs, replace(spec, precision=F32), kind=kind)

    return OpenVinoModel(compiled, calls, signatures, precision=spec.precision, in_f32=in_f32)


def _check_processor(core: ov.Core, precision: str) -> None:
    if precision == BF16 and "BF16" not in core.get_property("CPU", "OPTIMIZATION_CAPABILITIES"):
        raise LoaderError(
            "The processor of this machine has no bfloat16, which precision bf16 needs. Create the version with "
            "precision f32."
        )


def _settings(spec: ServingSpec) -> dict[str, Any]:
    return {
        "PERFORMANCE_HINT": "LATENCY",
        "NUM_STREAMS": 1,
        "INFERENCE_NUM_THREADS": spec.threads,
        "ENABLE_CPU_PINNING": False,  # other hosts would pin to the same cores
        "INFERENCE_PRECISION_HINT": spec.precision,  # without it, processors with bfloat16 would give other results
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class _Call:
    """How to run one signature with the compiled model."""

    inputs: tuple[tuple[str, int], ...]  #: input of the signature, number of the model's input
    outputs: tuple[tuple[str, int], ...]  #: output of the signature, number of the model's


class OpenVinoModel:
    """One compiled model with one reused inference request."""

    def __init__(
        self,
        compiled: Any,
        calls: Mapping[str, _Call],
        signatures: Mapping[str, Signature],
        *,
        precision: str,
        in_f32: Callable[[], OpenVinoModel],
    ) -> None:
        self.detail = f"OpenVINO {ov.__version__.partition('-')[0]}" + (f" in {precision}" if precision != F32 else "")
        self.signatures = signatures
        self.precision = precision
        self.in_f32 = in_f32
        self._calls = calls
        self._request = compiled.create_infer_request()

    def run(self, signature: str, inputs: dict[str, Array]) -> dict[str, Array]:
        call, request = self._calls[signature], self._request
        for name, at in call.inputs:
            request.set_input_tensor(at, ov.Tensor(_shareable(inputs[name]), shared_memory=True))
        Binding.infer(request, {}, share_outputs=True, decode_strings=False)
        return {name: request.get_output_tensor(at).data.copy() for name, at in call.outputs}


def _shareable(array: Array) -> Array:
    """The array if OpenVINO can share its memory, else a copy."""
    return array if array.flags.c_contiguous and array.flags.writeable else array.copy()


def _check_types(name: str, signature: Signature) -> None:
    for kind, tensors in (("input", signature.inputs), ("output", signature.outputs)):
        for alias, tensor in tensors.items():
            if tensor.dtype not in _SUPPORTED_DTYPES:
                values = "strings" if tensor.dtype == STRING else tensor.dtype
                raise LoaderError(f'OpenVINO does not do {values}, which {kind} "{alias}" of signature {name} has.')


def _call(name: str, graph: GraphSignature, main: GraphSignature, compiled: Any) -> _Call:
    """How to run a signature through the main one, which OpenVINO reads. Raises `LoaderError` if it can't."""
    inputs = _port_numbers(compiled.inputs, main.inputs)
    outputs = _port_numbers(compiled.outputs, main.outputs)
    missing = [
        *(alias for alias, tensor in graph.inputs.items() if tensor not in inputs),
        *(alias for alias, tensor in graph.outputs.items() if tensor not in outputs),
    ]
    if missing or {graph.inputs[alias] for alias in graph.inputs} != set(inputs):
        raise LoaderError(
            f"OpenVINO reads one signature of a SavedModel, and signature {name} is not made of the tensors of it"
            + (f": {', '.join(missing)} are others." if missing else ".")
        )
    for alias, tensor in graph.signature.inputs.items():
        _check_port(alias, tensor, compiled.inputs[inputs[graph.inputs[alias]]])
    for alias, tensor in graph.signature.outputs.items():
        _check_port(alias, tensor, compiled.outputs[outputs[graph.outputs[alias]]])
    return _Call(
        inputs=tuple((alias, inputs[tensor]) for alias, tensor in graph.inputs.items()),
        outputs=tuple((alias, outputs[tensor]) for alias, tensor in graph.outputs.items()),
    )


def _port_numbers(ports: Any, tensors: Mapping[str, str]) -> dict[str, int]:
    """Numbers of a model's inputs or outputs by graph tensor."""
    return {tensors[name]: at for at, port in enumerate(ports) for name in port.get_names() if name in tensors}


def _check_port(alias: str, tensor: Tensor, port: Any) -> None:
    dtype = port.get_element_type().to_dtype()
    if dtype != np.dtype(tensor.dtype):
        raise LoaderError(f'OpenVINO has {dtype} for "{alias}", which is {tensor.dtype}.')


def _error_message(exc: Exception) -> str:
    """OpenVINO's message without the locations in its sources."""
    lines = [line.strip() for line in str(exc).splitlines()]
    relevant = [line for line in lines if line and not line.startswith(("Exception from", "Check '", "To facilitate"))]
    return " ".join(relevant)[:1000] or type(exc).__name__
