"""Small ONNX models, written byte by byte: the checkout has no package that writes them."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

FLOAT, INT64, STRING = 1, 7, 8  #: of TensorProto.DataType
_VARINT, _BYTES = 0, 2
_IR_VERSION, _OPSET, _ML_OPSET = 10, 21, 3
ML = "ai.onnx.ml"

WEIGHTS = ((1.0, -1.0), (2.0, 0.0), (-3.0, 4.0))  #: of `dense`

Shape = Sequence[int | str]  #: a name is any length


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3 | _VARINT) + _varint(value)


def _message(field: int, content: bytes | str) -> bytes:
    content = content.encode() if isinstance(content, str) else content
    return _varint(field << 3 | _BYTES) + _varint(len(content)) + content


def tensor(name: str, dtype: int, shape: Shape) -> bytes:
    """A ValueInfoProto of a tensor."""
    sizes = b"".join(_message(1, _number(1, size) if isinstance(size, int) else _message(2, size)) for size in shape)
    return _message(1, name) + _message(2, _message(1, _number(1, dtype) + _message(2, sizes)))


def sequence(name: str) -> bytes:
    """A ValueInfoProto of a sequence of tensors."""
    return _message(1, name) + _message(2, _message(4, _message(1, _message(1, _number(1, FLOAT)))))


def constant(name: str, rows: Sequence[Sequence[float]]) -> bytes:
    """A TensorProto with 32-bit floats."""
    values = b"".join(struct.pack("<f", value) for row in rows for value in row)
    return (
        _number(1, len(rows)) + _number(1, len(rows[0])) + _number(2, FLOAT) + _message(8, name) + _message(9, values)
    )


def node(
    operator: str, inputs: Sequence[str], outputs: Sequence[str], *, domain: str = "", integers: Mapping[str, int] = {}
) -> bytes:
    """A NodeProto. `integers` are its attributes."""
    attributes = b"".join(
        _message(5, _message(1, name) + _number(3, value) + _number(20, 2)) for name, value in integers.items()
    )
    names = b"".join([*(_message(1, name) for name in inputs), *(_message(2, name) for name in outputs)])
    return names + _message(4, operator) + attributes + _message(7, domain)


def model(
    nodes: Sequence[bytes], *, inputs: Sequence[bytes], outputs: Sequence[bytes], constants: Sequence[bytes] = ()
) -> bytes:
    """A ModelProto of one graph."""
    graph = [
        *(_message(1, each) for each in nodes),
        _message(2, "graph"),
        *(_message(5, each) for each in constants),
        *(_message(11, each) for each in inputs),
        *(_message(12, each) for each in outputs),
    ]
    opsets = {"": _OPSET, ML: _ML_OPSET, "example": 1}
    imports = (_message(8, _message(1, domain) + _number(2, version)) for domain, version in opsets.items())
    return _number(1, _IR_VERSION) + _message(7, b"".join(graph)) + b"".join(imports)


_X = tensor("x", FLOAT, ("N", 3))

#: `dense`: scores = x @ WEIGHTS, and the greatest one's number. `fixed`: the same scores, for two rows. `words`: text
#: twice. `steps`: 1 where x > 0, by an operator that OpenVINO lacks. `parts`: a sequence. `strange`: an operator that
#: nobody has.
MODELS: Mapping[str, bytes] = {
    "dense": model(
        [
            node("MatMul", ["x", "weights"], ["scores"]),
            node("ArgMax", ["scores"], ["classes"], integers={"axis": 1, "keepdims": 0}),
        ],
        inputs=[_X, tensor("weights", FLOAT, (3, 2))],  # old exporters list constants among the inputs
        outputs=[tensor("scores", FLOAT, ("N", 2)), tensor("classes", INT64, ("N",))],
        constants=[constant("weights", WEIGHTS)],
    ),
    "fixed": model(
        [node("MatMul", ["x", "weights"], ["scores"])],
        inputs=[tensor("x", FLOAT, (2, 3))],
        outputs=[tensor("scores", FLOAT, (2, 2))],
        constants=[constant("weights", WEIGHTS)],
    ),
    "words": model(
        [node("StringConcat", ["text", "text"], ["twice"])],
        inputs=[tensor("text", STRING, ("N",))],
        outputs=[tensor("twice", STRING, ("N",))],
    ),
    "steps": model([node("Binarizer", ["x"], ["y"], domain=ML)], inputs=[_X], outputs=[tensor("y", FLOAT, ("N", 3))]),
    "parts": model([node("SequenceConstruct", ["x"], ["all"])], inputs=[_X], outputs=[sequence("all")]),
    "strange": model(
        [node("Nothing", ["x"], ["y"], domain="example")], inputs=[_X], outputs=[tensor("y", FLOAT, ("N", 3))]
    ),
}


def write_onnx(root: Path, name: str, content: bytes | None = None) -> Path:
    """Write a model, or other content, to a folder of its own. Returns the folder."""
    folder = root / name
    folder.mkdir()
    (folder / "model.onnx").write_bytes(MODELS[name] if content is None else content)
    return folder
