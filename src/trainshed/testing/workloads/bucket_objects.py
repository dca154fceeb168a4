"""Buckets of tests: real ones in a folder, with empty objects. Those "in clouds" are folders with a cloud's URL."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from trainshed.buckets.backend import BackendRouter
from trainshed.buckets.file_backend import FileBackend
from trainshed.buckets.uploads import UploadSessions
from trainshed.domain.objects import ObjectDraft
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
