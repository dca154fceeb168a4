"""The real Cloud Storage, by gcsfs: which credentials, its environment says. Generations and checksums are its own."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from trainshed.buckets import xattrs
from trainshed.buckets.circuit_breaker import CALL_TIMEOUT_S, TRANSFER_TIMEOUT_S, CircuitBreaker
from trainshed.buckets.cloud_backend import CloudListItem, CloudObject, not_installed, replaced
from trainshed.domain.objects import ObjectInfo, ObjectMetadata
from trainshed.errors import ConditionNotMetError, UnavailableError

KEY = "trainshed"  #: of the metadata that holds what Cloud Storage does not keep
PART = 8 << 20  #: an object that is larger is sent in parts of this size, which must be a multiple of 256 KB
_PAGE = 1000
_OBJECT, _OBJECTS = "b/{}/o/{}", "b/{}/o"
_PLAIN = {"Accept-Encoding": "identity"}
_HEADERS = {  #: names of Cloud Storage, and those of the traits
    "contentType": "content_type",
    "contentEncoding": "content_encoding",
    "contentLanguage": "content_language",
    "contentDisposition": "content_disposition",
    "cacheControl": "cache_control",
    "customTime": "custom_time",
}


class GcsClient:
    """The place `url`, as the bucket `bucket` of this server. Threads may share it."""

    def __init__(self, bucket: str, url: str) -> None:
        """Looks for credentials, and asks for nothing else. `Refused` if gcsfs is not there."""
        try:
            from aiohttp import ClientError
            from gcsfs.core import GCSFileSystem
            from gcsfs.retry import HttpError
            from google.auth.exceptions import GoogleAuthError
            from requests.exceptions import RequestException
        except ImportError as exc:
            raise not_installed(bucket, url, "gcsfs") from exc
        self.url = url
        self._bucket = bucket
        self._there, _, folder = url.removeprefix("gs://").partition("/")
        self._root = f"{folder.strip('/')}/" if folder.strip("/") else ""
        self._fs = GCSFileSystem(  # which other buckets of this server share
            use_listings_cache=False,
            session_kwargs={"auto_decompress": False},  # bytes are passed on as they are kept
        )
        failures = (HttpError, ClientError, GoogleAuthError, RequestException, ValueError)
        self._way = CircuitBreaker(bucket, url, self._fs.loop, failures=failures)

    def head(self, name: str) -> CloudObject | None:
        try:
            _, text = self._call("GET", _OBJECT, self._there, self._root + name, headers=_PLAIN, projection="noAcl")
        except FileNotFoundError:
            return None
        info = self._object(json.loads(text))
        return CloudObject(info, str(info.generation))

    def rows(self, *, prefix: str, delimiter: str, after: str, most: int) -> Iterator[Sequence[CloudListItem]]:
        asked: dict[str, Any] = {"prefix": self._root + prefix, "maxResults": min(most, _PAGE), "projection": "noAcl"}
        if delimiter:
            asked["delimiter"] = delimiter
        if after:
            asked["startOffset"] = self._root + after  # this name itself too, which the caller leaves out
        while True:
            try:
                _, text = self._call("GET", _OBJECTS, self._there, headers=_PLAIN, **asked)
            except FileNotFoundError as exc:
                raise self._way.no_bucket(self._there) from exc
            page = json.loads(text)
            objects = (CloudListItem(self._name(each["name"]), self._object(each)) for each in page.get("items", ()))
            prefixes = (CloudListItem(self._name(each), None) for each in page.get("prefixes", ()))
            yield sorted((*objects, *prefixes), key=lambda row: row.name)
            if not (token := page.get("nextPageToken")):
                return
            asked["pageToken"] = token

    def read(self, held: CloudObject, offset: int, size: int) -> bytes:
        part = {"Range": f"bytes={offset}-{offset + size - 1}", "Accept-Encoding": "gzip"}
        where = (self._there, self._root + held.info.name)
        try:
            _, data = self._call(
                "GET", _OBJECT, *where, limit_s=TRANSFER_TIMEOUT_S, headers=part, alt="media", generation=held.version
            )
        except FileNotFoundError as exc:
            raise replaced(held.info) from exc
        return data

    def put(self, path: Path, info: ObjectInfo, *, over: int | None) -> None:
        """In one request if it is small, with the checksum that Cloud Storage compares before it keeps anything."""
        asked = _only_over(over)
        where = f"{self._fs._location}/upload/storage/v1/{_OBJECTS}"
        described = self._described(info)
        try:
            if info.size > PART:
                headers, _ = self._call("POST", where, self._there, uploadType="resumable", json=described, **asked)
                self._send(path, info.size, str(headers["Location"]))
                return
            boundary = secrets.token_hex(16)
            self._call(
                *("POST", where, self._there),
                limit_s=TRANSFER_TIMEOUT_S,
                headers={"Content-Type": f"multipart/related; boundary={boundary}"},
                data=_related(boundary, described, path.read_bytes()),
                uploadType="multipart",
                **asked,
            )
        except FileExistsError as exc:
            raise ConditionNotMetError(
                f"gs://{info.bucket}/{info.name} is not what it must be over: there is another one by now."
            ) from exc
        except FileNotFoundError as exc:
            raise self._way.no_bucket(self._there) from exc

    def delete(self, name: str, *, generation: int | None) -> None:
        try:
            self._call("DELETE", _OBJECT, self._there, self._root + name, **_only_over(generation))
        except FileExistsError as exc:
            raise ConditionNotMetError(f"gs://{self._bucket}/{name} is another one by now.") from exc
        except FileNotFoundError:
            return

    def _send(self, path: Path, size: int, location: str) -> None:
        """The bytes of an upload that was begun at `location`, part by part."""
        offset = 0
        with open(path, "rb") as file:
            while True:
                file.seek(offset)
                data = file.read(PART)
                span = f"bytes {offset}-{offset + len(data) - 1}/{size}"
                headers, text = self._call(
                    "PUT", location, limit_s=TRANSFER_TIMEOUT_S, headers={"Content-Range": span}, data=data
                )
                if text:
                    return  # it is an object now
                taken = int(headers["Range"].rpartition("-")[2]) + 1 if "Range" in headers else 0
                if taken <= offset:
                    raise UnavailableError(f"{self.url} took nothing of what was sent. Send it again.", retry_after_s=5)
                offset = taken

    def _call(
        self, method: str, path: str, *args: str, limit_s: float = CALL_TIMEOUT_S, **asked: Any
    ) -> tuple[Mapping[str, str], bytes]:
        """The headers and the body of an answer."""
        return self._way.call(limit_s, self._asked, method, path, *args, **asked)

    async def _asked(self, *args: str, **asked: Any) -> tuple[Mapping[str, str], bytes]:
        try:
            headers, data = await self._fs._call(*args, **asked)
        except (FileNotFoundError, FileExistsError):
            raise
        except Exception as exc:
            if getattr(exc, "code", 0) in (401, 403) or str(exc).startswith("Forbidden:"):
                raise PermissionError(str(exc)) from exc
            raise
        return headers, bytes(data)

    def _described(self, info: ObjectInfo) -> dict[str, Any]:
        """All that is said of an object before its bytes."""
        own = {"upload": info.upload, "components": info.components}
        said = {header: getattr(info.traits, trait) for header, trait in _HEADERS.items()}
        return {
            "name": self._root + info.name,
            "md5Hash": info.md5,
            "metadata": {**info.traits.metadata, KEY: json.dumps(own)},
            **{header: text for header, text in said.items() if text},
        }

    def _name(self, key: str) -> str:
        return key.removeprefix(self._root)

    def _object(self, found: Mapping[str, Any]) -> ObjectInfo:
        name = self._name(found["name"])
        metadata = dict(found.get("metadata", {}))
        own = _own(metadata.pop(KEY, ""))
        said = {trait: str(found.get(header, "")) for header, trait in _HEADERS.items()}
        said["content_type"] = said["content_type"] or xattrs.guess_type(name)
        return ObjectInfo(
            bucket=self._bucket,
            name=name,
            size=int(found["size"]),
            generation=int(found["generation"]),
            metageneration=int(found["metageneration"]),
            created_us=_microseconds(found["timeCreated"]),
            updated_us=_microseconds(found["updated"]),
            md5=found.get("md5Hash", ""),
            crc32c=found.get("crc32c", ""),
            components=int(found.get("componentCount") or own.get("components") or 0),
            upload=str(own.get("upload", "")),
            traits=ObjectMetadata(storage_class=found.get("storageClass", "STANDARD"), metadata=metadata, **said),
        )


def _only_over(generation: int | None) -> dict[str, Any]:
    return {} if generation is None else {"ifGenerationMatch": str(generation)}


def _related(boundary: str, described: Mapping[str, Any], data: bytes) -> bytes:
    """The two parts of a multipart upload."""
    first = f"--{boundary}\r\nContent-Type: application/json; charset=UTF-8\r\n\r\n{json.dumps(described)}\r\n"
    second = f"--{boundary}\r\nContent-Type: application/octet-stream\r\n\r\n"
    return b"".join((first.encode(), second.encode(), data, f"\r\n--{boundary}--\r\n".encode()))


def _own(text: str) -> dict[str, Any]:
    """What was kept by way of this server; nothing if that makes no sense, as anybody may write there."""
    try:
        own = json.loads(text) if text else {}
    except ValueError:
        return {}
    number = own.get("components", 0) if isinstance(own, dict) else None
    return own if isinstance(number, int) else {}


def _microseconds(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1_000_000)
