"""Frames: what one end packs, the other reads, however the bytes were split."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainshed.serving.frames import (
    ANSWER_HEAD,
    REQUEST_HEAD,
    BadFrameError,
    FrameKind,
    FrameReader,
    pack_raw,
    pack_request,
    unpack_raw,
)

IDS = st.integers(0, 2**64 - 1)


@given(
    st.lists(st.tuples(IDS, st.sampled_from(FrameKind), st.binary(max_size=200)), max_size=5),
    st.lists(st.integers(1, 40), min_size=1),
)
def test_requests_arrive_as_they_were_sent(frames: list[tuple[int, FrameKind, bytes]], sizes: list[int]) -> None:
    data = b"".join(pack_request(*frame) for frame in frames)
    reader = FrameReader(REQUEST_HEAD, body_limit=200)
    assert _fed(reader, data, sizes) == [(number, int(kind), body) for number, kind, body in frames]


@given(st.lists(st.tuples(IDS, st.integers(0, 599), st.binary(max_size=50)), max_size=5), st.integers(1, 30))
def test_answers_arrive_as_they_were_sent(frames: list[tuple[int, int, bytes]], size: int) -> None:
    data = b"".join(ANSWER_HEAD.pack(len(body), number, status) + body for number, status, body in frames)
    assert _fed(FrameReader(ANSWER_HEAD, body_limit=50), data, [size]) == frames


LONG = [(1, 1, b"a" * 70_000), (2, 2, b"b"), (3, 1, b""), (4, 3, bytes(range(256)) * 1000), (5, 1, b"c" * 65_536)]


@given(
    st.lists(st.sampled_from(LONG), max_size=4), st.lists(st.sampled_from([1, 13, 500, 65_549, 1 << 18]), min_size=1)
)
def test_long_bodies_arrive_too(frames: list[tuple[int, int, bytes]], sizes: list[int]) -> None:
    data = b"".join(pack_request(number, FrameKind(kind), body) for number, kind, body in frames)
    sizes = [*sizes, 1 << 16]  # so that it does not take for ever
    assert _fed(FrameReader(REQUEST_HEAD, body_limit=1 << 20), data, sizes) == frames
    assert _received(FrameReader(REQUEST_HEAD, body_limit=1 << 20), data, sizes) == frames


def test_a_body_is_not_what_was_received_into_but_a_copy() -> None:
    reader = FrameReader(REQUEST_HEAD, body_limit=1 << 20)
    assert reader.feed(pack_request(1, FrameKind.PREDICT, b"x" * 70_000)[:100]) == []
    buffer = reader.buffer
    assert buffer is not None
    buffer[:] = b"x" * len(buffer)
    ((_, _, body),) = reader.filled(len(buffer))
    buffer[:] = b"y" * len(buffer)
    assert body == b"x" * 70_000
    assert reader.buffer is None


@pytest.mark.parametrize("size", [1, 13, 100])
def test_a_frame_beyond_the_limit_is_refused_by_its_head(size: int) -> None:
    reader = FrameReader(REQUEST_HEAD, body_limit=10)
    with pytest.raises(BadFrameError, match="11 bytes"):
        _fed(reader, pack_request(1, FrameKind.PREDICT, b"x" * 11), [size])


@given(st.text(st.characters(max_codepoint=255), max_size=50), st.binary(max_size=50))
def test_raw_bodies_keep_their_content_type(content_type: str, data: bytes) -> None:
    assert unpack_raw(pack_raw(content_type, data)) == (content_type, data)


@pytest.mark.parametrize("body", [b"", b"\x05", b"\x05\x00text"])
def test_a_raw_body_that_is_cut_short_is_refused(body: bytes) -> None:
    with pytest.raises(BadFrameError):
        unpack_raw(body)


def _fed(reader: FrameReader, data: bytes, sizes: list[int]) -> list[tuple[int, int, bytes]]:
    found: list[tuple[int, int, bytes]] = []
    turn = 0
    while data:
        size = sizes[turn % len(sizes)]
        found += reader.feed(data[:size])
        data, turn = data[size:], turn + 1
    return found


def _received(reader: FrameReader, data: bytes, sizes: list[int]) -> list[tuple[int, int, bytes]]:
    """As a connection does it: into the place where a long body goes, if there is one."""
    found: list[tuple[int, int, bytes]] = []
    turn = 0
    while data:
        size = sizes[turn % len(sizes)]
        if (buffer := reader.buffer) is not None:
            size = min(size, len(buffer), len(data))
            buffer[:size] = data[:size]
            found += reader.filled(size)
        else:
            found += reader.feed(data[:size])
        data, turn = data[size:], turn + 1
    return found
