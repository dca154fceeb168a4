"""The file of one object below the root of all buckets: opened, and described where it can't be opened."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from trainshed.buckets.dirfd import NOT_FOUND_ERRNOS, open_directory, open_file
from trainshed.buckets.names import bucket_name, components
from trainshed.domain.objects import object_not_found
from trainshed.errors import FailedPreconditionError


def open_object(root: Path, bucket: str, name: str) -> int:
    """Open the file of an object for reading. Raises `OSError`. No symbolic link is followed."""
    parts = components(name)
    with open_directory(root, (bucket_name(bucket), *parts[:-1])) as folder:
        return open_file(parts[-1], folder=folder)


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
