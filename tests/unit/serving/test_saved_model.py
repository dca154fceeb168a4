"""What a SavedModel says of itself, in bytes that are put together here by the wire format's own rules."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainshed.serving.errors import LoaderError
from trainshed.serving.formats.saved_model import read_signatures, with_shared_tensors
from trainshed.serving.signatures import Signature, Tensor
from trainshed.testing.workloads.event_files import field


def info(place: str, dtype: int, shape: tuple[int, ...] | None) -> bytes:
    sizes = field(3, 1) if shape is None else b"".join(field(2, field(1, size) if size else b"") for size in shape)
    return field(1, place) + field(2, dtype) + field(3, sizes)


def signature(name: str, inputs: dict[str, bytes], outputs: dict[str, bytes]) -> bytes:
    entries = [field(number, field(1, alias) + field(2, given)) for number, them in ((1, inputs), (2, outputs))
               for alias, given in them.items()]  # fmt: skip
    return field(5, field(1, name) + field(2, b"".join(entries)))


def graph(*signatures: bytes, tags: tuple[str, ...] = ("serve",)) -> bytes:
    return field(2, field(1, b"".join(field(4, tag) for tag in tags)) + field(2, b"\x00" * 0) + b"".join(signatures))


def model(folder: Path, *graphs: bytes) -> Path:
    (folder / "saved_model.pb").write_bytes(field(1, 1) + b"".join(graphs))
    return folder


X, Y = info("x:0", 1, (-1, 4)), info("y:0", 9, (-1,))


def test_signatures_have_names_types_shapes_and_places(tmp_path: Path) -> None:
    found = read_signatures(
        model(
            tmp_path,
            graph(
                signature("serving_default", {"z": info("z:0", 7, None), "a": X}, {"y": Y, "s": info("s:1", 10, ())}),
                signature("other", {"x": X}, {"e": info("e:0", 99, (0, 3))}),
                signature("__saved_model_init_op", {}, {"__saved_model_init_op": info("NoOp", 0, None)}),
            ),
        )
    )
    assert list(found) == ["other", "serving_default"]
    default = found["serving_default"]
    assert default.signature == Signature(
        inputs={"a": Tensor(dtype="float32", shape=(-1, 4)), "z": Tensor(dtype="string", shape=None)},
        outputs={"s": Tensor(dtype="bool", shape=()), "y": Tensor(dtype="int64", shape=(-1,))},
    )
    assert list(default.signature.inputs) == ["a", "z"]
    assert default.inputs == {"a": "x:0", "z": "z:0"}
    assert default.outputs == {"s": "s:1", "y": "y:0"}
    assert found["other"].signature.outputs == {"e": Tensor(dtype="type 99", shape=(0, 3))}


def test_of_several_graphs_the_one_for_serving_counts(tmp_path: Path) -> None:
    train = graph(signature("train", {"x": X}, {"y": Y}), tags=("train",))
    serve = graph(signature("serve", {"x": X}, {"y": Y}), tags=("serve", "tpu"))
    assert list(read_signatures(model(tmp_path, train, serve))) == ["serve"]
    assert list(read_signatures(model(tmp_path, train))) == ["train"]


@pytest.mark.parametrize("graphs", [(), (graph(),), (b"\xff",), (graph(field(5, field(1, "no definition"))),)])
def test_a_model_without_signatures_says_so(tmp_path: Path, graphs: tuple[bytes, ...]) -> None:
    with pytest.raises(LoaderError, match="signature"):
        read_signatures(model(tmp_path, *graphs))


def test_a_model_that_is_not_there_says_so(tmp_path: Path) -> None:
    with pytest.raises(LoaderError, match=r"saved_model\.pb"):
        read_signatures(tmp_path)


@given(st.integers(0, 200), st.binary(min_size=1, max_size=4))
def test_damage_is_a_loaders_error_and_no_other(tmp_path_factory: pytest.TempPathFactory, at: int, junk: bytes) -> None:
    folder = model(tmp_path_factory.mktemp("m"), graph(signature("serving_default", {"x": X}, {"y": Y})))
    whole = (folder / "saved_model.pb").read_bytes()
    (folder / "saved_model.pb").write_bytes(whole[:at] + junk + whole[at + len(junk) :])
    try:
        assert read_signatures(folder)
    except LoaderError as exc:
        assert exc.code == 0


def call(node: str, function: str, *arguments: str) -> bytes:
    """A node that calls a function."""
    called = field(1, "f") + field(2, field(10, field(1, function)))
    inputs = b"".join(field(3, argument) for argument in arguments)
    return field(1, field(1, node) + field(2, "StatefulPartitionedCall") + inputs + field(5, called))


def function(name: str, *nodes: bytes) -> bytes:
    """A function of one argument."""
    declared = field(1, name) + field(2, field(1, "x"))
    result = field(1, "y") + field(2, "last:0")
    return field(1, field(1, declared) + b"".join(field(3, node) for node in nodes) + field(4, result))


SCALE, SHIFT = (field(1, name) + field(2, "Mul") + field(3, "x") for name in ("scale", "shift"))


def called(folder: Path, *nodes: bytes, body: bytes = SCALE) -> dict[str, dict[str, str]]:
    """The graph tensors of a signature's output, of two that call `f` and `g`."""
    library = field(2, function("f", SCALE, SHIFT) + function("g", SHIFT, body))
    x, y = info("one_x:0", 1, (-1,)), info("two_x:0", 1, (-1,))
    path = model(
        folder,
        field(
            2,
            field(1, field(4, "serve"))
            + field(2, b"".join(nodes) + library)
            + signature("serving_default", {"x": x}, {"y": info("one:0", 1, (-1,))})
            + signature("serve", {"x": y}, {"y": info("two:0", 1, (-1,))}),
        ),
    )
    found = with_shared_tensors(path, read_signatures(path))
    return {name: {**each.inputs, **each.outputs} for name, each in found.items()}


ONE, TWO = {"x": "one_x:0", "y": "one:0"}, {"x": "two_x:0", "y": "two:0"}
FIRST = call("one", "f", "one_x", "weights")


def test_signatures_that_call_equal_functions_alike_share_their_tensors(tmp_path: Path) -> None:
    second = call("two", "g", "two_x", "weights")
    assert called(tmp_path, FIRST, second) == {"serve": ONE, "serving_default": ONE}
    assert called(tmp_path, FIRST, second, body=SHIFT) == {"serve": TWO, "serving_default": ONE}


@pytest.mark.parametrize(
    "second",
    [
        call("two", "g", "two_x", "others"),
        call("two", "g", "weights", "two_x"),
        call("two", "absent", "two_x", "weights"),
        call("three", "g", "two_x", "weights"),
    ],
)
def test_signatures_that_may_differ_keep_their_own_tensors(tmp_path: Path, second: bytes) -> None:
    assert called(tmp_path, FIRST, second) == {"serve": TWO, "serving_default": ONE}
