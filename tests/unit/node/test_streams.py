"""Frames come out as they went in, however the bytes are cut; what was read can be removed."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainshed.node.remote.setup import substitution
from trainshed.node.remote.streams import ERR, EXIT, OUT, SAMPLE, StreamDecoder, StreamReader, StreamWriter

FRAMES = [(OUT, b"one\n"), (ERR, b""), (SAMPLE, bytes(range(256)) * 3), (OUT, b"x" * 1000), (EXIT, b"{}")]


def _read_all(reader: StreamReader, offset: int = 0, limit: int = 7) -> bytes:
    found = b""
    while piece := reader.read(offset + len(found), limit):
        found += piece
    return found


@given(segment=st.integers(1, 400), limit=st.integers(1, 500))
def test_frames_come_back_whatever_the_sizes_of_files_and_reads(
    tmp_path_factory: pytest.TempPathFactory, segment: int, limit: int
) -> None:
    folder = tmp_path_factory.mktemp("stream")
    writer, reader, frames = StreamWriter(str(folder), segment), StreamReader(str(folder), segment), StreamDecoder()
    found = []
    for kind, payload in FRAMES:
        writer.append(kind, payload)
        found += frames.feed(_read_all(reader, frames.offset, limit))
        frames.resume()
    assert found == FRAMES
    assert all(path.stat().st_size <= segment for path in folder.iterdir())


def test_a_reader_goes_on_from_the_last_whole_frame(tmp_path: Path) -> None:
    writer, reader, frames = StreamWriter(str(tmp_path)), StreamReader(str(tmp_path)), StreamDecoder()
    for kind, payload in FRAMES:
        writer.append(kind, payload)
    whole = reader.read(0)
    assert frames.feed(whole[:12]) == FRAMES[:1]
    frames.resume()  # the connection broke in the middle of the second frame
    assert frames.feed(reader.read(frames.offset)) == FRAMES[1:]


def test_what_was_read_is_removed_and_the_rest_is_not(tmp_path: Path) -> None:
    writer, reader = StreamWriter(str(tmp_path), 10), StreamReader(str(tmp_path), 10)
    writer.append(OUT, b"a" * 40)
    before = _read_all(reader)
    reader.forget(25)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["000002", "000003", "000004"]
    assert _read_all(reader, 25) == before[25:]
    reader.forget(25)
    assert _read_all(reader, 25) == before[25:]


def test_a_full_disk_delays_frames_and_loses_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer, reader = StreamWriter(str(tmp_path)), StreamReader(str(tmp_path))
    write = os.write

    def half(fd: int, data: bytes) -> int:
        if len(data) < 3:
            raise OSError(errno.ENOSPC, "full")
        return write(fd, data[: len(data) // 2])

    monkeypatch.setattr(os, "write", half)
    writer.append(OUT, b"some words")
    assert writer.pending_bytes and not writer.flush()
    monkeypatch.setattr(os, "write", write)
    assert writer.flush()
    assert StreamDecoder().feed(reader.read(0)) == [(OUT, b"some words")]


def test_what_is_no_frame_is_refused() -> None:
    with pytest.raises(ValueError, match="byte 9"):
        StreamDecoder().feed(b"\x01\0\0\0\x04abcd" + b"\xff\0\0\0\0")


def test_placeholders_become_addresses_and_ports_numbers() -> None:
    fill = substitution(
        {"node": "/n"}, {"master-replica-0": ["10.0.0.1", "2222"], "ps-replica-0": ["10.0.0.2", "3333"]}
    )
    assert fill('{"ps":["@host:ps-replica-0@:@port:ps-replica-0@"]}') == '{"ps":["10.0.0.2:3333"]}'
    assert fill('{"open_ports":["@port:master-replica-0@"]}') == '{"open_ports":[2222]}'
    assert fill("@node@/x @other@ a@b") == "/n/x @other@ a@b"
