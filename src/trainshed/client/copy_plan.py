"""The plan of a copy: sources and a destination become transfers, by the rules of gsutil and of Linux's cp."""

from __future__ import annotations

import mimetypes
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from trainshed.client.storage import Progress, Storage
from trainshed.client.urls import CopySource, Url, exists_below, expand
from trainshed.errors import InvalidArgumentError, NotFoundError
from trainshed.node.files import atomic_file

_NOT_A_FOLDER = (
    "Destination URL must name a directory, bucket, or bucket subdirectory for the multiple source form of the cp "
    "command."
)


@dataclass(frozen=True, slots=True)
class Transfer:
    """One file or object, and its destination."""

    source: CopySource
    to: Url


@dataclass(frozen=True, slots=True)
class _Destination:
    url: Url
    exists: bool  #: as a folder or bucket

    def url_for(self, source: CopySource, *, alone: bool, with_folder: bool) -> Url:
        """Return the destination of a source. `alone`: a destination that does not exist is the new name itself."""
        if alone and not self.exists:
            return self.url
        if source.url.is_stream:
            raise InvalidArgumentError("Destination object name needed when source is a stream.")
        rest = source.name_with_folder if with_folder else source.name_in_folder
        if any("\ud800" <= char <= "\udfff" for char in rest):
            raise InvalidArgumentError(
                f"The name of {source.url!s:.200} is not UTF-8, so it can't be an object's name. Rename it."
            )
        if not self.url.is_cloud and (".." in rest.split("/") or rest.startswith("/")):
            raise InvalidArgumentError(f"{source.url} would be written outside of {self.url}.")
        return self.url.below(rest)


def plan_copy(
    storage: Storage, project: str, arguments: Sequence[str], destination: str, *, recursive: bool
) -> list[Transfer]:
    """Return all transfers of one copy.

    Raises `NotFoundError` if a source matches nothing, `InvalidArgumentError` if sources and destination do not fit.
    """
    to = _destination(storage, Url.parse(destination))
    urls = [Url.parse(text) for text in arguments]
    if not to.url.is_cloud and any(not url.is_cloud for url in urls):
        raise InvalidArgumentError("Both sides are local: one of them must be a gs:// name.")
    sources = [source for url in urls for source in _expand(storage, project, url, recursive)]
    alone = len(sources) == 1 and sources[0].name_with_folder == sources[0].name_in_folder
    if not alone and not to.exists and not to.url.is_cloud and not to.url.is_stream:
        raise InvalidArgumentError(_NOT_A_FOLDER)
    if to.url.is_stream:
        return [Transfer(source, to.url) for source in sources]
    with_folder = to.exists or len(urls) > 1 or urls[0].is_wild
    transfers = [Transfer(source, to.url_for(source, alone=alone, with_folder=with_folder)) for source in sources]
    _check_distinct(transfers)
    return transfers


def _destination(storage: Storage, url: Url) -> _Destination:
    if url.is_wild and url.is_cloud:
        raise InvalidArgumentError(f"The destination {url} must not have wildcards.")
    if url.is_stream:
        return _Destination(url, False)
    if not url.is_cloud:
        if url.name.endswith("/") and not Path(url.name).is_dir():
            raise InvalidArgumentError(f"There is no directory {url.name}. Make it first.")
        return _Destination(url, Path(url.name).is_dir())
    return _Destination(url, not url.name or url.name.endswith("/") or exists_below(storage, url))


def _expand(storage: Storage, project: str, url: Url, recursive: bool) -> list[CopySource]:
    if not recursive and not url.is_cloud and Path(url.name).is_dir():
        raise InvalidArgumentError(f"{url.name} is a directory. Copy it with -r.")
    try:
        return list(expand(storage, project, url, recursive=recursive))
    except NotFoundError as exc:
        if not recursive and url.is_cloud and url.name and not url.is_wild and exists_below(storage, url):
            raise NotFoundError(f"No URLs matched: {url}. Do you mean a folder? Copy it with -r.") from exc
        raise


def _check_distinct(transfers: Sequence[Transfer]) -> None:
    sources: dict[str, CopySource] = {}
    for transfer in transfers:
        other = sources.setdefault(str(transfer.to), transfer.source)
        if other is not transfer.source:
            raise InvalidArgumentError(f"{other.url} and {transfer.source.url} would both be copied to {transfer.to}.")


def run_transfer(storage: Storage, transfer: Transfer, *, progress: Progress) -> None:
    """Run one transfer. Atomic: the destination is always whole, old or new."""
    source, to = transfer.source, transfer.to
    if source.url.bucket is None:
        assert to.bucket is not None
        kind = (
            mimetypes.guess_type(to.name if source.url.is_stream else source.url.name)[0] or "application/octet-stream"
        )
        target = (to.bucket, to.name)
        if source.url.is_stream:
            storage.upload(sys.stdin.buffer, target, content_type=kind, size=None, progress=progress)
            return
        try:
            with open(source.url.name, "rb") as file:
                storage.upload(file, target, content_type=kind, size=source.size, progress=progress)
        except OSError as exc:
            raise InvalidArgumentError(f"{source.url.name} can't be read: {exc.strerror}.") from exc
    elif to.bucket is not None:
        storage.copy((source.url.bucket, source.url.name), (to.bucket, to.name))
        progress(source.size or 0)
    elif to.is_stream:
        storage.download(source.meta, sys.stdout.buffer, progress=progress)
        sys.stdout.buffer.flush()
    else:
        _download(storage, source, Path(to.name), progress)


def _download(storage: Storage, source: CopySource, path: Path, progress: Progress) -> None:
    if source.url.name.endswith("/"):  # an object that represents an empty folder
        path.mkdir(parents=True, exist_ok=True)
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_file(path, mode=0o666) as file:
            storage.download(source.meta, file, progress=progress)
    except OSError as exc:
        raise InvalidArgumentError(f"{path} can't be written: {exc.strerror}.") from exc
