"""The signatures of a SavedModel, read without TensorFlow."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..errors import LoaderError
from ..signatures import DEFAULT, DTYPES, Signature, Tensor
from .graph_calls import GraphCalls
from .protobuf import BadMessageError, fields, signed

_SERVE = b"serve"  #: the tag of the serving graph, in models with several
_INTERNAL = "__saved_model_"  #: prefix of TensorFlow's internal signatures


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphSignature:
    """A signature with its graph tensors. Equal graph tensors have equal values."""

    signature: Signature
    inputs: Mapping[str, str]  #: names of inputs to names of graph tensors, as `dense/Softmax:0`
    outputs: Mapping[str, str]


def read_signatures(model_dir: Path) -> dict[str, GraphSignature]:
    """All callable signatures, sorted by name. Raises `LoaderError` if there are none or the file is damaged."""
    path = model_dir / "saved_model.pb"
    try:
        graph = _serving_graph(fields(path.read_bytes()))
        all_signatures = dict(map(_signature_entry, graph.get(5, [])))
    except (OSError, BadMessageError, LookupError, UnicodeDecodeError, TypeError, AttributeError) as exc:  # or damaged
        raise LoaderError(f"The signatures of saved_model.pb can't be read: {exc}.") from exc
    signatures = {name: all_signatures[name] for name in sorted(all_signatures) if not name.startswith(_INTERNAL)}
    if not signatures:
        raise LoaderError("The SavedModel has no signature. Export it with one, named serving_default.")
    return signatures


def with_shared_tensors(model_dir: Path, signatures: Mapping[str, GraphSignature]) -> dict[str, GraphSignature]:
    """The signatures, those that are the same call of one function with the same graph tensors.

    `serving_default` keeps its own. Raises `LoaderError` if the file is damaged.
    """
    if len(signatures) == 1:
        return dict(signatures)
    try:
        calls = GraphCalls(_serving_graph(fields((model_dir / "saved_model.pb").read_bytes())).get(2, [b""])[0])
        first: dict[Hashable, GraphSignature] = {}
        shared = {}
        for name in sorted(signatures, key=lambda name: name != DEFAULT):
            own = signatures[name]
            call = calls.call(own.inputs, own.outputs)
            shared[name] = own if call is None else _renamed(own, first.setdefault(call, own))
    except (OSError, BadMessageError, LookupError, UnicodeDecodeError, TypeError, AttributeError) as exc:
        raise LoaderError(f"The graph of saved_model.pb can't be read: {exc}.") from exc
    return {name: shared[name] for name in signatures}


def _renamed(own: GraphSignature, other: GraphSignature) -> GraphSignature:
    """A signature with the graph tensors of another one, if the two take and return the same."""
    return replace(own, inputs=other.inputs, outputs=other.outputs) if own.signature == other.signature else own


def _serving_graph(model: Mapping[int, list[Any]]) -> Mapping[int, list[Any]]:
    graphs = [fields(graph) for graph in model.get(2, [])]
    tagged = [graph for graph in graphs if _SERVE in fields(b"".join(graph.get(1, []))).get(4, [])]
    return (tagged or graphs)[0]


def _signature_entry(entry: bytes) -> tuple[str, GraphSignature]:
    parts = fields(entry)
    definition = fields(parts[2][0])
    inputs, outputs = _tensors(definition.get(1, [])), _tensors(definition.get(2, []))
    return parts[1][0].decode(), GraphSignature(
        signature=Signature(
            inputs={name: tensor for name, (tensor, _) in inputs.items()},
            outputs={name: tensor for name, (tensor, _) in outputs.items()},
        ),
        inputs={name: graph_tensor for name, (_, graph_tensor) in inputs.items()},
        outputs={name: graph_tensor for name, (_, graph_tensor) in outputs.items()},
    )


def _tensors(entries: list[bytes]) -> dict[str, tuple[Tensor, str]]:
    tensors = {}
    for entry in map(fields, entries):
        info = fields(entry[2][0])
        number = info.get(2, [0])[0]
        tensor = Tensor(dtype=DTYPES.get(number, f"type {number}"), shape=_shape(fields(info.get(3, [b""])[0])))
        tensors[entry[1][0].decode()] = tensor, info.get(1, [b""])[0].decode()  # a sparse tensor has no name
    return {name: tensors[name] for name in sorted(tensors)}


def _shape(message: Mapping[int, list[Any]]) -> tuple[int, ...] | None:
    if any(message.get(3, [])):
        return None
    return tuple(signed(fields(size).get(1, [0])[0]) for size in message.get(2, []))
