"""Amazon S3 and compatible services through s3fs. Its environment selects the credentials and the endpoint.

S3 has no generations. They are derived from the second of the last write and the ETag, which listings and HEAD requests
both return. Different bytes therefore have different generations. The same bytes written twice within a second have the
same one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import google_crc32c

from trainshed.buckets import xattrs
from trainshed.buckets.cloud.backend import CloudListItem, CloudObject, not_installed, object_replaced
from trainshed.buckets.cloud.circuit_breaker import CALL_TIMEOUT_S, TRANSFER_TIMEOUT_S, CircuitBreaker
from trainshed.domain.objects import ObjectInfo, ObjectMetadata
from trainshed.errors import ConditionNotMetError, InvalidArgumentError

METADATA_KEY = "trainshed"  #: metadata key for fields that S3 does not have
MAX_METADATA_BYTES = 2000  #: S3 allows 2,048 bytes, names included
PART_BYTES = 8 << 20  #: larger objects are sent in parts of this size, some of them in parallel
MAX_CONCURRENT_PARTS = 4
_MAX_PAGE = 1000
_VERSION_MARKER = "?versionId="  #: s3fs would parse it as a version
_HEADERS = {  #: field of S3 -> field of ObjectMetadata
    "ContentType": "content_type",
    "ContentEncoding": "content_encoding",
    "ContentLanguage": "content_language",
    "ContentDisposition": "content_disposition",
    "CacheControl": "cache_control",
}


class S3Client:
    """A client for `url`, which is the bucket `bucket` of this server. Thread-safe."""

    def __init__(self, bucket: str, url: str) -> None:
        """Makes no request. Raises `CannotProceedError` if s3fs is not installed."""
        try:
            import s3fs
            from aiohttp import ClientError
            from botocore.exceptions import BotoCoreError
        except ImportError as exc:
            raise not_installed(bucket, url, "s3fs") from exc
        self.url = url
        self._bucket = bucket
        self._cloud_bucket, _, folder = url.removeprefix("s3://").partition("/")
        self._root = f"{folder.strip('/')}/" if folder.strip("/") else ""
        self._fs = s3fs.S3FileSystem(  # shared with other buckets of this server
            use_listings_cache=False,
            config_kwargs={"connect_timeout": 5, "read_timeout": 30, "retries": {"total_max_attempts": 2}},
        )
        self._fs.retries = 3
        self._breaker = CircuitBreaker(bucket, url, self._fs.loop, failures=(BotoCoreError, ClientError))

    def head(self, name: str) -> CloudObject | None:
        try:
            response = self._call("head_object", Key=self._root + name)
        except FileNotFoundError:
            return None
        return CloudObject(self._head_info(name, response), str(response["ETag"]))

    def rows(self, *, prefix: str, delimiter: str, after: str, page_size: int) -> Iterator[Sequence[CloudListItem]]:
        params: dict[str, Any] = {"Prefix": self._root + prefix, "MaxKeys": min(page_size, _MAX_PAGE)}
        if delimiter:
            params["Delimiter"] = delimiter
        if after:
            params["StartAfter"] = self._root + after
        while True:
            try:
                page = self._call("list_objects_v2", **params)
            except FileNotFoundError as exc:
                raise self._breaker.no_bucket(self._cloud_bucket) from exc
            objects = (
                CloudListItem(self._name(entry["Key"]), self._list_info(entry)) for entry in page.get("Contents", ())
            )
            prefixes = (CloudListItem(self._name(entry["Prefix"]), None) for entry in page.get("CommonPrefixes", ()))
            yield sorted((*objects, *prefixes), key=lambda row: row.name)
            if not page.get("IsTruncated"):
                return
            params = {key: value for key, value in params.items() if key != "StartAfter"}
            params["ContinuationToken"] = page["NextContinuationToken"]

    def read(self, cloud_object: CloudObject, offset: int, size: int) -> bytes:
        byte_range = f"bytes={offset}-{offset + size - 1}"
        try:
            return self._breaker.call(
                TRANSFER_TIMEOUT_S,
                self._bytes,
                Key=self._root + cloud_object.info.name,
                Range=byte_range,
                IfMatch=cloud_object.version,
            )
        except (FileNotFoundError, FileExistsError) as exc:  # FileExistsError: it has another ETag now
            raise object_replaced(cloud_object.info) from exc

    def put(self, path: Path, info: ObjectInfo, *, if_generation: int | None) -> None:
        options = {"Metadata": {METADATA_KEY: _record(info, self.url)}, **_headers(info.traits)}
        try:
            if info.size > PART_BYTES:
                self._put_in_parts(path, info, options, mode="create" if if_generation == 0 else "overwrite")
                return
            condition = {"IfNoneMatch": "*"} if if_generation == 0 else {}
            request = {"Key": self._root + info.name, "Body": path.read_bytes(), "ContentMD5": info.md5}
            self._call("put_object", limit_s=TRANSFER_TIMEOUT_S, **request, **condition, **options)
        except FileExistsError as exc:
            raise ConditionNotMetError(f"gs://{info.bucket}/{info.name} is there already.") from exc
        except FileNotFoundError as exc:
            raise self._breaker.no_bucket(self._cloud_bucket) from exc

    def _put_in_parts(self, path: Path, info: ObjectInfo, options: Mapping[str, Any], *, mode: str) -> None:
        if _VERSION_MARKER in self._root + info.name:
            raise InvalidArgumentError(
                f"An object of more than {PART_BYTES >> 20} MB can't have {_VERSION_MARKER!r} in its name here."
            )
        target = f"{self._cloud_bucket}/{self._root}{info.name}"
        limit_s = TRANSFER_TIMEOUT_S * (1 + info.size // PART_BYTES)
        part_options = {"chunksize": PART_BYTES, "max_concurrency": MAX_CONCURRENT_PARTS}
        self._breaker.call(
            limit_s, self._request, self._fs._put_file, str(path), target, mode=mode, **part_options, **options
        )

    def delete(self, name: str, *, generation: int | None) -> None:
        self._call("delete_object", Key=self._root + name)

    def _call(self, method: str, *, limit_s: float = CALL_TIMEOUT_S, **values: Any) -> Any:
        return self._breaker.call(
            limit_s, self._request, self._fs._call_s3, method, Bucket=self._cloud_bucket, **values
        )

    async def _bytes(self, **values: Any) -> bytes:
        response = await self._request(self._fs._call_s3, "get_object", Bucket=self._cloud_bucket, **values)
        async with response["Body"] as body:
            return bytes(await body.read())

    async def _request(self, method: Callable[..., Any], *args: Any, **values: Any) -> Any:
        """Raises `FileExistsError` if a condition of the request fails, for which s3fs has no error."""
        try:
            return await method(*args, **values)
        except OSError as exc:
            response = getattr(exc.__cause__, "response", {})
            if response.get("ResponseMetadata", {}).get("HTTPStatusCode") == 412:
                raise FileExistsError(str(exc)) from exc
            raise

    def _name(self, key: str) -> str:
        return key.removeprefix(self._root)

    def _list_info(self, entry: Mapping[str, Any]) -> ObjectInfo:
        """The fields that a listing includes. The content type is guessed from the name."""
        name = self._name(entry["Key"])
        traits = ObjectMetadata(content_type=xattrs.guess_type(name))
        return self._object(name, entry["Size"], entry, traits)

    def _head_info(self, name: str, response: Mapping[str, Any]) -> ObjectInfo:
        size = int(response["ContentLength"])
        headers: dict[str, Any] = {trait: str(response.get(header) or "") for header, trait in _HEADERS.items()}
        metadata = {key: str(text) for key, text in response.get("Metadata", {}).items() if key != METADATA_KEY}
        traits = ObjectMetadata(**headers, metadata=metadata)
        plain = self._object(name, size, response, traits)
        try:
            stored = xattrs.decode(
                response.get("Metadata", {}).get(METADATA_KEY, "").encode(), bucket=self._bucket, name=name
            )
        except ValueError:
            return plain  # not written through this server
        if stored.size != size:
            return plain
        return replace(
            stored,
            generation=plain.generation,
            created_us=plain.created_us,
            updated_us=plain.updated_us,
            metageneration=1,
        )

    def _object(self, name: str, size: int, entry: Mapping[str, Any], traits: ObjectMetadata) -> ObjectInfo:
        modified: datetime = entry["LastModified"]
        second_us = int(modified.timestamp()) * 1_000_000
        return ObjectInfo(
            bucket=self._bucket,
            name=name,
            size=size,
            generation=second_us + google_crc32c.value(str(entry["ETag"]).strip('"').encode()) % 1_000_000,
            metageneration=1,
            created_us=second_us,
            updated_us=second_us,
            traits=traits,
        )


def _record(info: ObjectInfo, url: str) -> str:
    """All metadata of an object as one line of ASCII."""
    text = json.dumps(json.loads(xattrs.encode(info)), separators=(",", ":"))
    if len(text) > MAX_METADATA_BYTES:
        raise InvalidArgumentError(
            f"The metadata of {info.name} takes {len(text):,} bytes; in {url} an object can keep "
            f"{MAX_METADATA_BYTES:,} of them. Shorten its custom metadata."
        )
    return text


def _headers(traits: ObjectMetadata) -> dict[str, str]:
    """Headers for readers that access S3 directly."""
    headers = {header: getattr(traits, trait) for header, trait in _HEADERS.items()}
    return {header: text for header, text in headers.items() if text and text.isascii()}
