"""The file of one object below the root of all buckets: opened, and described where it can't be opened."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from trainshed.buckets.dirfd import open_directory, open_file
from trainshed.buckets.names import bucket_name, components
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
