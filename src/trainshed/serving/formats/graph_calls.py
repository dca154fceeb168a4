"""Which signatures of a SavedModel are calls of one function: Keras exports one under two names.

TensorFlow writes each signature as a node that calls a function of the graph. Two signatures with equal functions,
called with the same arguments, give the same outputs, although their graph tensors have different names.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

from .protobuf import fields

_CALLS = (b"PartitionedCall", b"StatefulPartitionedCall")


class GraphCalls:
    """The nodes of a graph that call functions."""

    def __init__(self, graph: bytes) -> None:
        """`graph` is a GraphDef. Raises `BadMessageError` if it is damaged."""
        parts = fields(graph)
        self._calls: dict[str, Mapping[int, list[Any]]] = {}
        for node in map(fields, parts.get(1, [])):
            if node.get(2, [b""])[0] in _CALLS:
                self._calls[node[1][0].decode()] = node
        functions = fields(b"".join(parts.get(2, []))).get(1, [])
        self._functions = {_function_name(function): function for function in map(fields, functions)}

    def call(self, inputs: Mapping[str, str], outputs: Mapping[str, str]) -> Hashable | None:
        """What a signature with these graph tensors computes, equal for signatures that compute the same.

        Returns None if it is not one call, and where that can't be told.
        """
        nodes = {tensor.partition(":")[0] for tensor in outputs.values()}
        node = self._calls.get(nodes.pop()) if len(nodes) == 1 else None
        function = None if node is None else self._functions.get(_called(node))
        if node is None or function is None:
            return None
        names = {tensor.removesuffix(":0").encode(): alias for alias, tensor in inputs.items()}
        arguments = tuple((names.get(argument), argument if argument not in names else b"") for argument in node[3])
        given = tuple(sorted((alias, tensor.partition(":")[2]) for alias, tensor in outputs.items()))
        return arguments, given, _body(function)


def _function_name(function: Mapping[int, list[Any]]) -> bytes:
    name: bytes = fields(function[1][0])[1][0]
    return name


def _called(node: Mapping[int, list[Any]]) -> bytes:
    """The name of the function that a node calls."""
    for entry in map(fields, node.get(5, [])):
        if entry[1][0] == b"f":
            name: bytes = fields(fields(entry[2][0])[10][0])[1][0]
            return name
    return b""


def _body(function: Mapping[int, list[Any]]) -> Hashable:
    """A function without its own name: arguments, nodes and results. The order of maps in a message means nothing."""
    declared = fields(function[1][0])
    nodes = frozenset(_node(fields(node)) for node in function.get(3, []))
    arguments = tuple(map(bytes, (*declared.get(2, []), *declared.get(3, []))))
    return arguments, nodes, frozenset(function.get(4, [])), frozenset(function.get(6, []))


def _node(node: Mapping[int, list[Any]]) -> Hashable:
    """A node without what it says for debugging."""
    return node[1][0], node[2][0], tuple(node.get(3, [])), frozenset(node.get(5, []))
