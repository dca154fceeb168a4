"""Buckets and objects over the Cloud Storage JSON API: lists, copies, and transfers that survive a lost connection."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, Protocol

from trainshed.client.transport import (
    MAX_ATTEMPTS,
    RETRYABLE_CODES,
    ApiError,
    Client,
    ConnectionLostError,
    segment,
    target,
)
from trainshed.errors import DataLossError

CHUNK_BYTES = 8 << 20  #: a multiple of 256 KiB, as the protocol requires
_READ_BYTES = 1 << 20

Progress = Callable[[int], None]


class Checksum(Protocol):
    def update(self, chunk: bytes) -> None: ...
    def digest(self) -> bytes: ...


def crc32c() -> Checksum:
    """Return a new CRC32C, the checksum that the storage API has for every object."""
    import google_crc32c

    return google_crc32c.Checksum()  # type: ignore[no-untyped-call]


def encode_checksum(checksum: Checksum) -> str:
    return base64.b64encode(checksum.digest()).decode()


def _no_progress(_count: int) -> None:
    return None


@dataclass(frozen=True, slots=True)
class ObjectListing:
    """Objects under a prefix and, with a delimiter, the folders there. Both in order of name."""

    objects: list[dict[str, Any]]
    prefixes: list[str]


class Storage:
    """Objects of one server. Every transfer is verified by CRC32C and resumes after a lost connection."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def buckets(self, project: str) -> Iterator[dict[str, Any]]:
        return self._client.pages("/storage/v1/b", "items", query={"project": project})

    def create_bucket(self, project: str, body: dict[str, Any]) -> dict[str, Any]:
        return self._client.call("POST", "/storage/v1/b", query={"project": project}, body=body)  # type: ignore[no-any-return]

    def bucket(self, bucket: str) -> dict[str, Any]:
        return self._client.call("GET", f"/storage/v1/b/{segment(bucket)}")  # type: ignore[no-any-return]

    def delete_bucket(self, bucket: str) -> None:
        self._client.call("DELETE", f"/storage/v1/b/{segment(bucket)}")

    def list(
        self, bucket: str, *, prefix: str = "", delimiter: str | None = None, limit: int | None = None
    ) -> ObjectListing:
        """List all objects whose names start with `prefix`; with `limit`, only the first ones."""
        listing = ObjectListing([], [])
        query = {"prefix": prefix or None, "delimiter": delimiter, "maxResults": limit, "pageToken": None}
        while True:
            page = self._client.call("GET", f"/storage/v1/b/{segment(bucket)}/o", query=query)
            listing.objects.extend(page.get("items", ()))
            listing.prefixes.extend(page.get("prefixes", ()))
            query["pageToken"] = page.get("nextPageToken")
            if limit is not None or not query["pageToken"]:
                return listing

    def delete(self, bucket: str, name: str) -> None:
        self._client.call("DELETE", _path(bucket, name))

    def copy(self, source: tuple[str, str], destination: tuple[str, str]) -> dict[str, Any]:
        """Copy an object on the server. Returns the new object's metadata."""
        token: str | None = None
        while True:
            path = f"{_path(*source)}/rewriteTo/b/{segment(destination[0])}/o/{segment(destination[1])}"
            response = self._client.call("POST", path, query={"rewriteToken": token}, body={})
            if response.get("done"):
                return response["resource"]  # type: ignore[no-any-return]
            token = response["rewriteToken"]

    def upload(
        self,
        source: BinaryIO,
        to: tuple[str, str],
        *,
        content_type: str,
        size: int | None,
        progress: Progress = _no_progress,
    ) -> dict[str, Any]:
        """Store `source`; `size` None means that it is a stream. Raises `DataLossError` if the checksum differs."""
        checksum = crc32c()
        if size is not None and size <= CHUNK_BYTES:
            data = source.read(CHUNK_BYTES + 1)
            checksum.update(data)
            resource = self._upload_small(data, to, content_type, encode_checksum(checksum))
            progress(len(data))
        else:
            resource = _Resumable(self._client, to, content_type, progress).send(source, size, checksum)
        if resource.get("crc32c") != encode_checksum(checksum):
            self.delete(*to)
            raise DataLossError(f"gs://{to[0]}/{to[1]} arrived damaged and was removed. Copy it again.")
        return resource

    def _upload_small(self, data: bytes, to: tuple[str, str], content_type: str, crc: str) -> dict[str, Any]:
        boundary = b"trainshed-" + base64.b16encode(crc.encode())
        while boundary in data:
            boundary += b"x"
        metadata = json.dumps({"name": to[1], "contentType": content_type, "crc32c": crc}).encode()
        content = (
            (b"--" + boundary + b"\r\ncontent-type: application/json; charset=utf-8\r\n\r\n" + metadata + b"\r\n")
            + (b"--" + boundary + b"\r\ncontent-type: " + content_type.encode() + b"\r\n\r\n")
            + (data + b"\r\n--" + boundary + b"--\r\n")
        )
        path = target(f"/upload/storage/v1/b/{segment(to[0])}/o", {"uploadType": "multipart", "name": to[1]})
        headers = {"content-type": f"multipart/related; boundary={boundary.decode()}"}

        def post() -> bytes:
            return self._client.read(self._client.exchange("POST", path, headers=headers, body=content))

        return json.loads(self._client.persist(post))  # type: ignore[no-any-return]

    def download(self, of: dict[str, Any], sink: BinaryIO, *, progress: Progress = _no_progress) -> None:
        """Write the object's bytes to `sink`, of the generation that `of` names.

        Raises `DataLossError` if the checksum differs.
        """
        checksum = crc32c()
        offset, size, failures = 0, int(of["size"]), 0
        path = target(_path(of["bucket"], of["name"]), {"alt": "media", "generation": of["generation"]})
        while offset < size:
            before = offset
            try:
                for chunk in self._chunks(path, offset):
                    sink.write(chunk)
                    checksum.update(chunk)
                    offset += len(chunk)
                    progress(len(chunk))
                if offset < size:
                    raise ConnectionLostError(f"gs://{of['bucket']}/{of['name']} ended early.", sent=True)
            except (ConnectionLostError, ApiError) as exc:
                if isinstance(exc, ApiError) and exc.code not in RETRYABLE_CODES:
                    raise
                failures = 0 if offset > before else failures + 1
                if failures >= MAX_ATTEMPTS:
                    raise
                self._client.pause(failures)
        if of.get("crc32c") and of["crc32c"] != encode_checksum(checksum):
            raise DataLossError(f"gs://{of['bucket']}/{of['name']} arrived damaged. Copy it again.")

    def _chunks(self, path: str, start: int) -> Iterator[bytes]:
        headers = {"range": f"bytes={start}-"} if start else {}
        response = self._client.exchange("GET", path, headers=headers)
        while chunk := self._client.read(response, _READ_BYTES):
            yield chunk


