"""Uploads that take several requests, around a crash: what was received is there, and the upload goes on."""

from __future__ import annotations

import hashlib
import os
import re
from urllib.parse import urlsplit

from trainshed.testing.reliability.crash.points import Scenario
from trainshed.testing.reliability.crash.world import BUCKET, World, acknowledged

CHUNK = os.urandom(256 << 10)


def upload_scenario(world: World, name: str) -> Scenario:
    """A resumable upload of two chunks, which goes on from what the next server has of it."""
    begin = f"/upload/storage/v1/b/{BUCKET}/o?uploadType=resumable&name={name}"
    begun = world.try_call("POST", begin, {})
    session, size, received, done = "", 2 * len(CHUNK), False, False
    if acknowledged(begun):
        assert begun is not None
        location = urlsplit(begun.headers["location"])
        session = f"{location.path}?{location.query}"
        first = {"content-range": f"bytes 0-{len(CHUNK) - 1}/{size}"}
        last = {"content-range": f"bytes {len(CHUNK)}-{size - 1}/{size}"}
        sent = world.try_call("PUT", session, CHUNK, first)
        received = sent is not None and sent.status == 308
        done = received and acknowledged(world.try_call("PUT", session, CHUNK, last))
    yield
    if not session:
        return
    asked = world.call("PUT", session, b"", {"content-range": f"bytes */{size}"})
    if asked.status == 308:
        assert not done
        have = int(asked.headers["range"].rpartition("-")[2]) + 1 if "range" in asked.headers else 0
        assert have >= (len(CHUNK) if received else 0)
        rest = {"content-range": f"bytes {have}-{size - 1}/{size}"}
        assert acknowledged(world.call("PUT", session, (CHUNK + CHUNK)[have:], rest))
    else:
        assert asked.status == 200
    assert world.read(name) == CHUNK + CHUNK


def part_upload_scenario(world: World, name: str) -> Scenario:
    """An upload in parts, whose only part is sent again with other bytes. One of the two is there, and it completes."""
    begun = world.call("POST", f"/{BUCKET}/{name}?uploads", b"")
    [upload] = re.findall(r"<UploadId>(.*?)</UploadId>", begun.body.decode())
    path = f"/{BUCKET}/{name}?uploadId={upload}"
    sent = {}
    for data in (b"the first bytes", b"other bytes"):
        if acknowledged(answer := world.try_call("PUT", f"{path}&partNumber=1", data)):
            assert answer is not None
            sent[answer.headers["etag"].strip('"')] = data
    yield
    listed = world.call("GET", path).body.decode()
    [etag] = re.findall(r"<ETag>(?:&quot;|\")?(\w+)", listed)
    assert etag in (list(sent)[-1], hashlib.md5(b"other bytes", usedforsecurity=False).hexdigest())
    part = f"<Part><PartNumber>1</PartNumber><ETag>{etag}</ETag></Part>"
    completed = f"<CompleteMultipartUpload>{part}</CompleteMultipartUpload>".encode()
    assert world.call("POST", path, completed).status == 200
    assert world.read(name) == sent.get(etag, b"other bytes")
