"""Reads reports of a trial's metric: hypertune's own files, and the copy that the attempt has of all reports."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator

import orjson

from trainshed.attempts.event_files import EventFolder, open_below
from trainshed.node.process.metric_reports import COPY_MAX_BYTES, HYPERTUNE_FILE, READ_MAX_BYTES, REPORTS_FILE

Report = dict[str, object]
_SHOWN_MAX_BYTES = 80  #: of a broken line
_COPY_READ_MAX_BYTES = 2 * COPY_MAX_BYTES


class BrokenLine(str):
    """The beginning of a line that is no report."""

    __slots__ = ()


class ReportCopy:
    """The copy in one attempt's folder, read as it grows. Not thread-safe."""

    def __init__(self) -> None:
        self._inode = self._offset = 0

    def new_reports(self, attempt: EventFolder) -> Iterator[Report]:
        """The reports that were added since. A copy that was thinned out is another file: all of it is new."""
        with open_below(attempt, REPORTS_FILE) as fd:
            if fd is None:
                return
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode):
                return
            if status.st_ino != self._inode or status.st_size < self._offset:
                self._inode, self._offset = status.st_ino, 0
            lines, end, _torn = os.pread(fd, _COPY_READ_MAX_BYTES, self._offset).rpartition(b"\n")
        self._offset += len(lines) + len(end)
        yield from (report for report in _parse(lines) if isinstance(report, dict))


def last_reports(folders: Iterable[EventFolder]) -> Iterator[Report | BrokenLine]:
    """The reports in hypertune's own files. Such a file is truncated at each report, so its end may be cut off.

    A line that is no report comes as `BrokenLine`.
    """
    for folder in folders:
        with open_below(folder, HYPERTUNE_FILE) as fd:
            regular = fd is not None and stat.S_ISREG(os.fstat(fd).st_mode)
            data = os.pread(fd, READ_MAX_BYTES, 0) if fd is not None and regular else b""
        yield from _parse(data)


def _parse(lines: bytes) -> Iterator[Report | BrokenLine]:
    for line in lines.splitlines():
        try:
            report = orjson.loads(line)
        except orjson.JSONDecodeError:
            report = None
        yield report if isinstance(report, dict) else BrokenLine(line[:_SHOWN_MAX_BYTES].decode(errors="replace"))