class _Resumable:
    """One resumable upload, chunk by chunk. After a lost connection it asks the server for the offset."""

    def __init__(self, client: Client, to: tuple[str, str], content_type: str, progress: Progress) -> None:
        self._client = client
        self._to = to
        self._content_type = content_type
        self._progress = progress

    def send(self, source: BinaryIO, size: int | None, checksum: Checksum) -> dict[str, Any]:
        session = self._client.persist(lambda: self._begin(size))
        offset = 0
        chunk = _read_chunk(source)
        while True:
            checksum.update(chunk)
            following = _read_chunk(source) if len(chunk) == CHUNK_BYTES else b""
            end = offset + len(chunk)
            total = str(end) if not following else "*" if size is None else str(size)
            resource = self._send_chunk(session, offset, chunk, total)
            self._progress(len(chunk))
            if not following:
                if resource is None:
                    raise DataLossError(f"The server wants more of gs://{self._to[0]}/{self._to[1]} than there is.")
                return resource
            offset, chunk = end, following

    def _begin(self, size: int | None) -> str:
        path = target(
            f"/upload/storage/v1/b/{segment(self._to[0])}/o", {"uploadType": "resumable", "name": self._to[1]}
        )
        headers = {"content-type": "application/json", "x-upload-content-type": self._content_type}
        if size is not None:
            headers["x-upload-content-length"] = str(size)
        body = json.dumps({"name": self._to[1], "contentType": self._content_type}).encode()
        response = self._client.exchange("POST", path, headers=headers, body=body)
        self._client.read(response)
        location = response.headers["location"]
        return "/" + location.split("://", 1)[-1].split("/", 1)[-1]

    def _send_chunk(self, session: str, offset: int, chunk: bytes, total: str) -> dict[str, Any] | None:
        """Send one chunk, and resend from the server's offset. Returns the object once it is complete."""
        sent, failures = 0, 0
        while True:
            unsent = chunk[sent:]
            span = f"{offset + sent}-{offset + len(chunk) - 1}" if unsent else "*"
            try:
                resource, stored = self._put(session, unsent, f"bytes {span}/{total}")
            except (ConnectionLostError, ApiError) as exc:
                if isinstance(exc, ApiError) and exc.code not in RETRYABLE_CODES:
                    raise
                failures += 1
                if failures >= MAX_ATTEMPTS:
                    raise
                self._client.pause(failures - 1)
                resource, stored = self._client.persist(lambda: self._put(session, b"", f"bytes */{total}"))
            if resource is not None:
                return resource
            if not offset <= stored <= offset + len(chunk):
                raise DataLossError(f"The server lost part of gs://{self._to[0]}/{self._to[1]}. Copy it again.")
            failures = 0 if stored - offset > sent else failures + (stored - offset < len(chunk))
            sent = stored - offset
            if sent == len(chunk) and total != str(offset + len(chunk)):
                return None
            if failures >= MAX_ATTEMPTS:
                raise ConnectionLostError(f"The server takes no more of gs://{self._to[0]}/{self._to[1]}.", sent=True)

    def _put(self, session: str, data: bytes, content_range: str) -> tuple[dict[str, Any] | None, int]:
        headers = {"content-range": content_range, "content-type": self._content_type}
        response = self._client.exchange("PUT", session, headers=headers, body=data)
        body = self._client.read(response)
        if response.status != 308:
            return json.loads(body), 0
        stored_range = response.headers.get("range")  # "bytes=0-8388607"; absent if nothing arrived
        return None, int(stored_range.rpartition("-")[2]) + 1 if stored_range else 0


def _read_chunk(source: BinaryIO) -> bytes:
    """Read CHUNK_BYTES, or fewer only at the end: a pipe returns smaller parts."""
    parts: list[bytes] = []
    missing = CHUNK_BYTES
    while missing and (part := source.read(missing)):
        parts.append(part)
        missing -= len(part)
    return b"".join(parts)


def _path(bucket: str, name: str) -> str:
    return f"/storage/v1/b/{segment(bucket)}/o/{segment(name)}"
