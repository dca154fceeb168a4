"""Event files as TensorFlow writes them, and as someone would write them who wishes the server ill."""

from __future__ import annotations

import math
import os
import struct
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainshed.attempts import event_files, event_records
from trainshed.attempts.event_files import EventFiles, EventFolder, MetricMeaning, Scalar, launch_time_us, meaning
from trainshed.serving.formats.protobuf import BadMessageError
from trainshed.testing.workloads.event_files import (
    event,
    field,
    float_tensor,
    framed,
    simple_value,
    tensor_value,
    varint,
    write_events,
)


def look(files: EventFiles, root: Path, *parts: str) -> list[tuple[str, int, float]]:
    return [(each.tag, each.step, each.value) for each in files.read_new([EventFolder(root, parts)])]


def test_the_checksum_is_that_of_tensorflow() -> None:
    # The header of every event file: a record of 24 bytes.
    assert framed(b"x" * 24)[:12].hex() == "1800000000000000a37f4b22"


def test_scalars_of_both_generations_are_read(tmp_path: Path) -> None:
    (tmp_path / "events.out.tfevents.1").write_bytes(
        framed(event(1000.5, 0))
        + framed(event(1001.0, 7, simple_value("loss", 0.5), simple_value("accuracy", 0.25)))
        + framed(event(1002.0, 8, tensor_value("epoch_loss", float_tensor(0.125))))
        + framed(event(1003.0, 9, tensor_value("epoch_loss", float_tensor(2.0), plugin="")))  # told once, then known
        + framed(event(1004.0, 9, tensor_value("weights", float_tensor(2.0), plugin="histograms")))
    )
    assert look(EventFiles(since_us=0), tmp_path) == [
        ("loss", 7, 0.5),
        ("accuracy", 7, 0.25),
        ("epoch_loss", 8, 0.125),
        ("epoch_loss", 9, 2.0),
    ]


@pytest.mark.parametrize(
    ("tensor", "value"),
    [
        (varint(8) + varint(1) + field(5, struct.pack("<f", 0.5)), 0.5),  # float_val
        (varint(8) + varint(2) + field(4, struct.pack("<d", -3.25)), -3.25),
        (varint(8) + varint(3) + field(7, varint(-4)), -4.0),  # int_val
        (varint(8) + varint(9) + field(4, struct.pack("<q", 1 << 40)), float(1 << 40)),
        (varint(8) + varint(19) + field(13, varint(0x3C00)), 1.0),  # half
        (varint(8) + varint(14) + field(4, b"\x80\x3f"), 1.0),  # bfloat16
        (varint(8) + varint(1), 0.0),  # zeros are left out
        (varint(8) + varint(1) + field(4, struct.pack("<f", math.inf)), math.inf),
        (varint(8) + varint(1) + field(4, struct.pack("<2f", 1, 2)), None),  # two of them
        (varint(8) + varint(7) + field(8, b"text"), None),
    ],
)
def test_a_scalar_may_be_any_number(tensor: bytes, value: float | None) -> None:
    found = event_records.scalars(event(1.0, 3, tensor_value("t", tensor)), set()).values
    assert found == (() if value is None else (("t", value),))


def test_a_look_goes_on_where_the_last_one_ended_and_waits_for_the_end_of_a_record(tmp_path: Path) -> None:
    files = EventFiles(since_us=0)
    path = write_events(tmp_path / "train", (1, 1, {"loss": 3.0}))
    assert look(files, tmp_path) == [("loss", 1, 3.0)]
    whole = framed(event(2, 2, simple_value("loss", 2.0)))
    with path.open("ab") as file:
        file.write(whole[:20])
    assert look(files, tmp_path) == []
    with path.open("ab") as file:
        file.write(whole[20:])
    assert look(files, tmp_path) == [("loss", 2, 2.0)]
    assert files.complete


def test_what_an_earlier_training_left_in_the_folder_is_not_this_ones(tmp_path: Path) -> None:
    os.utime(write_events(tmp_path, (50, 1, {"loss": 9.0}), name="old"), (50, 50))
    write_events(tmp_path, (60, 2, {"loss": 8.0}), (200, 3, {"loss": 7.0}), name="new")
    assert look(EventFiles(since_us=100_000_000), tmp_path) == [("loss", 3, 7.0)]


def test_an_attempt_was_launched_when_its_spec_was_written(tmp_path: Path) -> None:
    assert launch_time_us(tmp_path, otherwise_us=7) == 7
    (tmp_path / "spec.json").touch()
    os.utime(tmp_path / "spec.json", (50, 50))
    assert launch_time_us(tmp_path, otherwise_us=7) == 50_000_000


