"""Amazon S3, and what speaks as it does, by s3fs: which credentials and which endpoint, its environment says.

S3 keeps no generations. One is made here of the second in which an object was written and of its ETag, which both a
listing and a look at the object tell. So other bytes have another generation; the same bytes written twice within a
second have the same one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import google_crc32c

from trainshed.buckets import attributes
from trainshed.buckets.clouds import Held, Row, replaced
from trainshed.domain.objects import ObjectInfo, Traits
from trainshed.errors import ConditionNotMet, FailedPrecondition, Invalid, Refused, Unavailable

KEY = "trainshed"  #: of the metadata that holds what S3 has no place for
MAX_METADATA = 2000  #: bytes; S3 takes 2,048 with the names
PART = 16 << 20  #: an object that is larger is sent in parts of this size, some of them at once
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


class S3:
    """The place `url`, as the bucket `bucket` of this server. Threads may share it."""

    def __init__(self, bucket: str, url: str) -> None:
        """Asks nobody anything. `Refused` if s3fs is not there."""
        try:
            import s3fs
            from botocore.exceptions import BotoCoreError
        except ImportError as exc:
            raise Refused(
                f"[buckets.{bucket}] in config.toml keeps gs://{bucket} in {url}, and that takes the package s3fs, "
                f"which is not installed here. Install it beside Trainshed: pip install 'trainshed[s3]'."
            ) from exc
        self.url = url
        self._bucket = bucket
        self._there, _, folder = url.removeprefix("s3://").partition("/")
        self._root = f"{folder.strip('/')}/" if folder.strip("/") else ""
        self._away: tuple[type[Exception], ...] = (BotoCoreError, OSError, TimeoutError)
        self._fs = s3fs.S3FileSystem(
            skip_instance_cache=True,
            use_listings_cache=False,
            config_kwargs={"connect_timeout": 10, "read_timeout": 60},
        )

    def head(self, name: str) -> Held | None:
        try:
            with self._errors():
                found = self._call("head_object", Key=self._root + name)
        except FileNotFoundError:
            return None
        return Held(self._told(name, found), str(found["ETag"]))

    def rows(self, *, prefix: str, delimiter: str, after: str, most: int) -> Iterator[Sequence[Row]]:
        asked: dict[str, Any] = {"Prefix": self._root + prefix, "MaxKeys": min(most, _PAGE)}
        if delimiter:
            asked["Delimiter"] = delimiter
        if after:
            asked["StartAfter"] = self._root + after
        while True:
            try:
                with self._errors():
                    page = self._call("list_objects_v2", **asked)
            except FileNotFoundError as exc:
                raise FailedPrecondition(
                    f"gs://{self._bucket} is kept in {self.url}, and there is no bucket {self._there} there. Make it, "
                    f"or correct [buckets.{self._bucket}] in config.toml."
                ) from exc
            objects = (Row(self._name(each["Key"]), self._listed(each)) for each in page.get("Contents", ()))
            prefixes = (Row(self._name(each["Prefix"]), None) for each in page.get("CommonPrefixes", ()))
            yield sorted((*objects, *prefixes), key=lambda row: row.name)
            if not page.get("IsTruncated"):
                return
            asked = {key: value for key, value in asked.items() if key != "StartAfter"}
            asked["ContinuationToken"] = page["NextContinuationToken"]

    def read(self, held: Held, offset: int, size: int) -> bytes:
        from fsspec.asyn import sync

        part = f"bytes={offset}-{offset + size - 1}"
        try:
            with self._errors():
                found = self._call("get_object", Key=self._root + held.info.name, Range=part, IfMatch=held.version)
                try:
                    return bytes(sync(self._fs.loop, found["Body"].read))
                finally:
                    found["Body"].close()
        except (FileNotFoundError, FileExistsError) as exc:  # the latter: it has another ETag now
            raise replaced(held.info) from exc

    def put(self, path: Path, info: ObjectInfo, *, absent: bool) -> None:
        said = {"Metadata": {KEY: _record(info, self.url)}, **_headers(info.traits)}
        key = self._root + info.name
        try:
            with self._errors():
                if info.size <= PART:
                    condition = {"IfNoneMatch": "*"} if absent else {}
                    self._call("put_object", Key=key, Body=path.read_bytes(), **condition, **said)
                    return
                if _VERSION in key:
                    raise Invalid(f"An object of more than {PART >> 20} MB can't have {_VERSION!r} in its name here.")
                self._fs.put_file(
                    str(path),
                    f"{self._there}/{key}",
                    chunksize=PART,
                    max_concurrency=PARTS_AT_ONCE,
                    mode="create" if absent else "overwrite",
                    **said,
                )
        except FileExistsError as exc:
            raise ConditionNotMet(f"gs://{info.bucket}/{info.name} is there already.") from exc
        except FileNotFoundError as exc:
            raise FailedPrecondition(f"There is no bucket {self._there} at {self.url}, or no longer.") from exc

    def delete(self, name: str) -> None:
        with self._errors():
            self._call("delete_object", Key=self._root + name)

    def _call(self, method: str, **values: Any) -> Any:
        return self._fs.call_s3(method, Bucket=self._there, **values)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """What goes wrong on the way to S3, as sentences. What S3 says of an object itself is passed on."""
        try:
            yield
        except (FileNotFoundError, FileExistsError):
            raise
        except PermissionError as exc:
            raise FailedPrecondition(
                f"{self.url}, where gs://{self._bucket} is kept, does not let this server in: {exc}. Look at the "
                f"credentials in the environment that the server was started in, and at what they are good for."
            ) from exc
        except self._away as exc:
            if _failed_condition(exc):
                raise FileExistsError(str(exc)) from exc
            raise Unavailable(
                f"{self.url}, where gs://{self._bucket} is kept, can't be used now: {exc}. If that does not pass, look "
                f"at the network and at the credentials in the environment that the server was started in.",
                retry_after_s=5,
            ) from exc

    def _name(self, key: str) -> str:
        return key.removeprefix(self._root)

    def _listed(self, row: Mapping[str, Any]) -> ObjectInfo:
        """As far as a listing tells: a type is guessed from the name."""
        name = self._name(row["Key"])
        traits = Traits(content_type=attributes.guess_type(name))
        return self._object(name, row["Size"], row, traits)

    def _told(self, name: str, found: Mapping[str, Any]) -> ObjectInfo:
        size = int(found["ContentLength"])
        own = {trait: str(found.get(header) or "") for header, trait in _HEADERS.items()}
        told = {key: str(text) for key, text in found.get("Metadata", {}).items() if key != KEY}
        traits = Traits(**own, metadata=told)
        plain = self._object(name, size, found, traits)
        try:
            kept = attributes.decode(found.get("Metadata", {}).get(KEY, "").encode(), bucket=self._bucket, name=name)
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

    def _object(self, name: str, size: int, row: Mapping[str, Any], traits: Traits) -> ObjectInfo:
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


def _failed_condition(exc: Exception) -> bool:
    """Whether S3 says that a condition of the request does not hold. s3fs has no one word for it."""
    answer = getattr(exc.__cause__, "response", {})
    return bool(answer.get("ResponseMetadata", {}).get("HTTPStatusCode") == 412)


def _record(info: ObjectInfo, url: str) -> str:
    """All that is known of an object, as one line of ASCII."""
    text = json.dumps(json.loads(attributes.encode(info)), separators=(",", ":"))
    if len(text) > MAX_METADATA:
        raise Invalid(
            f"The metadata of {info.name} takes {len(text):,} bytes; in {url} an object can keep {MAX_METADATA:,} of "
            f"them. Shorten its custom metadata."
        )
    return text


def _headers(traits: Traits) -> dict[str, str]:
    """For whoever reads the object there."""
    said = {header: getattr(traits, trait) for header, trait in _HEADERS.items()}
    return {header: text for header, text in said.items() if text and text.isascii()}
