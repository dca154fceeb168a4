"""The file of one object below the root of all buckets: opened, and described where it can't be opened."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from trainshed.buckets import xattrs
from trainshed.buckets.dirfd import NOT_FOUND_ERRNOS, disk_errors, open_directory, open_file
from trainshed.buckets.names import bucket_name, components, is_folder
from trainshed.domain.objects import ObjectInfo, object_not_found
from trainshed.errors import FailedPreconditionError


def open_object(root: Path, bucket: str, name: str) -> int:
    """Open the file of an object for reading. Raises `OSError`. No symbolic link is followed."""
    parts = components(name)
    with open_directory(root, (bucket_name(bucket), *parts[:-1])) as folder:
        return open_file(parts[-1], folder=folder)


def open_found(root: Path, bucket: str, name: str) -> int | None:
    """Open the file of an object for reading. Returns None if there is none."""
    try:
        fd = open_object(root, bucket, name)
    except OSError as exc:
        if exc.errno in NOT_FOUND_ERRNOS:
            return None
        raise
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        return None
    return fd


def open_existing(root: Path, bucket: str, name: str) -> int:
    """Open the file of an object for reading. Raises `NotFoundError`, or says why it can't be read."""
    try:
        fd = open_found(root, bucket, name)
    except OSError as exc:
        if exc.errno == errno.EACCES and (status := stat_object(root, bucket, name)):
            raise unreadable_error(bucket, name, status) from exc
        with disk_errors():
            raise
    if fd is None:
        raise object_not_found(bucket, name)
    return fd


def open_with_info(root: Path, bucket: str, name: str) -> tuple[int, ObjectInfo]:
    """Like `open_existing`, with the object's metadata."""
    fd = open_existing(root, bucket, name)
    try:
        with disk_errors():
            return fd, read_info(fd, bucket, name)
    except BaseException:
        os.close(fd)
        raise


def read_info(fd: int, bucket: str, name: str) -> ObjectInfo:
    """The metadata of an open file."""
    return xattrs.read(fd, os.fstat(fd), bucket=bucket, name=name)


def find_object(root: Path, bucket: str, name: str) -> ObjectInfo | None:
    """The object as it is now. Returns None if there is none. One that is unreadable has no metadata of its own."""
    if is_folder(name):
        return read_mark(root, bucket, name)
    try:
        fd = open_found(root, bucket, name)
    except PermissionError:
        if (status := stat_object(root, bucket, name)) is None:
            raise
        return xattrs.plain_file_info(status, bucket=bucket, name=name)
    if fd is None:
        return None
    try:
        return read_info(fd, bucket, name)
    finally:
        os.close(fd)


def open_mark(root: Path, bucket: str, name: str) -> int:
    """Open the folder whose mark an object is. Raises `NotFoundError` if there is no such folder."""
    try:
        with open_directory(root, (bucket, *components(name))) as folder:
            return os.dup(folder)
    except OSError as exc:
        if exc.errno in NOT_FOUND_ERRNOS:
            raise object_not_found(bucket, name) from None
        raise


def read_mark(root: Path, bucket: str, name: str) -> ObjectInfo | None:
    """The mark of a folder. Returns None if it has none."""
    try:
        with open_directory(root, (bucket_name(bucket), *components(name))) as folder:
            return xattrs.read_mark(folder, bucket=bucket, name=name)
    except OSError as exc:
        if exc.errno in NOT_FOUND_ERRNOS:
            return None
        raise


def stat_object(root: Path, bucket: str, name: str) -> os.stat_result | None:
    """The status of an object's file, which may be unreadable. Returns None if there is none, or its folder is too."""
    parts = components(name)
    try:
        with open_directory(root, (bucket_name(bucket), *parts[:-1])) as folder:
            status = os.stat(parts[-1], dir_fd=folder, follow_symlinks=False)
    except OSError:
        return None  # the caller raises its own error
    return status if stat.S_ISREG(status.st_mode) else None


def unreadable_error(bucket: str, name: str, status: os.stat_result) -> FailedPreconditionError:
    """Return the error for a file whose mode keeps the server out."""
    return FailedPreconditionError(
        f"The file behind gs://{bucket}/{name} can't be read: its mode is {stat.S_IMODE(status.st_mode):03o} and its "
        f"owner is user {status.st_uid}, which keeps the server out. Change that with chmod or chown on the server's "
        f"machine, or delete the object or write it anew."
    )


def check_plain(root: Path, bucket: str, name: str) -> None:
    """Raises `FailedPreconditionError` if a folder has an entry that is neither a file nor a folder.

    Raises `NotFoundError` if the folder does not exist.
    """
    try:
        with open_directory(root, (bucket, *(components(name) if name else ()))) as folder:
            for path, folders, files, fd in os.fwalk(".", dir_fd=folder, follow_symlinks=False):
                for entry in (*folders, *files):
                    mode = os.stat(entry, dir_fd=fd, follow_symlinks=False).st_mode
                    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
                        path_shown = "/".join(filter(None, (bucket, name, path.removeprefix(".").lstrip("/"), entry)))
                        raise FailedPreconditionError(
                            f"gs://{path_shown} is a link, or no file at all. Links are not followed: put the file "
                            f"itself there."
                        )
    except OSError as exc:
        if exc.errno not in NOT_FOUND_ERRNOS:
            raise
        raise object_not_found(bucket, name) from exc
