"""gs:// URIs and local paths as commands take them, and what their wildcards match."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainshed.client.storage import Storage
from trainshed.domain.uris import is_uri, uri_parts
from trainshed.errors import NotFoundError

_WILD = re.compile(r"[*?\[]")


@dataclass(frozen=True, slots=True)
class Url:
    """`gs://bucket/name`, or a local path if `bucket` is None. `name` is empty for a bucket alone."""

    bucket: str | None
    name: str

    @classmethod
    def parse(cls, text: str) -> Url:
        return cls.cloud(text) if is_uri(text) else cls(None, text.removeprefix("file://"))

    @classmethod
    def cloud(cls, text: str) -> Url:
        """Parse a URI, for commands that take only buckets and objects."""
        return cls(*uri_parts(text))

    @property
    def is_cloud(self) -> bool:
        return self.bucket is not None

    @property
    def is_stream(self) -> bool:
        return self.bucket is None and self.name == "-"

    @property
    def is_wild(self) -> bool:
        return _WILD.search(self.name) is not None or _WILD.search(self.bucket or "") is not None

    def __str__(self) -> str:
        return f"gs://{self.bucket}/{self.name}" if self.is_cloud else self.name

    @property
    def display(self) -> str:
        """The URL for messages: local files have a scheme too."""
        return str(self) if self.is_cloud else f"file://{self.name}"

    def below(self, rest: str) -> Url:
        """Return `rest` in this URL as a folder."""
        if self.is_cloud:
            folder = self.name.rstrip("/")
            return Url(self.bucket, f"{folder}/{rest}" if folder else rest)
        return Url(None, str(Path(self.name) / rest))


@dataclass(frozen=True, slots=True)
class CopySource:
    """One file or object to act on."""

    url: Url
    name_with_folder: str  #: its name with the copied folder, such as `data/train/1.csv`
    name_in_folder: str  #: its name within that folder, `train/1.csv`; for a single file both are its own name
    size: int | None  #: None if it has no size, such as a pipe
    meta: dict[str, Any] = field(default_factory=dict)  #: the server's metadata of an object


def pattern(text: str) -> re.Pattern[str]:
    """Compile a wildcard of gsutil: * stays within a folder, ** does not."""
    parts: list[str] = []
    position = 0
    while position < len(text):
        if text.startswith("**", position):
            parts.append(".*")
            position += 2
            continue
        char = text[position]
        end = text.find("]", position + 2) if char == "[" else -1
        if end > 0:
            inside = text[position + 1 : end]
            parts.append(
                "[" + ("^" if inside[0] == "!" else "") + re.escape(inside.lstrip("!")).replace(r"\-", "-") + "]"
            )
            position = end
        else:
            parts.append({"*": "[^/]*", "?": "[^/]"}.get(char, re.escape(char)))
        position += 1
    return re.compile("".join(parts), re.DOTALL)


def literal_start(text: str) -> str:
    """Return the part before the first wildcard."""
    match = _WILD.search(text)
    return text[: match.start()] if match else text


def match_buckets(storage: Storage, project: str, name: str) -> list[str]:
    if not _WILD.search(name):
        return [name]
    regex = pattern(name)
    return [bucket["name"] for bucket in storage.buckets(project) if regex.fullmatch(bucket["name"])]


@dataclass(frozen=True, slots=True)
class Match:
    """What a URI matches: objects, and folders (names ending in a slash, or "" for the bucket)."""

    bucket: str
    objects: list[dict[str, Any]]
    folders: list[str]


def match(storage: Storage, url: Url, *, bucket: str) -> Match:
    """Match a name or wildcard in one bucket. `gs://b/dir` is a folder if an object is below it."""
    if not url.name:
        return Match(bucket, [], [""])
    if not _WILD.search(url.name):
        return _match_plain(storage, bucket, url.name)
    if "**" in url.name:
        rule = pattern(url.name)
        candidates = storage.list(bucket, prefix=literal_start(url.name)).objects
        return Match(bucket, [item for item in candidates if rule.fullmatch(item["name"])], [])
    objects: list[dict[str, Any]] = []
    folders = [""]
    parts = url.name.rstrip("/").split("/")
    for depth, part in enumerate(parts):
        last = depth == len(parts) - 1
        rule = pattern(part)
        deeper: list[str] = []
        for folder in folders:
            listing = storage.list(bucket, prefix=folder + literal_start(part), delimiter="/")
            deeper += [below for below in listing.prefixes if rule.fullmatch(below[len(folder) : -1])]
            if last and not url.name.endswith("/"):
                objects += [item for item in listing.objects if rule.fullmatch(item["name"][len(folder) :])]
        folders = deeper
    return Match(bucket, objects, folders)


def _match_plain(storage: Storage, bucket: str, name: str) -> Match:
    folder = name.rstrip("/") + "/"
    listing = storage.list(bucket, prefix=name, delimiter="/", limit=None if name.endswith("/") else 1000)
    if name.endswith("/"):
        exists = bool(listing.objects or listing.prefixes)
        return Match(bucket, [], [folder] if exists else [])
    objects = [item for item in listing.objects if item["name"] == name]
    return Match(bucket, objects, [folder] if folder in listing.prefixes else [])


def exists_below(storage: Storage, url: Url) -> bool:
    """Return whether a URI is a folder with at least one object."""
    assert url.bucket is not None
    return bool(storage.list(url.bucket, prefix=url.name.rstrip("/") + "/", limit=1).objects)


def expand(storage: Storage, project: str, url: Url, *, recursive: bool) -> Iterator[CopySource]:
    """Yield every file or object that a source matches; with `recursive`, the contents of folders.

    Raises `NotFoundError` if there is none.
    """
    matched = False
    for source in _expand_cloud(storage, project, url, recursive) if url.is_cloud else _expand_local(url, recursive):
        matched = True
        yield source
    if not matched:
        raise NotFoundError(f"No URLs matched: {url}")


def _expand_cloud(storage: Storage, project: str, url: Url, recursive: bool) -> Iterator[CopySource]:
    assert url.bucket is not None
    for bucket in match_buckets(storage, project, url.bucket):
        matched = match(storage, url, bucket=bucket)
        yield from (_single(bucket, item) for item in matched.objects)
        for folder in matched.folders if recursive else ():
            top = folder.rstrip("/").rpartition("/")[2] if folder else bucket
            for item in storage.list(bucket, prefix=folder).objects:
                rest = item["name"][len(folder) :]
                yield CopySource(Url(bucket, item["name"]), f"{top}/{rest}", rest, int(item["size"]), item)


def _single(bucket: str, item: dict[str, Any]) -> CopySource:
    last = item["name"].rpartition("/")[2]
    return CopySource(Url(bucket, item["name"]), last, last, int(item["size"]), item)


def _expand_local(url: Url, recursive: bool) -> Iterator[CopySource]:
    if url.is_stream:
        yield CopySource(url, "-", "-", None)
        return
    paths = [Path(url.name)]
    if url.is_wild and not paths[0].exists():
        paths = [Path(name) for name in sorted(glob.glob(url.name, recursive=True))]  # noqa: PTH207  may be absolute
    for path in paths:
        if path.is_dir():
            yield from _walk(path) if recursive else ()
        elif path.exists():
            yield CopySource(
                Url(None, str(path)), path.name, path.name, path.stat().st_size if path.is_file() else None
            )


def _walk(folder: Path) -> Iterator[CopySource]:
    """Yield the regular files below a folder, in order. Symbolic links are followed for files only."""
    top = folder.name if folder.name != ".." else ""
    for parent, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            path = Path(parent, name)
            if path.is_file():
                rest = path.relative_to(folder).as_posix()
                yield CopySource(Url(None, str(path)), f"{top}/{rest}" if top else rest, rest, path.stat().st_size)
