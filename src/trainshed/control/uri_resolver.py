"""gs:// addresses of a project's buckets: the paths that they stand for, and copies of what has no path."""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from trainshed.buckets.checksums import PIECE
from trainshed.buckets.dirfd import disk_errors
from trainshed.buckets.names import components, object_path, split_uri
from trainshed.buckets.staging import ObjectReader
from trainshed.errors import FailedPreconditionError, InvalidArgumentError, NotFoundError


class ReadableBuckets(Protocol):
    """The buckets, as far as addresses lead there."""

    def cloud_of(self, bucket: str) -> str:
        """Where a bucket is kept, such as s3://lab-data/mnist; empty if it is a folder."""

    def open(self, bucket: str, name: str) -> ObjectReader:
        """The object's bytes; close it. `NotFoundError` if there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UriResolver:
    """`owner` says which project a bucket belongs to, or raises `NotFoundError`."""

    buckets: Path  #: where they are folders on this machine
    shelves: ReadableBuckets
    owner: Callable[[str], str]

    def path_resolver(self, project: str, *, serves_gs: bool) -> Callable[[str], Path | None]:
        """Turns an address into its path on this machine; None for one that is not the project's, or has no path.

        What has no path is read by code that `serves_gs` here: `FailedPreconditionError` if it does not.
        """
        return lambda uri: self._path(project, uri, self.buckets, serves_gs=serves_gs)

    def remote_path_resolver(self, project: str, folder: str, *, serves_gs: bool) -> Callable[[str], Path | None]:
        """The same for trainers on other machines, which see the buckets at `folder`; empty: they don't."""
        return lambda uri: self._path(project, uri, Path(folder) if folder else None, serves_gs=serves_gs)

    def cloud_of(self, project: str, uri: str) -> str:
        """Where the bucket of an address is kept; empty if it is a folder, or not the project's."""
        found = self._own(project, uri)
        return self.shelves.cloud_of(found[0]) if found else ""

    def local_file(self, project: str, uri: str, *, copies: Path) -> Path:
        """An object as a file to read: its own, or a copy below `copies`. `NotFoundError` if it is not there."""
        found = self._own(project, uri)
        if found is None:
            raise NotFoundError(f"There is no {uri} in project {project}.")
        bucket, name = found
        if not self.shelves.cloud_of(bucket):
            path = object_path(self.buckets, bucket, name)
            if not path.is_file():
                raise NotFoundError(f"There is no {uri}.")
            return path
        return self._copied(bucket, name, copies / hashlib.sha256(uri.encode()).hexdigest()[:16])

    def _copied(self, bucket: str, name: str, folder: Path) -> Path:
        """A copy under its own name. One of an earlier try is replaced."""
        copy = folder / components(name)[-1]
        draft = folder.with_name(f".{folder.name}-{secrets.token_hex(8)}")
        try:
            with disk_errors(), self.shelves.open(bucket, name) as reader:
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                with open(draft, "xb") as file:
                    for offset in range(0, reader.info.size, PIECE):
                        file.write(reader.read(offset))
                    file.flush()
                    os.fsync(file.fileno())
                draft.rename(copy)
        finally:
            draft.unlink(missing_ok=True)
        return copy

    def _own(self, project: str, uri: str) -> tuple[str, str] | None:
        """The bucket and the name, if the bucket is the project's and the name could be an object's."""
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
        found = self._own(project, uri)
        if found is None:
            return None
        cloud = self.shelves.cloud_of(found[0])
        if folder is not None and not cloud:
            return object_path(folder, *found)
        if serves_gs:
            return None
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
