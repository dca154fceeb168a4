"""Buckets of tests: real ones in a folder, with empty objects. Those "in clouds" are folders with a cloud's URL."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from trainshed.buckets.backend import BackendRouter
from trainshed.buckets.file_backend import FileBackend
from trainshed.buckets.uploads import UploadSessions
from trainshed.domain.objects import ListQuery, ObjectDraft, ObjectPage
from trainshed.services.storage.buckets import Buckets
from trainshed.services.storage.objects import Objects
from trainshed.services.storage.uris import UriChecker
from trainshed.store.buckets import BucketStore
from trainshed.store.database import Database


class _CloudFolder(FileBackend):
    """A bucket that stands for one in a cloud."""

    def __init__(self, folder: Path, url: str) -> None:
        super().__init__(folder / "clouds", folder / "uploads")
        self.url = url


def uri_checker(
    database: Database,
    folder: Path,
    owners: Mapping[str, str],
    objects: Iterable[tuple[str, str]],
    clouds: Mapping[str, str] | None = None,
) -> UriChecker:
    """Return a checker of URIs over buckets by project, objects by bucket and name, and clouds' URLs by bucket."""
    cloud_folders = {bucket: _CloudFolder(folder, url) for bucket, url in (clouds or {}).items()}
    backend = BackendRouter(FileBackend(folder / "buckets", folder / "uploads"), cloud_folders)
    buckets = Buckets(BucketStore(database), backend)
    stored = Objects(backend, UploadSessions(folder / "uploads"), owner=buckets.owner)
    for name, project in owners.items():
        buckets.make(project, name)
    for bucket, name in objects:
        stored.store(None, b"", ObjectDraft(bucket=bucket, name=name))
    return UriChecker(buckets=buckets, objects=stored, backend=backend)


Names = tuple[list[str], list[str]]  #: names of objects, and prefixes


def expected(names: Iterable[str], query: ListQuery) -> Names:
    """Return the listing that sorting all names by their bytes gives."""
    items: list[str] = []
    prefixes: list[str] = []
    for name in sorted(names, key=str.encode):
        if not name.startswith(query.prefix) or name < query.start or (query.end and name >= query.end):
            continue
        at = name.find(query.delimiter, len(query.prefix)) if query.delimiter else -1
        prefix = name[: at + len(query.delimiter)] if at >= 0 else ""
        if prefix and prefix not in prefixes:
            prefixes.append(prefix)
        if not prefix or (query.delimiter_objects and prefix == name):
            items.append(name)
    return items, prefixes


def walked(list_page: Callable[[ListQuery], ObjectPage], query: ListQuery) -> Names:
    """Read all pages of a listing."""
    items: list[str] = []
    prefixes: list[str] = []
    while True:
        page = list_page(query)
        items += [item.name for item in page.items]
        prefixes += page.prefixes
        if not page.next:
            return items, prefixes
        query = replace(query, after=page.next)
