"""Batch prediction without a framework: shards, bad rows, and what a restart repeats."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainshed.serving.batch.main import BatchPlan, BatchRun
from trainshed.serving.batch.shards import Shard, rows, split_into_shards
from trainshed.serving.codec.predictors import predict, predictor
from trainshed.serving.errors import InvalidInputsError
from trainshed.serving.formats.protobuf import BadMessageError
from trainshed.serving.loaders.base import TensorModel
from trainshed.serving.signatures import Signature, Tensor
from trainshed.serving.spec import ServingSpec
from trainshed.testing.eventually import eventually
from trainshed.testing.fakes.swaps import SWAPS, Swap
from trainshed.testing.workloads.event_files import framed


class Doubles:
    """Gives back twice what it gets, and says no to numbers above a hundred. Knows how many rows it saw."""

    detail = "Doubles 1.0"

    def __init__(self, dtype: str = "float32") -> None:
        tensor = Tensor(dtype=dtype, shape=(-1, 2) if dtype != "string" else (-1,))
        self.signatures: Mapping[str, Signature] = {
            "serving_default": Signature(inputs={"x": tensor}, outputs={"y": tensor})
        }
        self.seen = 0

    def run(self, signature: str, inputs: dict[str, Any]) -> dict[str, Any]:
        self.seen += len(inputs["x"])
        if inputs["x"].dtype == object:
            return {"y": np.array([text + text for text in inputs["x"]], object)}
        if (inputs["x"] > 100).any():
            raise InvalidInputsError("A number is more than a hundred.")
        return {"y": inputs["x"] * 2}


def plan(folder: Path, *files: Path, data_format: str = "JSON", batch_size: int = 3, signature: str = "") -> BatchPlan:
    state = folder / "state"
    state.mkdir(exist_ok=True)
    return BatchPlan(
        spec=ServingSpec(model_dir=folder),
        root=str(folder / "buckets"),
        inputs=tuple(map(str, files)),
        names={str(file): f"gs://b/{file.name}" for file in files},
        output=folder / "out",
        state=state,
        data_format=data_format,
        batch_size=batch_size,
        signature=signature,
    )


def results(folder: Path) -> list[str]:
    files = sorted((folder / "out").glob("prediction.results-*"))
    return [line for file in files for line in file.read_text().splitlines()]


def errors(folder: Path) -> list[dict[str, Any]]:
    text = (folder / "out" / "prediction.errors_stats-00000-of-00001").read_text()
    return [json.loads(line) for line in text.splitlines()]


def told(folder: Path) -> dict[str, int]:
    found: dict[str, int] = json.loads((folder / "state" / "progress.json").read_text())
    return found


def test_rows_and_their_errors(tmp_path: Path) -> None:
    file = tmp_path / "rows.json"
    file.write_text('[1, 2]\n{"x": [3, 4]}\nnonsense\n\n[101, 0]\n[5, 6, 7]\n[1], [2]\n[9, 9]\n')
    BatchRun(plan(tmp_path, file), Doubles()).run()
    assert results(tmp_path) == ['{"y":[2.0,4.0]}', '{"y":[6.0,8.0]}', '{"y":[18.0,18.0]}']
    found = errors(tmp_path)
    assert [(error["file"], error["line"]) for error in found] == [("gs://b/rows.json", n) for n in (3, 5, 6, 7)]
    reasons = [error["error"] for error in found]
    assert "not JSON" in reasons[0] and "more than a hundred" in reasons[1] and "[2]" in reasons[2]
    assert found[0]["instance"] == "nonsense"
    assert told(tmp_path) == {
        "predictions": 3,
        "errors": 4,
        "read": file.stat().st_size,
        "bytes": file.stat().st_size,
    }


@pytest.mark.parametrize(
    "line", ['1],"signature_name":"other","y":[2', "[1, 2], [3, 4]", "[1, 2", '{"b64": "?"}', "\xff"]
)
def test_a_line_is_one_value_and_nothing_else(tmp_path: Path, line: str) -> None:
    file = tmp_path / "rows.json"
    file.write_bytes(line.encode("latin-1") + b"\n")
    BatchRun(plan(tmp_path, file), Doubles()).run()
    assert results(tmp_path) == []
    assert [error["line"] for error in errors(tmp_path)] == [1]


def test_a_model_that_takes_a_string_gets_the_line(tmp_path: Path) -> None:
    file = tmp_path / "rows.txt"
    file.write_text('ab\n"quoted"\n')
    BatchRun(plan(tmp_path, file, data_format="TEXT"), Doubles("string")).run()
    assert results(tmp_path) == ['{"y":"abab"}', '{"y":"\\"quoted\\"\\"quoted\\""}']


@pytest.mark.parametrize("packed", [False, True])
def test_records(tmp_path: Path, packed: bool) -> None:
    file = tmp_path / "rows.tfrecord"
    content = b"".join(map(framed, (b"one", b"two")))
    file.write_bytes(gzip.compress(content) if packed else content)
    BatchRun(plan(tmp_path, file, data_format="TF_RECORD_GZIP" if packed else "TF_RECORD"), Doubles("string")).run()
    assert results(tmp_path) == ['{"y":"oneone"}', '{"y":"twotwo"}']


def test_a_damaged_file_of_records_ends_the_job(tmp_path: Path) -> None:
    file = tmp_path / "rows.tfrecord"
    file.write_bytes(framed(b"one")[:-1])
    with pytest.raises(BadMessageError, match="cut short"):
        BatchRun(plan(tmp_path, file, data_format="TF_RECORD"), Doubles("string")).run()
    assert results(tmp_path) == []


def test_an_unknown_signature_ends_the_job_before_it_reads(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputsError, match="No signature found for signature key other"):
        BatchRun(plan(tmp_path, signature="other"), Doubles())


def test_no_rows_at_all(tmp_path: Path) -> None:
    file = tmp_path / "empty"
    file.touch()
    BatchRun(plan(tmp_path, file), Doubles()).run()
    assert not results(tmp_path) and not errors(tmp_path)
    assert told(tmp_path)["predictions"] == 0


class Dies(Doubles):
    def run(self, signature: str, inputs: dict[str, Any]) -> dict[str, Any]:
        if (inputs["x"] < 0).any():
            raise KeyboardInterrupt
        return super().run(signature, inputs)


def test_what_is_done_is_not_repeated(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("a", "b", "c")]
    for number, file in enumerate(files):
        file.write_text("".join(f"[{number}, {row}]\n" for row in range(20)))
    files[1].write_text("[-1, 1]\n" * 20)
    with pytest.raises(KeyboardInterrupt):
        BatchRun(plan(tmp_path, *files), Dies()).run()
    assert told(tmp_path)["predictions"] == len(results(tmp_path)) == 20
    before = sorted((tmp_path / "out").iterdir())
    files[0].write_text("these were read before\n")
    rest = Doubles()
    BatchRun(plan(tmp_path, *files), rest).run()
    assert rest.seen == 40
    assert len(results(tmp_path)) == told(tmp_path)["predictions"] == 60
    assert [file.name for file in before] == ["prediction.results-00000-of-00003"]


ITEMS = st.sampled_from(["1", "-2.5", "101", "1e400", "NaN", "null", "7e-3", "", "[1]", "true", "12345678901234567890"])
ROW = st.lists(ITEMS, min_size=1, max_size=3).map(lambda items: f"[{', '.join(items)}]")
LINES = (
    st.lists(st.floats(-99, 99, width=32).map(repr), min_size=2, max_size=2).map(lambda items: f"[{','.join(items)}]")
    | ROW
    | ROW.map(lambda row: f'{{"x": {row}}}')
    | st.tuples(ROW, ROW).map(lambda two: f"{two[0]},{two[1]}")
    | st.sampled_from(["[1", "2]", "[1,2]]", "[[1,2]", "[1,2", "[3,4],", "],[", "nonsense", " [1,2] ", '[1,2],"x":[3]'])
)


@given(st.lists(LINES, min_size=1, max_size=8), st.integers(1, 4))
def test_what_becomes_of_a_line_does_not_depend_on_its_neighbours(
    tmp_path_factory: Any, lines: list[str], batch_size: int
) -> None:
    together = tmp_path_factory.mktemp("together")
    (together / "rows").write_text("\n".join(lines))
    BatchRun(plan(together, together / "rows", batch_size=batch_size), Doubles()).run()
    good, bad = [], []
    for number, line in enumerate(lines, 1):
        status, body = predict(predictor(Doubles()), b'{"instances":[%b]}' % line.encode())
        answer = json.loads(body)
        if status == 200 and len(answer["predictions"]) == 1:
            good.append(answer["predictions"][0])
        else:
            bad.append(number)
    assert list(map(str, map(json.loads, results(together)))) == list(map(str, good))  # NaN is not equal to itself
    assert [error["line"] for error in errors(together)] == bad


class Waits(Doubles):
    """Says when it runs, and waits for a word."""

    def __init__(self) -> None:
        super().__init__()
        self.began: list[float] = []
        self.go = threading.Event()

    def run(self, signature: str, inputs: dict[str, Any]) -> dict[str, Any]:
        self.began.append(float(inputs["x"][0, 0]))
        assert self.go.wait(90)
        return super().run(signature, inputs)


def test_the_next_rows_are_parsed_while_the_model_runs(tmp_path: Path) -> None:
    file = tmp_path / "rows"
    file.write_text("".join(f"[{row}, 0]\n" for row in range(9)))
    model = Waits()
    batch = BatchRun(plan(tmp_path, file, batch_size=1), model)
    parsed: list[int] = []
    read_lines = batch._predictor.read_lines

    def noting(lines: Sequence[bytes], signature: str) -> Any:
        parsed.append(len(parsed))
        return read_lines(lines, signature)

    batch._predictor.read_lines = noting  # type: ignore[method-assign]
    running = threading.Thread(target=batch.run)
    running.start()
    eventually(lambda: len(parsed), lambda count: count == 2)  # one is with the model, one waits for it
    assert model.began == [0.0]
    model.go.set()
    running.join(90)
    assert len(results(tmp_path)) == 9


def test_online_and_batch_answers_are_the_same_bytes(tmp_path: Path) -> None:
    lines = [f"[{number / 7}, {number * 1e-9}]" for number in range(50)]
    file = tmp_path / "rows"
    file.write_text("\n".join(lines))
    BatchRun(plan(tmp_path, file, batch_size=7), Doubles()).run()
    model: TensorModel = Doubles()
    status, online = predict(predictor(model), b'{"instances":[%b]}' % ",".join(lines).encode())
    assert status == 200
    assert online == b'{"predictions":[%b]}' % ",".join(results(tmp_path)).encode()


@given(
    lines=st.lists(st.binary(max_size=30).map(lambda raw: raw.replace(b"\n", b"").replace(b"\r", b"")), max_size=40),
    piece=st.integers(1, 200),
    ends=st.booleans(),
)
def test_pieces_are_the_whole_file(tmp_path_factory: Any, lines: list[bytes], piece: int, ends: bool) -> None:
    file = tmp_path_factory.mktemp("cut") / "rows"
    file.write_bytes(b"\n".join(lines) + (b"\n" if ends else b""))
    shards = split_into_shards([str(file)], "JSON", root="/buckets", shard_bytes=piece)
    assert [shard.number for shard in shards] == list(range(len(shards)))
    found = [(row.number, row.content) for shard in shards for row in rows(shard, "JSON", root="/buckets")]
    assert found == [(number, line) for number, line in enumerate(lines, 1) if line.strip()]
    assert sum(shard.size for shard in shards) == file.stat().st_size


def test_a_file_of_records_is_one_shard(tmp_path: Path) -> None:
    file = tmp_path / "rows"
    file.write_bytes(framed(b"x" * 100) * 10)
    assert split_into_shards([str(file)], "TF_RECORD", root="/buckets", shard_bytes=10) == [
        Shard(0, str(file), 0, file.stat().st_size, 1)
    ]


@pytest.mark.parametrize("swap", SWAPS)
@pytest.mark.parametrize("size", ["whole", "pieces"])
def test_an_input_that_becomes_a_link_is_not_read(tmp_path: Path, swap: Swap, size: str) -> None:
    file = tmp_path / "buckets" / "mine" / "data" / "rows"
    file.parent.mkdir(parents=True)
    file.write_text("[1, 2]\n" * 4)
    root, piece = str(tmp_path / "buckets"), 100 if size == "whole" else 7
    shards = split_into_shards([str(file)], "JSON", root=root, shard_bytes=piece)
    assert [row.content for shard in shards for row in rows(shard, "JSON", root=root)] == [b"[1, 2]"] * 4
    swap(file, b"[6, 6]\n" * 4)
    assert file.read_bytes() == b"[6, 6]\n" * 4
    with pytest.raises(OSError, match="replaced by a link"):
        list(rows(shards[0], "JSON", root=root))
    with pytest.raises(OSError, match="replaced by a link"):
        split_into_shards([str(file)], "JSON", root=root, shard_bytes=piece)
    with pytest.raises(OSError, match="replaced by a link"):
        BatchRun(plan(tmp_path, file), Doubles())
