"""The parts of an upload, however its bytes arrive, and with work that grows with the bytes alone."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable

import pytest

from trainshed.api.http.multipart import MAX_DESCRIPTION_BYTES, MAX_MEDIA_HEADERS_BYTES, Related
from trainshed.errors import InvalidArgumentError, PayloadTooLargeError

CONTENT_TYPE = "multipart/related; boundary=b--b"
DESCRIPTION = b'{"name": "a--b--b"}'
MEDIA = b"one\r\n--b--a\r\ntwo\n--b--b three"


def upload(line_end: bytes = b"\r\n", preamble: bytes = b"") -> bytes:
    lines = (
        *(preamble + b"--b--b  ", b"content-type: application/json", b"", DESCRIPTION),
        *(b"--b--b", b"content-type: image/png", b"", MEDIA, b"--b--b--", b""),
    )
    return line_end.join(lines)


async def _stream(chunks: Iterable[bytes]) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk


def read(chunks: Iterable[bytes]) -> tuple[bytes, str, bytes]:
    async def parts() -> tuple[bytes, str, bytes]:
        related = Related(CONTENT_TYPE, _stream(chunks))
        description = await related.description()
        await related.begin_media()
        return description, related.media_type, b"".join([chunk async for chunk in related.media()])

    return asyncio.run(parts())


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
@pytest.mark.parametrize("preamble", [b"", b"what old clients read\r\n"])
def test_the_parts_do_not_depend_on_the_chunks(size: int, preamble: bytes) -> None:
    body = upload(preamble=preamble)
    assert read(body[at : at + size] for at in range(0, len(body), size)) == (DESCRIPTION, "image/png", MEDIA)


def test_lines_may_end_in_lf_alone() -> None:
    body = upload(b"\n").replace(MEDIA, b"one")
    assert read([body[at : at + 1] for at in range(len(body))]) == (DESCRIPTION, "image/png", b"one")


def begin(phase: str) -> bytes:
    """The start of an upload, up to the middle of what is looked for."""
    return {
        "boundary": b"",
        "padding": b"--b--b ",
        "description": b"--b--b\r\n\r\n",
        "media headers": b"--b--b\r\n\r\n{}\r\n--b--b\r\nx: ",
    }[phase]


@pytest.mark.parametrize("phase", ["boundary", "padding", "description", "media headers"])
def test_a_byte_costs_the_same_however_much_came_before(phase: str) -> None:
    filler = b" " if phase == "padding" else b"y"
    large = (MAX_MEDIA_HEADERS_BYTES if phase == "media headers" else MAX_DESCRIPTION_BYTES) - 4096

    def cpu_s(before: int) -> float:
        chunks = [begin(phase) + filler * before, *[filler] * 1000]
        started = time.process_time()
        with pytest.raises(InvalidArgumentError):
            read(chunks)
        return time.process_time() - started

    cpu_s(16)
    assert min(cpu_s(large) for _ in range(3)) < 5 * min(cpu_s(16) for _ in range(3)), "the work is quadratic"


@pytest.mark.parametrize("phase", ["boundary", "description", "media headers"])
def test_a_head_has_a_limit(phase: str) -> None:
    def endless() -> Iterable[bytes]:
        yield begin(phase)
        while True:
            yield b"y" * 10_000

    with pytest.raises(PayloadTooLargeError):
        read(endless())
