"""Copies the reports of a trial's metric out of the replica's reach, as `hypertune` writes them.

`hypertune` keeps the last 100 reports, and truncates its file before each one. The copy is a file of the attempt that
only grows, so reports stay when the trainer goes on, when the server is down, and when the replica is on a node.
"""

from __future__ import annotations

import json
import os
import stat
import sys

from ..files import write_file
from ..journal import DISK_FULL

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional

METRIC_FILE_VARIABLE = "CLOUD_ML_HP_METRIC_FILE"
HYPERTUNE_FOLDER = "hypertune"  #: in a working folder; on the server's machine, with a folder for each replica
HYPERTUNE_FILE = "output.metrics"
REPORTS_FILE = "reports.jsonl"  #: in an attempt's folder: the reports of all replicas
READ_MAX_BYTES = 256 << 10  #: of hypertune's file
LINE_MAX_BYTES = 16 << 10
COPY_MAX_BYTES = 4 << 20  #: of the copy; then every second report is dropped
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class ReportReader:
    """Reads the new reports of one replica. Called at least once a second, it misses none but those of a burst."""

    def __init__(self, work: str, *folders: str) -> None:
        """hypertune's file is in `folders` below the working folder, which the replica may change as it likes."""
        self._work = work
        self._folders = folders
        self._known: set[bytes] = set()  # the lines of the last read that found any
        self._stamp: Optional[tuple[int, int, int]] = None  # of the file at the last read

    def new_lines(self) -> bytes:
        """The reports since the last call. What is cut off is read by a later call."""
        data = self._read()
        lines = [line for line in data.splitlines() if _is_report(line)]
        if not lines:
            return b""
        new = [line for line in lines if line not in self._known]
        self._known = set(lines)
        return b"".join(line + b"\n" for line in new)

    def _read(self) -> bytes:
        try:
            fd = _open_below(self._work, self._folders, HYPERTUNE_FILE)
        except OSError:
            return b""  # nothing is reported yet, or a link is in the way
        try:
            status = os.fstat(fd)
            stamp = (status.st_ino, status.st_size, status.st_mtime_ns)
            if not stat.S_ISREG(status.st_mode) or stamp == self._stamp:
                return b""
            self._stamp = stamp
            return os.pread(fd, READ_MAX_BYTES, 0)
        finally:
            os.close(fd)


class ReportCopies:
    """Copies the reports of an attempt's replicas on this machine. Does nothing for a job that is no trial."""

    def __init__(self, folder: str, spec: dict[str, Any]) -> None:
        self._path = os.path.join(folder, REPORTS_FILE)
        names = [each["name"] for each in spec["replicas"] if METRIC_FILE_VARIABLE in each["env"]]
        work = os.path.join(folder, "work")
        self._readers = [] if spec.get("cluster") else [ReportReader(work, HYPERTUNE_FOLDER, name) for name in names]

    def copy(self) -> None:
        for reader in self._readers:
            append_reports(self._path, reader.new_lines())


def append_reports(path: str, lines: bytes) -> None:
    """Append to the copy in one write. A full disk costs the lines, not the job.

    A copy that gets too long keeps every second report and the last one.
    """
    if not lines:
        return
    fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        os.write(fd, lines)
        size = os.fstat(fd).st_size
        if size > COPY_MAX_BYTES:
            whole = os.pread(fd, size, 0).splitlines(True)
            write_file(path, b"".join(reversed(whole[::-2])))
    except OSError as exc:
        if exc.errno not in DISK_FULL:
            raise
        sys.stderr.write("Reports of a metric were lost: %s.\n" % exc.strerror)
    finally:
        os.close(fd)


def _is_report(line: bytes) -> bool:
    if len(line) > LINE_MAX_BYTES:
        return False
    try:
        return isinstance(json.loads(line.decode("utf-8", "replace")), dict)
    except (ValueError, RecursionError):
        return False


def _open_below(root: str, folders: tuple[str, ...], name: str) -> int:
    """Open a file without following a link on the way. Raises `OSError` if that is not possible."""
    folder = os.open(root, _FOLDER_FLAGS)
    try:
        for each in folders:
            inner = os.open(each, _FOLDER_FLAGS, dir_fd=folder)
            os.close(folder)
            folder = inner
        return os.open(name, _FILE_FLAGS, dir_fd=folder)
    finally:
        os.close(folder)
