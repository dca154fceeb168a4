"""The real Cloud Storage, by gcsfs: which credentials, its environment says. Generations and checksums are its own."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from trainshed.buckets import attributes
from trainshed.buckets.clouds import Held, Row, replaced
from trainshed.domain.objects import ObjectInfo, Traits
from trainshed.errors import ConditionNotMet, FailedPrecondition, Refused, Unavailable

KEY = "trainshed"  #: of the metadata that holds what Cloud Storage does not keep
PART = 16 << 20  #: an object that is larger is sent in parts of this size
_PAGE = 1000
_OBJECT, _OBJECTS = "b/{}/o/{}", "b/{}/o"
_PLAIN = {"Accept-Encoding": "identity"}
_HEADERS = {  #: names of Cloud Storage, and those of the traits
    "contentEncoding": "content_encoding",
    "contentLanguage": "content_language",
    "contentDisposition": "content_disposition",
    "cacheControl": "cache_control",
    "customTime": "custom_time",
}


class CloudStorage:
    """The place `url`, as the bucket `bucket` of this server. Threads may share it."""

    def __init__(self, bucket: str, url: str) -> None:
        """Looks for credentials, and asks for nothing else. `Refused` if gcsfs is not there."""
        try:
            from aiohttp import ClientError
            from gcsfs.core import GCSFileSystem
            from gcsfs.retry import ChecksumError, HttpError
            from google.auth.exceptions import GoogleAuthError
            from requests.exceptions import RequestException
        except ImportError as exc:
            raise Refused(
                f"[buckets.{bucket}] in config.toml keeps gs://{bucket} in {url}, and that takes the package gcsfs, "
                f"which is not installed here. Install it beside Trainshed: pip install 'trainshed[gcs]'."
            ) from exc
        self.url = url
        self._bucket = bucket
        self._there, _, folder = url.removeprefix("gs://").partition("/")
        self._root = f"{folder.strip('/')}/" if folder.strip("/") else ""
        others = (ClientError, GoogleAuthError, RequestException, OSError, TimeoutError, ValueError)
        self._away: tuple[type[Exception], ...] = (HttpError, ChecksumError, *others)
        self._fs = GCSFileSystem(
            skip_instance_cache=True,
            use_listings_cache=False,
            session_kwargs={"auto_decompress": False},  # bytes are passed on as they are kept
            requests_timeout=60,
        )

    def head(self, name: str) -> Held | None:
        try:
            with self._errors():
                found = self._fs.call(
                    "GET", _OBJECT, self._there, self._root + name, json_out=True, headers=_PLAIN, projection="noAcl"
                )
        except FileNotFoundError:
            return None
        info = self._object(found)
        return Held(info, str(info.generation))

    def rows(self, *, prefix: str, delimiter: str, after: str, most: int) -> Iterator[Sequence[Row]]:
        asked: dict[str, Any] = {"prefix": self._root + prefix, "maxResults": min(most, _PAGE), "projection": "noAcl"}
        if delimiter:
            asked["delimiter"] = delimiter
        if after:
            asked["startOffset"] = self._root + after  # this name itself too, which the caller leaves out
        while True:
            try:
                with self._errors():
                    page = self._fs.call("GET", _OBJECTS, self._there, json_out=True, headers=_PLAIN, **asked)
            except FileNotFoundError as exc:
                raise self._no_bucket() from exc
            objects = (Row(self._name(each["name"]), self._object(each)) for each in page.get("items", ()))
            prefixes = (Row(self._name(each), None) for each in page.get("prefixes", ()))
            yield sorted((*objects, *prefixes), key=lambda row: row.name)
            if not (token := page.get("nextPageToken")):
                return
            asked["pageToken"] = token

    def read(self, held: Held, offset: int, size: int) -> bytes:
        part = {"Range": f"bytes={offset}-{offset + size - 1}", "Accept-Encoding": "gzip"}
        try:
            with self._errors():
                _, data = self._fs.call(
                    *("GET", _OBJECT, self._there, self._root + held.info.name),
                    headers=part,
                    alt="media",
                    generation=held.version,
                )
        except FileNotFoundError as exc:
            raise replaced(held.info) from exc
        return bytes(data)

    def put(self, path: Path, info: ObjectInfo, *, absent: bool) -> None:
        traits = info.traits
        own = {key: value for key, value in (("upload", info.upload), ("components", info.components)) if value}
        said = {trait: getattr(traits, trait) for trait in _HEADERS.values() if getattr(traits, trait)}
        try:
            with self._errors():
                self._fs.put_file(
                    str(path),
                    f"{self._there}/{self._root}{info.name}",
                    metadata={**traits.metadata, **({KEY: json.dumps(own)} if own else {})},
                    content_type=traits.content_type,
                    fixed_key_metadata=said,
                    chunksize=PART,
                    consistency="md5",
                    mode="create" if absent else "overwrite",
                )
        except FileExistsError as exc:
            raise ConditionNotMet(f"gs://{info.bucket}/{info.name} is there already.") from exc
        except FileNotFoundError as exc:
            raise self._no_bucket() from exc

    def delete(self, name: str) -> None:
        try:
            with self._errors():
                self._fs.call("DELETE", _OBJECT, self._there, self._root + name)
        except FileNotFoundError:
            return

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """What goes wrong on the way, as sentences. What is said of an object itself is passed on."""
        try:
            yield
        except (FileNotFoundError, FileExistsError):
            raise
        except self._away as exc:
            raise Unavailable(
                f"{self.url}, where gs://{self._bucket} is kept, can't be used now: {exc}. If that does not pass, look "
                f"at the network and at the credentials in the environment that the server was started in.",
                retry_after_s=5,
            ) from exc

    def _no_bucket(self) -> FailedPrecondition:
        return FailedPrecondition(
            f"gs://{self._bucket} is kept in {self.url}, and there is no bucket {self._there} there. Make it, or "
            f"correct [buckets.{self._bucket}] in config.toml."
        )

    def _name(self, key: str) -> str:
        return key.removeprefix(self._root)

    def _object(self, found: Mapping[str, Any]) -> ObjectInfo:
        name = self._name(found["name"])
        metadata = dict(found.get("metadata", {}))
        own = _own(metadata.pop(KEY, ""))
        said = {trait: str(found.get(header, "")) for header, trait in _HEADERS.items()}
        traits = Traits(
            content_type=found.get("contentType") or attributes.guess_type(name),
            storage_class=found.get("storageClass", "STANDARD"),
            metadata=metadata,
            **said,
        )
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
            traits=traits,
        )


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
