"""Resolves gs:// URIs of a project's buckets to paths, and copies cloud objects that have no path."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from trainshed.buckets.checksums import PIECE
from trainshed.buckets.dirfd import disk_errors
from trainshed.buckets.names import components, object_path, split_uri
from trainshed.buckets.staging import ObjectReader
from trainshed.errors import FailedPreconditionError, InvalidArgumentError, NotFoundError
from trainshed.node.files import atomic_file


class ReadableBuckets(Protocol):
    """Read access to bucket backends, as URI resolution needs it."""

    def cloud_of(self, bucket: str) -> str:
        """Return the cloud URL of a bucket, such as s3://lab-data/mnist. Returns "" if it is a folder."""

    def open(self, bucket: str, name: str) -> ObjectReader:
        """Open an object for reading; the caller closes it. Raises `NotFoundError` if there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UriResolver:
    """Resolves URIs. `owner` returns the project of a bucket, or raises `NotFoundError`."""

    buckets: Path  #: the folder of all buckets on this machine
    backend: ReadableBuckets
    owner: Callable[[str], str]
    is_guarded: Callable[[str], bool] = lambda bucket: False  #: whether writes to a bucket must pass its rules

    def path_resolver(self, project: str, *, serves_gs: bool) -> Callable[[str], Path | None]:
        """Return a function from URI to path. It returns None for URIs of other projects and without a path.

        Trainer code reads URIs without a path through this server if it `serves_gs`. If not, the function raises
        `FailedPreconditionError`.
        """
        return lambda uri: self._path(project, uri, self.buckets, serves_gs=serves_gs)

    def remote_path_resolver(self, project: str, folder: str, *, serves_gs: bool) -> Callable[[str], Path | None]:
        """Like `path_resolver`, for nodes that see the buckets at `folder`. It is empty if they do not."""
        return lambda uri: self._path(project, uri, Path(folder) if folder else None, serves_gs=serves_gs)

    def cloud_of(self, project: str, uri: str) -> str:
        """Return the cloud URL of a URI's bucket. Returns "" if it is a folder or not the project's."""
        target = self._split_owned(project, uri)
        return self.backend.cloud_of(target[0]) if target else ""

    def guards(self, uri: str) -> bool:
        """Return whether a URI is of a bucket whose rules every write must pass."""
        try:
            return self.is_guarded(split_uri(uri)[0])
        except InvalidArgumentError:
            return False

    def local_file(self, project: str, uri: str, *, copies: Path) -> Path:
        """Return the path of an object: its own file, or a copy below `copies` if jobs get its bucket as no folder.

        Raises `NotFoundError` if it is missing or a link. Jobs can put a link in place of the file later, so the path
        must be opened without following links.
        """
        bucket, name = self._object(project, uri)
        if self.backend.cloud_of(bucket) or self.is_guarded(bucket):
            return self.copy(project, uri, copies=copies)
        self.backend.open(bucket, name).close()
        return object_path(self.buckets, bucket, name)

    def copy(self, project: str, uri: str, *, copies: Path) -> Path:
        """Copy an object below `copies`, under its own name. Replaces an earlier copy. Follows no link.

        Raises `NotFoundError` if it is missing or a link.
        """
        bucket, name = self._object(project, uri)
        folder = copies / hashlib.sha256(uri.encode()).hexdigest()[:16]
        copy = folder / components(name)[-1]
        with disk_errors(), self.backend.open(bucket, name) as reader:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with atomic_file(copy) as file:  # after a power cut it is copied again
                for offset in range(0, reader.info.size, PIECE):
                    file.write(reader.read(offset))
        return copy

    def _object(self, project: str, uri: str) -> tuple[str, str]:
        """Return bucket and name of an object. Raises `NotFoundError` if it can't be one of the project's."""
        target = self._split_owned(project, uri)
        if target is None or not target[1]:
            raise NotFoundError(f"There is no {uri} in project {project}.")
        return target

    def _split_owned(self, project: str, uri: str) -> tuple[str, str] | None:
        """Return bucket and name. Returns None if the bucket is not the project's or the name is invalid."""
        try:
            bucket, name = split_uri(uri)
            if self.owner(bucket) != project:
                return None
            if name.rstrip("/"):
                components(name.rstrip("/"))
            return bucket, name.rstrip("/")
        except (InvalidArgumentError, NotFoundError):
            return None

    def _path(self, project: str, uri: str, folder: Path | None, *, serves_gs: bool) -> Path | None:
        target = self._split_owned(project, uri)
        if target is None:
            return None
        cloud, is_guarded = self.backend.cloud_of(target[0]), self.is_guarded(target[0])
        if folder is not None and not cloud and not is_guarded:
            return object_path(folder, *target)
        if serves_gs:
            return None
        if is_guarded:
            raise FailedPreconditionError(
                f"{uri} is in a bucket with versioning, holds or retention, which no job gets as a folder, and `gs://` "
                f"in the code of this job would not lead to this server. Use a runtime with TensorFlow 2, and set "
                f"gs_in_trainers to trainshed; or use another bucket."
            )
        if cloud:
            raise FailedPreconditionError(
                f"{uri} is kept in {cloud}, and `gs://` in the code of this job would not lead to this server, which "
                f"reads it there. Use a runtime with TensorFlow 2, and set gs_in_trainers to trainshed; or give the "
                f"job the address in the cloud."
            )
        raise FailedPreconditionError(
            f"{uri} is in a bucket of this server, and `gs://` in the code of this job would not lead here from "
            f"other machines. Set node_buckets to a folder at which they see the buckets; or use a runtime with "
            f"TensorFlow 2, and set gs_in_trainers to trainshed."
        )