def test_links_and_what_is_no_file_are_passed_over(tmp_path: Path) -> None:
    write_events(tmp_path / "secret", (1, 1, {"loss": 1.0}))
    job = tmp_path / "job"
    job.mkdir()
    (job / "events.out.tfevents.link").symlink_to(tmp_path / "secret" / "events.out.tfevents.1.host")
    (job / "folder").symlink_to(tmp_path / "secret")
    os.mkfifo(job / "events.out.tfevents.fifo")
    (job / "events.out.tfevents.dir").mkdir()
    (tmp_path / "linked").symlink_to(job)
    for parts in (("job",), ("linked",), ("absent",), ("job", "..", "secret"), ("job/../secret",), ("nul\0",)):
        assert look(EventFiles(since_us=0), tmp_path, *parts) == [], parts


def test_large_records_are_passed_over_without_being_read(tmp_path: Path) -> None:
    path = write_events(tmp_path, (1, 1, {"loss": 1.0}))
    with path.open("ab") as file:
        file.write(framed(b"\x22" + b"g" * (40 << 20)))  # a graph, larger than all that one look may read
    write_events(tmp_path, (2, 2, {"loss": 0.5}))
    files = EventFiles(since_us=0)
    assert look(files, tmp_path) == [("loss", 1, 1.0), ("loss", 2, 0.5)]
    assert files.complete


def test_one_look_is_bounded_and_the_next_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_files, "PASS_MAX_BYTES", 4096)
    monkeypatch.setattr(event_files, "_CHUNK_BYTES", 1024)
    monkeypatch.setattr(event_files, "RECORD_MAX_BYTES", 512)
    write_events(tmp_path, *((step, step, {"loss": 1.0}) for step in range(1, 401)))
    files, looks = EventFiles(since_us=0), 0
    found: list[tuple[str, int, float]] = []
    while not found or not files.complete:
        fresh = look(files, tmp_path)
        assert 0 < len(fresh) < 200
        found += fresh
        looks += 1
    assert [step for _, step, _ in found] == list(range(1, 401))
    assert looks > 2


def test_a_large_folder_does_not_keep_the_server_busy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_files, "MAX_NAMES", 50)
    for number in range(100):
        (tmp_path / f"a{number:03d}").touch()
    write_events(tmp_path / "deep", (1, 1, {"loss": 1.0}))
    assert look(EventFiles(since_us=0), tmp_path) == []


GOOD = b"".join(framed(event(step, step, simple_value("loss", 1.0 / step))) for step in range(1, 6))


@given(cut=st.integers(0, len(GOOD)))
def test_a_cut_file_gives_the_whole_records_before_the_cut(cut: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "a.tfevents").write_bytes(GOOD[:cut])
        found = look(EventFiles(since_us=0), Path(folder))
    assert [step for _, step, _ in found] == list(range(1, cut // (len(GOOD) // 5) + 1))


@given(at=st.integers(0, len(GOOD) - 1), flip=st.integers(1, 255))
def test_a_damaged_file_gives_what_comes_before_the_damage(at: int, flip: int) -> None:
    damaged = bytearray(GOOD)
    damaged[at] ^= flip
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "a.tfevents").write_bytes(damaged)
        files = EventFiles(since_us=0)
        found = look(files, Path(folder))
        assert look(files, Path(folder)) == []
    assert [step for _, step, _ in found] == list(range(1, at // (len(GOOD) // 5) + 1))


@given(record=st.binary(max_size=300))
def test_a_good_frame_around_anything_does_no_harm(record: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "a.tfevents").write_bytes(framed(record) + GOOD)
        for each in EventFiles(since_us=0).read_new([EventFolder(Path(folder), ())]):
            assert isinstance(each.value, float)


@given(inner=st.binary(max_size=60))
def test_a_good_event_around_anything_does_no_harm(inner: bytes) -> None:
    for value in (inner, tensor_value("loss", inner), field(1, b"t") + field(9, inner) + field(8, inner)):
        try:
            found = event_records.scalars(event(1.0, 1, value), {"t"}).values
        except BadMessageError:
            continue
        assert all(isinstance(number, float) for _, number in found)


@pytest.mark.parametrize(
    ("folder", "tag", "expected"),
    [
        ((), "loss", MetricMeaning("loss", False, False)),
        ((), "loss_1", MetricMeaning("loss", False, False)),
        ((), "global_step/sec", MetricMeaning("rate", False, False)),
        (("eval_continuous",), "accuracy", MetricMeaning("accuracy", True, False)),
        (("train",), "epoch_loss", MetricMeaning("loss", False, True)),
        (("validation",), "epoch_sparse_categorical_accuracy", MetricMeaning("accuracy", True, True)),
        (("validation",), "evaluation_loss_vs_iterations", MetricMeaning("loss", True, False)),
        ((), "Loss/train", MetricMeaning("loss", False, False)),
        ((), "Loss/test", MetricMeaning("loss", True, False)),
        ((), "val_accuracy", MetricMeaning("accuracy", True, False)),
        ((), "learning_rate", None),
        ((), "loss_scale", None),
        (("latest",), "loss", MetricMeaning("loss", False, False)),
    ],
)
def test_tags_have_the_meaning_that_people_give_them(
    folder: tuple[str, ...], tag: str, expected: MetricMeaning | None
) -> None:
    assert meaning(Scalar(folder, tag, 1, 1, 1.0)) == expected
