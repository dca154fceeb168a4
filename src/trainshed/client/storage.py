"""Buckets and objects over the Cloud Storage JSON API: listing, copying, and transfers that survive a cut."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, Protocol

from trainshed.client.transport import AGAIN, ATTEMPTS, ApiError, Client, ConnectionLostError, segment, target
from trainshed.errors import DataLossError

CHUNK = 8 << 20  #: a multiple of 256 KiB, as the protocol wants
_PIECE = 1 << 20

Progress = Callable[[int], None]


class Checksum(Protocol):
    def update(self, chunk: bytes) -> None: ...
    def digest(self) -> bytes: ...


def crc32c() -> Checksum:
    """An empty CRC32C, as the storage API has it for every object."""
    import google_crc32c

    return google_crc32c.Checksum()  # type: ignore[no-untyped-call]


def encoded(checksum: Checksum) -> str:
    return base64.b64encode(checksum.digest()).decode()


def _quiet(_count: int) -> None:
    return None


@dataclass(frozen=True, slots=True)
class ObjectListing:
    """Objects under a prefix and, with a delimiter, the folders there. Both in order of name."""

    objects: list[dict[str, Any]]
    prefixes: list[str]


class Storage:
    """Objects of one server. Every transfer is checked by its CRC32C and goes on where it broke off."""

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
        """All objects whose names start with `prefix`; with `limit`, the first ones only."""
        found = ObjectListing([], [])
        query = {"prefix": prefix or None, "delimiter": delimiter, "maxResults": limit, "pageToken": None}
        while True:
            page = self._client.call("GET", f"/storage/v1/b/{segment(bucket)}/o", query=query)
            found.objects.extend(page.get("items", ()))
            found.prefixes.extend(page.get("prefixes", ()))
            query["pageToken"] = page.get("nextPageToken")
            if limit is not None or not query["pageToken"]:
                return found

    def delete(self, bucket: str, name: str) -> None:
        self._client.call("DELETE", _path(bucket, name))

    def copy(self, source: tuple[str, str], to: tuple[str, str]) -> dict[str, Any]:
        """A copy made by the server. Returns the new object's metadata."""
        token: str | None = None
        while True:
            path = f"{_path(*source)}/rewriteTo/b/{segment(to[0])}/o/{segment(to[1])}"
            answer = self._client.call("POST", path, query={"rewriteToken": token}, body={})
            if answer.get("done"):
                return answer["resource"]  # type: ignore[no-any-return]
            token = answer["rewriteToken"]

    def upload(
        self, source: BinaryIO, to: tuple[str, str], *, content_type: str, size: int | None, progress: Progress = _quiet
    ) -> dict[str, Any]:
        """Store `source`; `size` None means that it is a stream. `DataLossError` if the server got something else."""
        checksum = crc32c()
        if size is not None and size <= CHUNK:
            data = source.read(CHUNK + 1)
            checksum.update(data)
            answer = self._upload_small(data, to, content_type, encoded(checksum))
            progress(len(data))
        else:
            answer = _Resumable(self._client, to, content_type, progress).send(source, size, checksum)
        if answer.get("crc32c") != encoded(checksum):
            self.delete(*to)
            raise DataLossError(f"gs://{to[0]}/{to[1]} arrived damaged and was removed. Copy it again.")
        return answer

    def _upload_small(self, data: bytes, to: tuple[str, str], content_type: str, crc: str) -> dict[str, Any]:
        boundary = b"trainshed-" + base64.b16encode(crc.encode())
        while boundary in data:
            boundary += b"x"
        head = json.dumps({"name": to[1], "contentType": content_type, "crc32c": crc}).encode()
        parts = (
            (b"--" + boundary + b"\r\ncontent-type: application/json; charset=utf-8\r\n\r\n" + head + b"\r\n")
            + (b"--" + boundary + b"\r\ncontent-type: " + content_type.encode() + b"\r\n\r\n")
            + (data + b"\r\n--" + boundary + b"--\r\n")
        )
        where = target(f"/upload/storage/v1/b/{segment(to[0])}/o", {"uploadType": "multipart", "name": to[1]})
        headers = {"content-type": f"multipart/related; boundary={boundary.decode()}"}

        def once() -> bytes:
            return self._client.read(self._client.exchange("POST", where, headers=headers, body=parts))

        return json.loads(self._client.persist(once))  # type: ignore[no-any-return]

    def download(self, of: dict[str, Any], sink: BinaryIO, *, progress: Progress = _quiet) -> None:
        """Write the object's bytes to `sink`, of the very generation that `of` describes.

        `DataLossError` if they differ.
        """
        checksum = crc32c()
        done, size, failures = 0, int(of["size"]), 0
        where = target(_path(of["bucket"], of["name"]), {"alt": "media", "generation": of["generation"]})
        while done < size:
            before = done
            try:
                for piece in self._pieces(where, done):
                    sink.write(piece)
                    checksum.update(piece)
                    done += len(piece)
                    progress(len(piece))
                if done < size:
                    raise ConnectionLostError(f"gs://{of['bucket']}/{of['name']} ended early.", sent=True)
            except (ConnectionLostError, ApiError) as exc:
                if isinstance(exc, ApiError) and exc.code not in AGAIN:
                    raise
                failures = 0 if done > before else failures + 1
                if failures >= ATTEMPTS:
                    raise
                self._client.pause(failures)
        if of.get("crc32c") and of["crc32c"] != encoded(checksum):
            raise DataLossError(f"gs://{of['bucket']}/{of['name']} arrived damaged. Copy it again.")

    def _pieces(self, where: str, start: int) -> Iterator[bytes]:
        headers = {"range": f"bytes={start}-"} if start else {}
        response = self._client.exchange("GET", where, headers=headers)
        while piece := self._client.read(response, _PIECE):
            yield piece


