"""Amazon S3, and what speaks as it does, by s3fs: which credentials and which endpoint, its environment says.

S3 keeps no generations. One is made here of the second in which an object was written and of its ETag, which both a
listing and a look at the object tell. So other bytes have another generation; the same bytes written twice within a
second have the same one.
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
from trainshed.buckets.circuit_breaker import CALL_TIMEOUT_S, TRANSFER_TIMEOUT_S, CircuitBreaker
from trainshed.buckets.cloud_backend import CloudListItem, CloudObject, not_installed, replaced
from trainshed.domain.objects import ObjectInfo, ObjectMetadata
from trainshed.errors import ConditionNotMetError, InvalidArgumentError

KEY = "trainshed"  #: of the metadata that holds what S3 has no place for
MAX_METADATA = 2000  #: bytes; S3 takes 2,048 with the names
PART = 8 << 20  #: an object that is larger is sent in parts of this size, some of them at once
PARTS_AT_ONCE = 4
_PAGE = 1000
_VERSION = "?versionId="  #: s3fs takes it for something of its own
_HEADERS = {  #: what S3 has a place for: its name, and that of the trait
    "ContentType": "content_type",
    "ContentEncoding": "content_encoding",
    "ContentLanguage": "content_language",
    "ContentDisposition": "content_disposition",
    "CacheControl": "cache_control",
}


class S3Client:
    """The place `url`, as the bucket `bucket` of this server. Threads may share it."""

    def __init__(self, bucket: str, url: str) -> None:
        """Asks nobody anything. `Refused` if s3fs is not there."""
        try:
            import s3fs
            from aiohttp import ClientError
            from botocore.exceptions import BotoCoreError
        except ImportError as exc:
            raise not_installed(bucket, url, "s3fs") from exc
        self.url = url
        self._bucket = bucket
        self._there, _, folder = url.removeprefix("s3://").partition("/")
        self._root = f"{folder.strip('/')}/" if folder.strip("/") else ""
        self._fs = s3fs.S3FileSystem(  # which other buckets of this server share
            use_listings_cache=False,
            config_kwargs={"connect_timeout": 5, "read_timeout": 30, "retries": {"total_max_attempts": 2}},
        )
        self._fs.retries = 3
        self._way = CircuitBreaker(bucket, url, self._fs.loop, failures=(BotoCoreError, ClientError))

    def head(self, name: str) -> CloudObject | None:
        try:
            found = self._call("head_object", Key=self._root + name)
        except FileNotFoundError:
            return None
        return CloudObject(self._told(name, found), str(found["ETag"]))

    def rows(self, *, prefix: str, delimiter: str, after: str, most: int) -> Iterator[Sequence[CloudListItem]]:
        asked: dict[str, Any] = {"Prefix": self._root + prefix, "MaxKeys": min(most, _PAGE)}
        if delimiter:
            asked["Delimiter"] = delimiter
        if after:
            asked["StartAfter"] = self._root + after
        while True:
            try:
                page = self._call("list_objects_v2", **asked)
            except FileNotFoundError as exc:
                raise self._way.no_bucket(self._there) from exc
            objects = (CloudListItem(self._name(each["Key"]), self._listed(each)) for each in page.get("Contents", ()))
            prefixes = (CloudListItem(self._name(each["Prefix"]), None) for each in page.get("CommonPrefixes", ()))
            yield sorted((*objects, *prefixes), key=lambda row: row.name)
            if not page.get("IsTruncated"):
                return
            asked = {key: value for key, value in asked.items() if key != "StartAfter"}
            asked["ContinuationToken"] = page["NextContinuationToken"]

    def read(self, held: CloudObject, offset: int, size: int) -> bytes:
        part = f"bytes={offset}-{offset + size - 1}"
        try:
            return self._way.call(
                TRANSFER_TIMEOUT_S, self._bytes, Key=self._root + held.info.name, Range=part, IfMatch=held.version
            )
        except (FileNotFoundError, FileExistsError) as exc:  # the latter: it has another ETag now
            raise replaced(held.info) from exc

    def put(self, path: Path, info: ObjectInfo, *, over: int | None) -> None:
        said = {"Metadata": {KEY: _record(info, self.url)}, **_headers(info.traits)}
        try:
            if info.size > PART:
                self._put_in_parts(path, info, said, mode="create" if over == 0 else "overwrite")
                return
            condition = {"IfNoneMatch": "*"} if over == 0 else {}
            whole = {"Key": self._root + info.name, "Body": path.read_bytes(), "ContentMD5": info.md5}
            self._call("put_object", limit_s=TRANSFER_TIMEOUT_S, **whole, **condition, **said)
        except FileExistsError as exc:
            raise ConditionNotMetError(f"gs://{info.bucket}/{info.name} is there already.") from exc
        except FileNotFoundError as exc:
            raise self._way.no_bucket(self._there) from exc

    def _put_in_parts(self, path: Path, info: ObjectInfo, said: Mapping[str, Any], *, mode: str) -> None:
        if _VERSION in self._root + info.name:
            raise InvalidArgumentError(
                f"An object of more than {PART >> 20} MB can't have {_VERSION!r} in its name here."
            )
        there = f"{self._there}/{self._root}{info.name}"
        limit_s = TRANSFER_TIMEOUT_S * (1 + info.size // PART)
        parts = {"chunksize": PART, "max_concurrency": PARTS_AT_ONCE}
        self._way.call(limit_s, self._asked, self._fs._put_file, str(path), there, mode=mode, **parts, **said)

    def delete(self, name: str, *, generation: int | None) -> None:
        self._call("delete_object", Key=self._root + name)

    def _call(self, method: str, *, limit_s: float = CALL_TIMEOUT_S, **values: Any) -> Any:
        return self._way.call(limit_s, self._asked, self._fs._call_s3, method, Bucket=self._there, **values)

    async def _bytes(self, **values: Any) -> bytes:
        found = await self._asked(self._fs._call_s3, "get_object", Bucket=self._there, **values)
        async with found["Body"] as body:
            return bytes(await body.read())

    async def _asked(self, work: Callable[..., Any], *args: Any, **values: Any) -> Any:
        """`FileExistsError` if a condition of the request does not hold: s3fs has no one word for that."""
        try:
            return await work(*args, **values)
        except OSError as exc:
            answer = getattr(exc.__cause__, "response", {})
            if answer.get("ResponseMetadata", {}).get("HTTPStatusCode") == 412:
                raise FileExistsError(str(exc)) from exc
            raise

    def _name(self, key: str) -> str:
        return key.removeprefix(self._root)

    def _listed(self, row: Mapping[str, Any]) -> ObjectInfo:
        """As far as a listing tells: a type is guessed from the name."""
        name = self._name(row["Key"])
        traits = ObjectMetadata(content_type=xattrs.guess_type(name))
        return self._object(name, row["Size"], row, traits)

    def _told(self, name: str, found: Mapping[str, Any]) -> ObjectInfo:
        size = int(found["ContentLength"])
        own = {trait: str(found.get(header) or "") for header, trait in _HEADERS.items()}
        told = {key: str(text) for key, text in found.get("Metadata", {}).items() if key != KEY}
        traits = ObjectMetadata(**own, metadata=told)
        plain = self._object(name, size, found, traits)
        try:
            kept = xattrs.decode(found.get("Metadata", {}).get(KEY, "").encode(), bucket=self._bucket, name=name)
        except ValueError:
            return plain  # it was not written by way of this server
        if kept.size != size:
            return plain
        return replace(
            kept,
            generation=plain.generation,
            created_us=plain.created_us,
            updated_us=plain.updated_us,
            metageneration=1,
        )

    def _object(self, name: str, size: int, row: Mapping[str, Any], traits: ObjectMetadata) -> ObjectInfo:
        written: datetime = row["LastModified"]
        second_us = int(written.timestamp()) * 1_000_000
        return ObjectInfo(
            bucket=self._bucket,
            name=name,
            size=size,
            generation=second_us + google_crc32c.value(str(row["ETag"]).strip('"').encode()) % 1_000_000,
            metageneration=1,
            created_us=second_us,
            updated_us=second_us,
            traits=traits,
        )


def _record(info: ObjectInfo, url: str) -> str:
    """All that is known of an object, as one line of ASCII."""
    text = json.dumps(json.loads(xattrs.encode(info)), separators=(",", ":"))
    if len(text) > MAX_METADATA:
        raise InvalidArgumentError(
            f"The metadata of {info.name} takes {len(text):,} bytes; in {url} an object can keep {MAX_METADATA:,} of "
            f"them. Shorten its custom metadata."
        )
    return text


def _headers(traits: ObjectMetadata) -> dict[str, str]:
    """For whoever reads the object there."""
    said = {header: getattr(traits, trait) for header, trait in _HEADERS.items()}
    return {header: text for header, text in said.items() if text and text.isascii()}
