"""Cloud Storage through gcsfs. Its environment selects the credentials; generations and checksums are its own."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from trainshed.buckets import xattrs
from trainshed.buckets.cloud.backend import CloudListItem, CloudObject, not_installed, object_replaced
from trainshed.buckets.cloud.circuit_breaker import CALL_TIMEOUT_S, TRANSFER_TIMEOUT_S, CircuitBreaker
from trainshed.domain.objects import ObjectInfo, ObjectMetadata
from trainshed.domain.uris import uri_parts
from trainshed.errors import ConditionNotMetError, UnavailableError

METADATA_KEY = "trainshed"  #: metadata key for fields that Cloud Storage does not have
PART_BYTES = 8 << 20  #: larger objects are sent in parts of this size, a multiple of 256 KiB
_MAX_PAGE = 1000
_OBJECT, _OBJECTS = "b/{}/o/{}", "b/{}/o"
_IDENTITY = {"Accept-Encoding": "identity"}
_HEADERS = {  #: field of Cloud Storage -> field of ObjectMetadata
    "contentType": "content_type",
    "contentEncoding": "content_encoding",
    "contentLanguage": "content_language",
    "contentDisposition": "content_disposition",
    "cacheControl": "cache_control",
    "customTime": "custom_time",
}


class GcsClient:
    """A client for `url`, which is the bucket `bucket` of this server. Thread-safe."""

    def __init__(self, bucket: str, url: str) -> None:
        """Finds credentials, and makes no other request. Raises `CannotProceedError` if gcsfs is not installed."""
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
        self._cloud_bucket, folder = uri_parts(url)
        self._root = f"{folder.strip('/')}/" if folder.strip("/") else ""
        self._fs = GCSFileSystem(  # shared with other buckets of this server
            use_listings_cache=False,
            session_kwargs={"auto_decompress": False},  # bytes are passed through as stored
        )
        failures = (HttpError, ClientError, GoogleAuthError, RequestException, ValueError)
        self._breaker = CircuitBreaker(bucket, url, self._fs.loop, failures=failures)

    def head(self, name: str) -> CloudObject | None:
        try:
            _, text = self._call(
                "GET", _OBJECT, self._cloud_bucket, self._root + name, headers=_IDENTITY, projection="noAcl"
            )
        except FileNotFoundError:
            return None
        info = self._object(json.loads(text))
        return CloudObject(info, str(info.generation))

    def rows(self, *, prefix: str, delimiter: str, after: str, page_size: int) -> Iterator[Sequence[CloudListItem]]:
        params: dict[str, Any] = {
            "prefix": self._root + prefix,
            "maxResults": min(page_size, _MAX_PAGE),
            "projection": "noAcl",
        }
        if delimiter:
            params["delimiter"] = delimiter
        if after:
            params["startOffset"] = self._root + after  # includes this name itself, which the caller skips
        while True:
            try:
                _, text = self._call("GET", _OBJECTS, self._cloud_bucket, headers=_IDENTITY, **params)
            except FileNotFoundError as exc:
                raise self._breaker.no_bucket(self._cloud_bucket) from exc
            page = json.loads(text)
            objects = (CloudListItem(self._name(entry["name"]), self._object(entry)) for entry in page.get("items", ()))
            prefixes = (CloudListItem(self._name(entry), None) for entry in page.get("prefixes", ()))
            yield sorted((*objects, *prefixes), key=lambda row: row.name)
            if not (token := page.get("nextPageToken")):
                return
            params["pageToken"] = token

    def read(self, cloud_object: CloudObject, offset: int, size: int) -> bytes:
        headers = {"Range": f"bytes={offset}-{offset + size - 1}", "Accept-Encoding": "gzip"}
        path_args = (self._cloud_bucket, self._root + cloud_object.info.name)
        try:
            _, data = self._call(
                "GET",
                _OBJECT,
                *path_args,
                limit_s=TRANSFER_TIMEOUT_S,
                headers=headers,
                alt="media",
                generation=cloud_object.version,
            )
        except FileNotFoundError as exc:
            raise object_replaced(cloud_object.info) from exc
        return data

    def put(self, path: Path, info: ObjectInfo, *, if_generation: int | None) -> None:
        """Small objects take one request, whose checksum Cloud Storage verifies before it stores anything."""
        condition = _generation_condition(if_generation)
        upload_path = f"{self._fs._location}/upload/storage/v1/{_OBJECTS}"
        resource = self._resource(info)
        try:
            if info.size > PART_BYTES:
                headers, _ = self._call(
                    "POST", upload_path, self._cloud_bucket, uploadType="resumable", json=resource, **condition
                )
                self._send(path, info.size, str(headers["Location"]))
                return
            boundary = secrets.token_hex(16)
            self._call(
                *("POST", upload_path, self._cloud_bucket),
                limit_s=TRANSFER_TIMEOUT_S,
                headers={"Content-Type": f"multipart/related; boundary={boundary}"},
                data=_related(boundary, resource, path.read_bytes()),
                uploadType="multipart",
                **condition,
            )
        except FileExistsError as exc:
            raise ConditionNotMetError(
                f"gs://{info.bucket}/{info.name} is not what it must be over: there is another one by now."
            ) from exc
        except FileNotFoundError as exc:
            raise self._breaker.no_bucket(self._cloud_bucket) from exc

    def delete(self, name: str, *, generation: int | None) -> None:
        try:
            self._call("DELETE", _OBJECT, self._cloud_bucket, self._root + name, **_generation_condition(generation))
        except FileExistsError as exc:
            raise ConditionNotMetError(f"gs://{self._bucket}/{name} is another one by now.") from exc
        except FileNotFoundError:
            return

    def _send(self, path: Path, size: int, location: str) -> None:
        """Send the bytes of the resumable upload at `location`, part by part."""
        offset = 0
        with open(path, "rb") as file:
            while True:
                file.seek(offset)
                data = file.read(PART_BYTES)
                content_range = f"bytes {offset}-{offset + len(data) - 1}/{size}"
                headers, text = self._call(
                    "PUT", location, limit_s=TRANSFER_TIMEOUT_S, headers={"Content-Range": content_range}, data=data
                )
                if text:
                    return  # complete: the response is the object
                received = int(headers["Range"].rpartition("-")[2]) + 1 if "Range" in headers else 0
                if received <= offset:
                    raise UnavailableError(f"{self.url} took nothing of what was sent. Send it again.", retry_after_s=5)
                offset = received

    def _call(
        self, method: str, path: str, *args: str, limit_s: float = CALL_TIMEOUT_S, **options: Any
    ) -> tuple[Mapping[str, str], bytes]:
        """The headers and the body of a response."""
        return self._breaker.call(limit_s, self._request, method, path, *args, **options)

    async def _request(self, *args: str, **options: Any) -> tuple[Mapping[str, str], bytes]:
        try:
            headers, data = await self._fs._call(*args, **options)
        except (FileNotFoundError, FileExistsError):
            raise
        except Exception as exc:
            if getattr(exc, "code", 0) in (401, 403) or str(exc).startswith("Forbidden:"):
                raise PermissionError(str(exc)) from exc
            raise
        return headers, bytes(data)

    def _resource(self, info: ObjectInfo) -> dict[str, Any]:
        """The object resource that precedes the bytes."""
        own_fields = {"upload": info.upload, "components": info.components}
        headers = {header: getattr(info.traits, trait) for header, trait in _HEADERS.items()}
        return {
            "name": self._root + info.name,
            "md5Hash": info.md5,
            "metadata": {**info.traits.metadata, METADATA_KEY: json.dumps(own_fields)},
            **{header: text for header, text in headers.items() if text},
        }

    def _name(self, key: str) -> str:
        return key.removeprefix(self._root)

    def _object(self, resource: Mapping[str, Any]) -> ObjectInfo:
        name = self._name(resource["name"])
        metadata = dict(resource.get("metadata", {}))
        own_fields = _decode_own_fields(metadata.pop(METADATA_KEY, ""))
        headers: dict[str, Any] = {trait: str(resource.get(header, "")) for header, trait in _HEADERS.items()}
        headers["content_type"] = headers["content_type"] or xattrs.guess_type(name)
        return ObjectInfo(
            bucket=self._bucket,
            name=name,
            size=int(resource["size"]),
            generation=int(resource["generation"]),
            metageneration=int(resource["metageneration"]),
            created_us=_microseconds(resource["timeCreated"]),
            updated_us=_microseconds(resource["updated"]),
            md5=resource.get("md5Hash", ""),
            crc32c=resource.get("crc32c", ""),
            components=int(resource.get("componentCount") or own_fields.get("components") or 0),
            upload=str(own_fields.get("upload", "")),
            traits=ObjectMetadata(storage_class=resource.get("storageClass", "STANDARD"), metadata=metadata, **headers),
        )


def _generation_condition(generation: int | None) -> dict[str, Any]:
    return {} if generation is None else {"ifGenerationMatch": str(generation)}


def _related(boundary: str, resource: Mapping[str, Any], data: bytes) -> bytes:
    """The body of a multipart upload."""
    first = f"--{boundary}\r\nContent-Type: application/json; charset=UTF-8\r\n\r\n{json.dumps(resource)}\r\n"
    second = f"--{boundary}\r\nContent-Type: application/octet-stream\r\n\r\n"
    return b"".join((first.encode(), second.encode(), data, f"\r\n--{boundary}--\r\n".encode()))


def _decode_own_fields(text: str) -> dict[str, Any]:
    """Fields that this server stored. Empty if they are malformed, because anyone can write there."""
    try:
        fields = json.loads(text) if text else {}
    except ValueError:
        return {}
    components = fields.get("components", 0) if isinstance(fields, dict) else None
    return fields if isinstance(components, int) else {}


def _microseconds(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1_000_000)
