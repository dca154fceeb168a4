"""Noncurrent versions of objects: files in a folder of the server's own, beside the buckets.

`BUCKET/a/b.txt/GENERATION.DELETED` is a version of `a/b.txt`; the second number is the time at which it was replaced or
deleted. A folder may hold versions of the object of its name, and folders of the names below it.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from trainshed.buckets import xattrs
from trainshed.buckets.dirfd import make_directories, prune, stored_bytes
from trainshed.buckets.names import bucket_name, components
from trainshed.domain.objects import ObjectInfo
from trainshed.node.crashpoints import crashpoint

NONCURRENT_FOLDER = "noncurrent"  #: beside the folder of all buckets
_VERSION = re.compile(r"(\d{1,19})\.(\d{1,19})")


def bytes_of_versions(buckets: Path, bucket: str) -> int:
    """Return the bytes of all versions of a bucket's objects: those in its folder, and noncurrent ones beside it."""
    return stored_bytes(buckets, bucket) + stored_bytes(buckets.with_name(NONCURRENT_FOLDER), bucket)


class Version(NamedTuple):
    """A file that holds a noncurrent version."""

    generation: int
    deleted_us: int
    path: Path


class NoncurrentVersions:
    """Versions below one folder, on the file system of the buckets. The caller serializes writers of one object."""

    def __init__(self, root: Path) -> None:
        """The folder is made when the first version is kept."""
        self.root = root
        self._lock = threading.Lock()  #: held while a folder is made and filled, and while empty ones are removed

    def keep(self, info: ObjectInfo, *, folder: int, deleted_us: int) -> None:
        """Keep the live object, whose file is in the open folder, durably. The caller removes or replaces the file.

        A version that an interrupted write kept already is kept once.
        """
        parts = components(info.name)
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        kept = self._of_generation(info.bucket, info.name, info.generation)
        name = f"{info.generation}.{deleted_us}"
        with ExitStack() as stack:
            with self._lock:
                target = stack.enter_context(make_directories(self.root, (bucket_name(info.bucket), *parts)))
                if kept is None:
                    os.link(parts[-1], name, src_dir_fd=folder, dst_dir_fd=target, follow_symlinks=False)
                else:
                    os.rename(kept.path, name, dst_dir_fd=target)
            os.fsync(target)
        crashpoint("object.version.kept")

    def find(self, bucket: str, name: str, generation: int) -> Version | None:
        """The version of a generation. Returns None if there is none."""
        return self._of_generation(bucket, name, generation)

    def latest_generation(self, bucket: str, name: str) -> int:
        """The highest generation of an object among its noncurrent versions. Returns 0 if it has none."""
        return max((version.generation for version in self._versions(self._folder(bucket, name))), default=0)

    def open(self, version: Version, *, bucket: str, name: str) -> tuple[int, ObjectInfo]:
        """Open a version for reading. Raises `FileNotFoundError` if it was removed meanwhile."""
        fd = os.open(version.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            return fd, self._info(version, fd, bucket=bucket, name=name)
        except BaseException:
            os.close(fd)
            raise

    def remove(self, version: Version, *, bucket: str, name: str) -> None:
        """Remove a version durably, with the folders that become empty."""
        folder = os.open(version.path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.unlink(version.path.name, dir_fd=folder)
            os.fsync(folder)
        finally:
            os.close(folder)
        crashpoint("object.version.removed")
        with self._lock:
            prune(self.root, (bucket, *components(name)), keep=0)

    def walk(self, bucket: str, prefix: str, *, start: str = "") -> Iterator[ObjectInfo]:
        """All versions of names that begin with the prefix and are not below `start`, by name and generation."""
        yield from self._walk(bucket, self.root / bucket_name(bucket), "", prefix, start)

    def _walk(self, bucket: str, folder: Path, base: str, prefix: str, start: str) -> Iterator[ObjectInfo]:
        children: list[tuple[str, str, bool]] = []
        with suppress(FileNotFoundError), os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    key = base + entry.name
                    children += [(key, entry.name, False), (f"{key}/", entry.name, True)]
        for key, name, is_below in sorted(children):
            if is_below:
                begins = key.startswith(prefix) or prefix.startswith(key)
                if begins and (key >= start or start.startswith(key)):
                    yield from self._walk(bucket, folder / name, key, prefix, start)
            elif key.startswith(prefix) and key >= start:
                yield from self._infos(bucket, key, folder / name)

    def _infos(self, bucket: str, name: str, folder: Path) -> Iterator[ObjectInfo]:
        for version in sorted(self._versions(folder)):
            with suppress(FileNotFoundError):  # removed since the folder was read
                fd, info = self.open(version, bucket=bucket, name=name)
                os.close(fd)
                yield info

    def _info(self, version: Version, fd: int, *, bucket: str, name: str) -> ObjectInfo:
        info = xattrs.read(fd, os.fstat(fd), bucket=bucket, name=name)
        return replace(info, generation=version.generation, deleted_us=version.deleted_us)

    def _of_generation(self, bucket: str, name: str, generation: int) -> Version | None:
        versions = self._versions(self._folder(bucket, name))
        return next((version for version in versions if version.generation == generation), None)

    def _folder(self, bucket: str, name: str) -> Path:
        return self.root.joinpath(bucket_name(bucket), *components(name))

    def _versions(self, folder: Path) -> Iterator[Version]:
        with suppress(FileNotFoundError, NotADirectoryError), os.scandir(folder) as entries:
            for entry in entries:
                match = _VERSION.fullmatch(entry.name)
                if match is not None and entry.is_file(follow_symlinks=False):
                    yield Version(int(match[1]), int(match[2]), folder / entry.name)
