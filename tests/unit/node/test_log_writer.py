"""Lines, severities, limits and times of replicas' logs."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainshed.node.supervisor.log_writer import (
    LINE_MAX_BYTES,
    STDERR,
    STDOUT,
    TAIL_MAX_BYTES,
    LineSplitter,
    LogWriter,
    ReplicaLog,
    SeverityTracker,
    own_severity,
    printable,
    strip_prefix,
)
from trainshed.node.supervisor.secrets import Mask


@pytest.mark.parametrize(
    ("line", "level"),
    [
        ("2026-11-15 21:17:35.123456: W tensorflow/core/framework/op_kernel.cc:1830] OP_REQUIRES", "WARNING"),
        ("2026-11-15 21:17:35.123456: I tensorflow/core/platform/cpu_feature_guard.cc:210] AVX2", "INFO"),
        ("2026-11-15 21:17:35.123456: F tensorflow/core/x.cc:1] Check failed", "CRITICAL"),
        ("I1115 21:17:35.123456  1234 server.cc:20] started", "INFO"),
        ("W1115 21:17:35.123456789    1234 ev_poll.cc:1] slow", "WARNING"),
        ("E0000 00:00:1731705455.123456    1234 cuda_dnn.cc:8310] Unable to register", "ERROR"),
        ("I0000 00:00:1731705455.123456    1234 port.cc:153] oneDNN", "INFO"),
        ("INFO:root:step 10", "INFO"),
        ("WARNING:tensorflow:From trainer/task.py:12", "WARNING"),
        ("DEBUG:my.logger-2:x", "DEBUG"),
        ("CRITICAL:root:x", "CRITICAL"),
        ("2026-11-15 21:17:35,123 - trainer.task - INFO - epoch 1", "INFO"),
        ("2026-11-15 21:17:35,123 WARNING epoch 1", "WARNING"),
        ("Traceback (most recent call last):", ""),
        ("INFORMATION: x", ""),
        ("I am a line", ""),
        ("loss: 0.5", ""),
        ("", ""),
    ],
)
def test_severity(line: str, level: str) -> None:
    assert own_severity(line) == level


def levels(*lines: str) -> list[str]:
    tracker = SeverityTracker(STDERR)
    return [tracker.next(line) for line in lines]


def test_lines_of_a_record_have_its_severity() -> None:
    record = (
        "INFO:tensorflow:Using config: {'_session_config': allow_soft_placement: true",
        "graph_options {",
        "  rewrite_options {",
        "    meta_optimizer_iterations: ONE",
        "  }",
        "}",
        ", '_save_summary_steps': 100, '_cluster_spec': ['a',",
        "'b']}",
    )
    assert levels(*record) == ["INFO"] * len(record)
    assert levels("WARNING:tensorflow:From task.py:12: x is deprecated.", "  Use y.") == ["WARNING"] * 2
    assert levels("INFO:root:loaded", "done") == ["INFO", STDERR]
    assert levels("  indented", "INFO:root:loaded") == [STDERR, "INFO"]


def test_what_fails_behind_a_record_is_an_error() -> None:
    assert levels("INFO:root:state [", "Traceback (most recent call last):", "  File", "E: x") == [
        "INFO",
        *[STDERR] * 3,
    ]
    opened = levels("INFO:root:a bracket that nobody closes [", *["line"] * 600)
    assert (opened[1], opened[-1]) == ("INFO", STDERR)


def test_control_characters_are_spelled_out() -> None:
    assert printable(b"a\tb\x00\x1b[0m\x7f\xff") == "a\tb\\x00\\x1b[0m\\x7f\\xff"
    assert printable("grüße 日本 \u0085".encode()) == "grüße 日本 \\x85"


def test_backspaces_leave_the_last_state_of_a_line() -> None:
    assert printable(b"1/10 [=>...]" + b"\b" * 12 + b"2/10 [==>..]") == "2/10 [==>..]"
    assert printable(b"10/10 done" + b"\b" * 10) == "10/10 done"
    assert printable(b"abc\bX\b\b\b\b\b\b1") == "1bX"
    log = LineSplitter()
    assert log.feed(b"1/2" + b"\b" * 3 + b"\r2/2\n\b\b\b \n") == [b"1/2\b\b\b", b"2/2"]


CHUNKS = st.lists(st.binary(max_size=40) | st.sampled_from([b"\n", b"\r", b" ", "ä…日".encode()]), max_size=30)


@given(chunks=CHUNKS)
def test_how_output_is_split_into_reads_makes_no_difference(chunks: list[bytes]) -> None:
    bit_by_bit, at_once = LineSplitter(), LineSplitter()
    found = [line for chunk in chunks for line in bit_by_bit.feed(chunk)] + bit_by_bit.flush()
    whole = b"".join(chunks)
    assert found == at_once.feed(whole) + at_once.flush()
    assert found == [line for line in whole.replace(b"\r", b"\n").split(b"\n") if line.strip(b" \t\n\r\v\f\b")]


@given(
    size=st.integers(LINE_MAX_BYTES - 3, 4 * LINE_MAX_BYTES),
    letter=st.sampled_from(["x", "ä", "日", "𝄞"]),
    ended=st.booleans(),
)
def test_an_endless_line_comes_in_whole_characters_and_nothing_is_lost(size: int, letter: str, ended: bool) -> None:
    line = letter * (size // len(letter.encode()))
    lines = LineSplitter()
    data = line.encode() + (b"\n" if ended else b"")
    found = []
    for start in range(0, len(data), 50_000):
        found += lines.feed(data[start : start + 50_000])
    found += lines.flush()
    pieces = [piece.decode() for piece in found]
    assert all(piece.endswith("…") for piece in pieces[:-1])
    assert "".join(pieces[:-1]).replace("…", "") + pieces[-1] == line
    assert max(len(piece) for piece in found) <= LINE_MAX_BYTES + 3


def _read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize("size", [1, 7, 4096])
def test_secrets_are_masked_however_the_output_is_split_and_cut(tmp_path: Path, size: int) -> None:
    value = "the-planted-value"
    mask = Mask([value, value + "-and-more"])
    path = tmp_path / "log.jsonl"
    log = ReplicaLog("r", LogWriter(str(path), mask), 1 << 20)
    long_line = "x" * (LINE_MAX_BYTES - 5) + value + "y" * 50
    text = f"a {value} b {value}-and-more c\n{long_line}\n{value}"
    data = text.encode()
    for start in range(0, len(data), size):
        log.feed(STDOUT, data[start : start + size])
    assert "planted" not in log.tail()
    log.close()
    log.say(f"Running command: {value}")
    messages = [json.loads(line)["m"] for line in path.read_text().splitlines()]
    assert messages[0] == "a [secret] b [secret] c"
    assert messages[-2:] == ["[secret]", "Running command: [secret]"]
    assert "".join(messages[1:-2]).replace("…", "") == "x" * (LINE_MAX_BYTES - 5) + "[secret]" + "y" * 50
    assert all(part not in path.read_text() for part in ("the-pla", "lanted", "-value"))


def test_a_tail_that_begins_within_a_secret_has_no_part_of_it(tmp_path: Path) -> None:
    value = "the-planted-value"
    for shift in range(len(value) + 2):
        log = ReplicaLog("r", LogWriter(str(tmp_path / "log"), Mask([value])), 1)
        log.feed(STDERR, f"{value}{'z' * (TAIL_MAX_BYTES - shift)}{value}".encode())
        assert set(log.tail()) <= set("[secret]z"), shift


def test_streams_do_not_mix_within_a_line(tmp_path: Path) -> None:
    log = ReplicaLog("master-replica-0", LogWriter(str(tmp_path / "log")), 1000)
    log.feed(STDOUT, b"one ")
    log.feed(STDERR, b"two ")
    log.feed(STDOUT, b"three\n")
    log.feed(STDERR, b"INFO:root:four\nWARNING:root:five")
    log.close()
    lines = [(line["s"], line["m"]) for line in _read(tmp_path / "log")]
    assert lines == [("INFO", "one three"), ("ERROR", "two INFO:root:four"), ("WARNING", "five")]


def test_times_grow_even_if_the_clock_steps_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = LogWriter(str(tmp_path / "log"))
    clock = iter([1000.0, 400.0, 1000.000002, 2000.0])
    monkeypatch.setattr(time, "time", lambda: next(clock))
    for _ in range(4):
        log.write([("r", "INFO", "a", ""), ("r", "INFO", "b", "")])
    times = [line["t"] for line in _read(tmp_path / "log")]
    assert times == sorted(set(times))
    assert times[0] == 1_000_000_000
    assert times[-2] == 2_000_000_000


@given(
    counts=st.lists(st.integers(1, 60), min_size=1, max_size=12),
    limit=st.integers(0, 800),
    ended=st.booleans(),
)
def test_each_line_is_kept_or_counted(
    tmp_path_factory: pytest.TempPathFactory, counts: list[int], limit: int, ended: bool
) -> None:
    path = tmp_path_factory.getbasetemp() / "limited"
    path.unlink(missing_ok=True)
    log = ReplicaLog("r", LogWriter(str(path)), limit)
    data = b"".join(b"line %d\n" % n for n in range(40))[: None if ended else -1]
    for size in [*counts, len(data)]:
        log.feed(STDOUT, data[:size])
        data = data[size:]
    log.close()
    lines = _read(path)
    kept = [line["m"] for line in lines if line["m"].startswith("line")]
    assert kept == [f"line {n}" for n in range(len(kept))]
    lost = [line["m"] for line in lines if line["m"].startswith("Dropped")]
    if len(kept) == 40:
        assert lost == []
    else:
        size = sum(len(f"line {n}") + 1 for n in range(len(kept), 40)) - (0 if ended else 1)
        [mark] = lost
        assert mark.startswith(f"Dropped {40 - len(kept)} lines (")
        assert abs(int(mark.split("(")[1].split()[0]) - size) <= 1  # the last line end may be missing
        assert sum("has reached its limit" in line["m"] for line in lines) == 1


def test_the_tail_is_of_stderr_and_goes_on_past_the_limit(tmp_path: Path) -> None:
    log = ReplicaLog("r", LogWriter(str(tmp_path / "log")), 10)
    log.feed(STDOUT, b"out\n")
    assert log.tail() == "out\n"
    log.feed(STDERR, b"a long line that is over the limit\n")
    log.feed(STDERR, b"the reason\n")
    assert log.tail().endswith("the reason\n")


def test_a_new_copy_begins_with_a_line_and_a_tail_of_its_own(tmp_path: Path) -> None:
    seen: list[bytes] = []
    log = ReplicaLog("r", LogWriter(str(tmp_path / "log")), 1000, seen.extend)
    log.feed(STDERR, b"step 1\nthe old copy was cut")
    log.reset()
    assert log.tail() == ""
    log.feed(STDERR, b"the new one\n")
    assert log.tail() == "the new one\n"
    assert [line["m"] for line in _read(tmp_path / "log")] == ["step 1", "the old copy was cut", "the new one"]
    assert seen == [b"step 1", b"the old copy was cut", b"the new one"]


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("INFO:root:Train [master/0], step 104: loss: 2.099", "Train [master/0], step 104: loss: 2.099"),
        ("WARNING:tensorflow.python.x:careful: it is hot", "careful: it is hot"),
        ("INFO:root:", "INFO:root:"),
        ("INFO: no name", "INFO: no name"),
        ("plain: text", "plain: text"),
    ],
)
def test_the_level_and_name_of_pythons_logging_are_not_part_of_the_message(line: str, wanted: str) -> None:
    assert strip_prefix(line) == wanted


def test_short_lines_of_a_value_are_masked_after_its_long_ones() -> None:
    mask = Mask(["planted-line"], ["ab=", "c"])
    splitter = LineSplitter(mask)
    assert splitter.feed(b"c\nplanted-line\nab=\n") == [b"c", b"[secret]", b"[secret]"]
    assert splitter.feed(b"c\nab= and more\nc\n") == [b"[secret]", b"ab= and more", b"c"]
    assert mask.lines(b"c\nplanted-line\nab=\nother\nc") == b"c\n[secret]\n[secret]\nother\nc"
