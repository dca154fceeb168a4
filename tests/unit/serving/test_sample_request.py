"""Where the sample request of a version comes from, and what is compared by it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from trainshed.serving.errors import LoaderError, ModelRunError
from trainshed.serving.host.parity import cases, compare, read, sample_inputs, write
from trainshed.serving.host.sample_request import SampleRequest, body, find_sample, generated_inputs, varied_inputs
from trainshed.serving.signatures import Signature, Tensor
from trainshed.testing.fakes.models import ROWS, Scorer, Shouter, Weighing


def put(folder: Path, name: str, data: bytes) -> None:
    (folder / "assets.extra").mkdir(exist_ok=True)
    (folder / "assets.extra" / name).write_bytes(data)


def signature(**inputs: Tensor) -> Signature:
    return Signature(inputs=inputs, outputs=ROWS.outputs)


class Picky(Scorer):
    """Takes rows of any length, but not short ones."""

    def run(self, signature: str, inputs: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        if inputs["x"].shape[1] < 20:
            raise ModelRunError("A window does not fit.")
        return super().run(signature, {"x": inputs["x"][:, :3]})


def test_a_written_sample_comes_first(tmp_path: Path) -> None:
    put(tmp_path, "sample_request.json", b'{"instances": [[1, 2, 3]]}')
    put(tmp_path, "tf_serving_warmup_requests", b"not looked at")
    sample = find_sample(tmp_path, Scorer())
    assert sample == SampleRequest(body={"instances": [[1, 2, 3]]}, source="assets.extra/sample_request.json")
    assert sample.given


@pytest.mark.parametrize("data", [b"{", b"[]", b'{"instances": {}}', b'{"instances": []}', b'{"instance": [1]}'])
def test_a_sample_that_is_no_request_is_refused(tmp_path: Path, data: bytes) -> None:
    put(tmp_path, "sample_request.json", data)
    with pytest.raises(LoaderError, match=r"assets.extra/sample_request.json is no"):
        find_sample(tmp_path, Scorer())


def test_a_broken_warm_up_file_is_refused(tmp_path: Path) -> None:
    put(tmp_path, "tf_serving_warmup_requests", b"torn")
    with pytest.raises(LoaderError, match=r"tf_serving_warmup_requests cannot be read: .* cut short"):
        find_sample(tmp_path, Scorer())


def test_an_empty_warm_up_file_leaves_the_signature(tmp_path: Path) -> None:
    put(tmp_path, "tf_serving_warmup_requests", b"")
    sample = find_sample(tmp_path, Scorer())
    assert sample is not None
    assert not sample.given


def test_a_sample_is_made_from_the_signature(tmp_path: Path) -> None:
    sample = find_sample(tmp_path, Scorer())
    assert sample is not None
    assert list(sample.body) == ["instances"]
    [instance] = sample.body["instances"]
    assert len(instance["x"]) == 3
    assert all(0 <= value <= 1 for value in instance["x"])


def test_a_made_sample_names_a_signature_that_is_not_the_default(tmp_path: Path) -> None:
    sample = find_sample(tmp_path, Scorer(signatures={"b": ROWS, "a": ROWS}))
    assert sample is not None
    assert sample.body["signature_name"] == "a"


def test_dimensions_of_any_length_grow_until_the_model_answers(tmp_path: Path) -> None:
    open_ended = signature(x=Tensor(dtype="float32", shape=(-1, -1)))
    sample = find_sample(tmp_path, Picky(signatures={"serving_default": open_ended}))
    assert sample is not None
    assert len(sample.body["instances"][0]["x"]) == 32


def test_nothing_is_made_for_strings_or_for_a_model_that_never_answers(tmp_path: Path) -> None:
    assert find_sample(tmp_path, Shouter()) is None
    assert find_sample(tmp_path, Picky()) is None


def test_a_table_s_row_is_made_by_its_width(tmp_path: Path) -> None:
    sample = find_sample(tmp_path, Weighing())
    assert sample is not None
    assert [len(row) for row in sample.body["instances"]] == [3, 3, 3]


def test_made_inputs_fit() -> None:
    inputs = generated_inputs(
        signature(
            a=Tensor(dtype="float16", shape=(-1, 2, -1)),
            b=Tensor(dtype="uint8", shape=(-1,)),
            c=Tensor(dtype="bool", shape=None),
            d=Tensor(dtype="int64", shape=(4, 1)),
        ),
        rows=5,
        length=7,
    )
    assert inputs is not None
    shapes = {name: (array.dtype.name, array.shape) for name, array in inputs.items()}
    assert shapes == {
        "a": ("float16", (5, 2, 7)),
        "b": ("uint8", (5,)),
        "c": ("bool", (5,)),
        "d": ("int64", (4, 1)),
    }
    assert set(inputs["d"].reshape(-1)) <= {0, 1}


def test_variations_differ_but_strings_stay() -> None:
    words = np.empty(1, object)
    words[:] = [b"word"]
    base = {"x": np.ones((1, 50), np.float32), "n": np.full((1, 50), 9), "s": words}
    one, again, other = (
        varied_inputs(base, rows=3, seed=1),
        varied_inputs(base, rows=3, seed=1),
        varied_inputs(base, rows=3, seed=2),
    )
    assert one["x"].shape == (3, 50)
    assert one["x"].dtype == np.float32
    assert (one["x"] == again["x"]).all()
    assert (one["x"] != other["x"]).any()
    assert len({row.tobytes() for row in one["x"]}) == 3
    assert ((one["x"] >= 0) & (one["x"] <= 1)).all()
    assert set(one["n"].reshape(-1)) == {0, 1, 9}
    assert one["s"].tolist() == [b"word"] * 3


def test_a_body_holds_rows() -> None:
    assert body({"a": np.array([1, 2]), "b": np.array([[0.5], [1.5]])}, signature="s") == {
        "signature_name": "s",
        "instances": [{"a": 1, "b": [0.5]}, {"a": 2, "b": [1.5]}],
    }


def test_answers_are_kept_and_compared(tmp_path: Path) -> None:
    put(tmp_path, "sample_request.json", json.dumps({"instances": [[5, 0, 0], [0, 1, 0]]}).encode())
    model = Scorer()
    count = write(model, sample_inputs(model, tmp_path), tmp_path / "kept.npz")
    known = read(tmp_path / "kept.npz")
    assert len(known) == count
    assert {len(case.inputs["x"]) for case in known} == {1, 2, 3}
    assert known[0].inputs["x"].tolist() == [[5, 0, 0], [0, 1, 0]]
    same = compare(Scorer(), known)
    assert same.within
    assert same.difference == 0
    assert compare(Scorer(off=1e-6), known).within
    far = compare(Scorer(off=0.1), known)
    assert not far.within
    assert far.difference == pytest.approx(0.1, rel=1e-4)
    assert "scores is" in far.message


def test_a_label_that_differs_is_out_of_bounds() -> None:
    known = list(cases(Scorer(), None))

    class Other(Scorer):
        def run(self, signature: str, inputs: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
            answer = super().run(signature, inputs)
            return answer | {"label": answer["label"] + 1}

    found = compare(Other(), known)
    assert not found.within
    assert "label is" in found.message


def test_strings_are_kept_too(tmp_path: Path) -> None:
    put(tmp_path, "sample_request.json", b'{"instances": ["a", {"b64": "AGIA"}]}')
    model = Shouter()
    write(model, sample_inputs(model, tmp_path), tmp_path / "kept.npz")
    known = read(tmp_path / "kept.npz")
    assert known[0].outputs["loud"].tolist() == [b"A", b"\0B\0"]
    assert compare(model, known).within

    class Quiet(Shouter):
        def run(self, signature: str, inputs: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
            return {"loud": inputs["text"]}

    assert not compare(Quiet(), known).within


def test_every_signature_is_checked_or_the_loader_may_not_answer() -> None:
    both = {"serving_default": ROWS, "words": Shouter.signatures["serving_default"]}
    known = list(cases(Scorer(signatures=both), None))
    assert {case.signature for case in known} == {"serving_default"}
    found = compare(Scorer(signatures=both), known)
    assert not found.within
    assert "signature words" in found.message
    assert compare(Scorer(), known).within


def test_the_sample_goes_to_every_signature_that_takes_it() -> None:
    model = Scorer(signatures={"serving_default": ROWS, "same": ROWS})
    known = list(cases(model, ("serving_default", {"x": np.array([[7, 0, 0]], np.float32)})))
    assert [case.inputs["x"][0, 0] for case in known if len(case.inputs["x"]) == 1][:1] == [7]
    assert sum(case.signature == "same" and 7 in case.inputs["x"] for case in known) == 1


def test_a_request_that_only_tensorflow_answers_is_out_of_bounds() -> None:
    known = list(cases(Scorer(), None))
    found = compare(Picky(), known)
    assert not found.within
    assert "A window does not fit" in found.message


def test_other_outputs_or_shapes_are_out_of_bounds() -> None:
    known = list(cases(Scorer(), None))

    class Flat(Scorer):
        def run(self, signature: str, inputs: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
            answer = super().run(signature, inputs)
            return answer | {"scores": answer["scores"].reshape(-1)}

    class Fewer(Scorer):
        def run(self, signature: str, inputs: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
            return {"scores": super().run(signature, inputs)["scores"]}

    assert "scores has the shape" in compare(Flat(), known).message
    assert "the outputs are scores and not label, scores" in compare(Fewer(), known).message
    assert not compare(Flat(), known).within
    assert not compare(Fewer(), known).within


def test_numbers_that_are_none_compare_equal() -> None:
    class Odd(Scorer):
        def run(self, signature: str, inputs: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
            answer = super().run(signature, inputs)
            return answer | {"scores": np.full_like(answer["scores"], np.nan)}

    known = list(cases(Odd(), None))
    assert compare(Odd(), known).within
    assert not compare(Scorer(), known).within
