"""Frames: what one end packs, the other reads, however the bytes were split."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainshed.serving.frames import (
    ANSWER_HEAD,
    REQUEST_HEAD,
    BadFrame,
    FrameReader,
    Kind,
    pack_raw,
    pack_request,
    unpack_raw,
)

IDS = st.integers(0, 2**64 - 1)


@given(
    st.lists(st.tuples(IDS, st.sampled_from(Kind), st.binary(max_size=200)), max_size=5),
    st.lists(st.integers(1, 40), min_size=1),
)
def test_requests_arrive_as_they_were_sent(frames: list[tuple[int, Kind, bytes]], sizes: list[int]) -> None:
    data = b"".join(pack_request(*frame) for frame in frames)
    reader = FrameReader(REQUEST_HEAD, body_limit=200)
    assert _fed(reader, data, sizes) == [(number, int(kind), body) for number, kind, body in frames]


@given(st.lists(st.tuples(IDS, st.integers(0, 599), st.binary(max_size=50)), max_size=5), st.integers(1, 30))
def test_answers_arrive_as_they_were_sent(frames: list[tuple[int, int, bytes]], size: int) -> None:
    data = b"".join(ANSWER_HEAD.pack(len(body), number, status) + body for number, status, body in frames)
    assert _fed(FrameReader(ANSWER_HEAD, body_limit=50), data, [size]) == frames


@pytest.mark.parametrize("size", [1, 13, 100])
def test_a_frame_beyond_the_limit_is_refused_by_its_head(size: int) -> None:
    reader = FrameReader(REQUEST_HEAD, body_limit=10)
    with pytest.raises(BadFrame, match="11 bytes"):
        _fed(reader, pack_request(1, Kind.PREDICT, b"x" * 11), [size])


@given(st.text(st.characters(max_codepoint=255), max_size=50), st.binary(max_size=50))
def test_raw_bodies_keep_their_content_type(content_type: str, data: bytes) -> None:
    assert unpack_raw(pack_raw(content_type, data)) == (content_type, data)


@pytest.mark.parametrize("body", [b"", b"\x05", b"\x05\x00text"])
def test_a_raw_body_that_is_cut_short_is_refused(body: bytes) -> None:
    with pytest.raises(BadFrame):
        unpack_raw(body)


def _fed(reader: FrameReader, data: bytes, sizes: list[int]) -> list[tuple[int, int, bytes]]:
    found: list[tuple[int, int, bytes]] = []
    turn = 0
    while data:
        size = sizes[turn % len(sizes)]
        found += reader.feed(data[:size])
        data, turn = data[size:], turn + 1
    return found