class _Resumable:
    """One resumable upload: chunk by chunk, asking the server how far it got whenever the connection breaks."""

    def __init__(self, client: Client, to: tuple[str, str], content_type: str, progress: Progress) -> None:
        self._client = client
        self._to = to
        self._content_type = content_type
        self._progress = progress

    def send(self, source: BinaryIO, size: int | None, checksum: Checksum) -> dict[str, Any]:
        session = self._client.persist(lambda: self._begin(size))
        offset = 0
        chunk = _filled(source)
        while True:
            checksum.update(chunk)
            following = _filled(source) if len(chunk) == CHUNK else b""
            end = offset + len(chunk)
            total = str(end) if not following else "*" if size is None else str(size)
            answer = self._send_chunk(session, offset, chunk, total)
            self._progress(len(chunk))
            if not following:
                if answer is None:
                    raise DataLossError(f"The server wants more of gs://{self._to[0]}/{self._to[1]} than there is.")
                return answer
            offset, chunk = end, following

    def _begin(self, size: int | None) -> str:
        where = target(
            f"/upload/storage/v1/b/{segment(self._to[0])}/o", {"uploadType": "resumable", "name": self._to[1]}
        )
        headers = {"content-type": "application/json", "x-upload-content-type": self._content_type}
        if size is not None:
            headers["x-upload-content-length"] = str(size)
        body = json.dumps({"name": self._to[1], "contentType": self._content_type}).encode()
        response = self._client.exchange("POST", where, headers=headers, body=body)
        self._client.read(response)
        location = response.headers["location"]
        return "/" + location.split("://", 1)[-1].split("/", 1)[-1]

    def _send_chunk(self, session: str, offset: int, chunk: bytes, total: str) -> dict[str, Any] | None:
        """Put one chunk, again from wherever the server got to. The object, once it is whole."""
        sent, failures = 0, 0
        while True:
            rest = chunk[sent:]
            span = f"{offset + sent}-{offset + len(chunk) - 1}" if rest else "*"
            try:
                answer, kept = self._put(session, rest, f"bytes {span}/{total}")
            except (ConnectionLostError, ApiError) as exc:
                if isinstance(exc, ApiError) and exc.code not in AGAIN:
                    raise
                failures += 1
                if failures >= ATTEMPTS:
                    raise
                self._client.pause(failures - 1)
                answer, kept = self._client.persist(lambda: self._put(session, b"", f"bytes */{total}"))
            if answer is not None:
                return answer
            if not offset <= kept <= offset + len(chunk):
                raise DataLossError(f"The server lost part of gs://{self._to[0]}/{self._to[1]}. Copy it again.")
            failures = 0 if kept - offset > sent else failures + (kept - offset < len(chunk))
            sent = kept - offset
            if sent == len(chunk) and total != str(offset + len(chunk)):
                return None
            if failures >= ATTEMPTS:
                raise ConnectionLostError(f"The server takes no more of gs://{self._to[0]}/{self._to[1]}.", sent=True)

    def _put(self, session: str, data: bytes, content_range: str) -> tuple[dict[str, Any] | None, int]:
        headers = {"content-range": content_range, "content-type": self._content_type}
        response = self._client.exchange("PUT", session, headers=headers, body=data)
        body = self._client.read(response)
        if response.status != 308:
            return json.loads(body), 0
        kept = response.headers.get("range")  # "bytes=0-8388607": absent if nothing arrived
        return None, int(kept.rpartition("-")[2]) + 1 if kept else 0


def _filled(source: BinaryIO) -> bytes:
    """CHUNK bytes, or fewer only at the end: a pipe gives them out in smaller portions."""
    parts: list[bytes] = []
    wanted = CHUNK
    while wanted and (part := source.read(wanted)):
        parts.append(part)
        wanted -= len(part)
    return b"".join(parts)


def _path(bucket: str, name: str) -> str:
    return f"/storage/v1/b/{segment(bucket)}/o/{segment(name)}"
