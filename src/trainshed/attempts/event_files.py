"""Event files of a training, found and read on from where the last look ended.

Trainers write them, and may write anything: links are not followed, nothing but plain files is read, and one look
goes through so many names and so many bytes only. A file that is damaged is read up to there.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from trainshed.attempts import event_records

LOOK_BYTES = 2 << 20  #: of one look, over all files
MAX_RECORD = 64 * 1024  #: a longer record is a graph, an image or the like: passed over without being read
MAX_NAMES = 4000  #: looked at in one look
MAX_FILES = 64
MAX_DEPTH = 4
_CHUNK = 256 * 1024
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class EventFolder(NamedTuple):
    """A folder. `root` is trusted, the names below it are not."""

    root: Path
    parts: tuple[str, ...]


class Scalar(NamedTuple):
    """One value of one tag, and the folder that its file is in: what is below the place that was looked through."""

    folder: tuple[str, ...]
    tag: str
    time_us: int
    step: int
    value: float


@dataclass(slots=True)
class _File:
    inode: int
    offset: int = 0
    known: set[str] = field(default_factory=set)
    damaged: bool = False


class EventFiles:
    """One training's. Not for several threads at once."""

    def __init__(self, *, since_us: int) -> None:
        """What was written before is of another training in the same folder."""
        self._since_us = since_us
        self._files: dict[tuple[EventFolder, str], _File] = {}
        self._left = 0  #: bytes that this look may still read
        self.complete = True  #: whether the last look came to the end of all files

    def look(self, places: Iterable[EventFolder]) -> Iterator[Scalar]:
        """What is new below these folders. A look that is `not complete` leaves the rest to the next."""
        self._left = LOOK_BYTES
        seen: set[tuple[int, int]] = set()
        for place, below, name in _found(places):
            with _opened(place, name) as fd:
                status = os.fstat(fd) if fd is not None else None
                if fd is None or status is None or (status.st_dev, status.st_ino) in seen:
                    continue
                seen.add((status.st_dev, status.st_ino))  # places may be within each other
                if not stat.S_ISREG(status.st_mode) or status.st_mtime_ns // 1000 < self._since_us:
                    continue
                file = self._file(place, name, status)
                for scalar in self._read(file, fd, status.st_size):
                    yield scalar._replace(folder=below)
        self.complete = self._left > 0

    def _file(self, place: EventFolder, name: str, status: os.stat_result) -> _File:
        file = self._files.get((place, name))
        if file is None or file.inode != status.st_ino or file.offset > status.st_size:
            file = self._files[place, name] = _File(status.st_ino)
        return file

    def _read(self, file: _File, fd: int, size: int) -> Iterator[Scalar]:
        """The scalars of whole records, as far as this look may read."""
        data, start = b"", file.offset  # what is read, and where in the file that begins
        while not file.damaged and self._left > 0 and file.offset + event_records.HEADER <= size:
            at = file.offset - start
            if len(data) - at < event_records.HEADER + MAX_RECORD + event_records.FOOTER and start + len(data) < size:
                data, start, at = os.pread(fd, _CHUNK, file.offset), file.offset, 0
                self._left -= len(data)
            if len(data) - at < event_records.HEADER:
                return  # it was cut meanwhile
            try:
                length = event_records.record_length(data[at : at + event_records.HEADER])
                end = at + event_records.HEADER + length + event_records.FOOTER
                if start + end > size or (length <= MAX_RECORD and end > len(data)):
                    return  # not all of it is written yet
                if length <= MAX_RECORD:
                    yield from self._scalars(file, data[at + event_records.HEADER : end])
                file.offset = start + end
                if end > len(data):
                    data, start = b"", file.offset
            except event_records.BadRecordError:
                file.damaged = True

    def _scalars(self, file: _File, framed: bytes) -> Iterator[Scalar]:
        record, footer = framed[: -event_records.FOOTER], framed[-event_records.FOOTER :]
        event_records.check_record(record, footer)
        event = event_records.scalars(record, file.known)
        if not 0 <= event.time_s < 1e11 or not 0 <= event.step < 1 << 53:
            return
        time_us = int(event.time_s * 1e6)
        if time_us >= self._since_us:
            for tag, value in event.values:
                yield Scalar((), tag, time_us, event.step, value)


def _found(places: Iterable[EventFolder]) -> Iterator[tuple[EventFolder, tuple[str, ...], str]]:
    """(folder, its names below the place, file) of what is called an event file, the nearest first."""
    waiting: list[tuple[EventFolder, tuple[str, ...]]] = [(place, ()) for place in dict.fromkeys(places)]
    names = files = 0
    for place, below in waiting:  # grows while it is walked
        for name, is_folder in _listed(place):
            names += 1
            if names > MAX_NAMES or files >= MAX_FILES:
                return
            if is_folder and len(below) < MAX_DEPTH:
                waiting.append((EventFolder(place.root, (*place.parts, name)), (*below, name)))
            elif not is_folder and "tfevents" in name:
                files += 1
                yield place, below, name


def _listed(place: EventFolder) -> list[tuple[str, bool]]:
    """Names and whether they are folders, so many at most; nothing for a folder that is not there."""
    found: list[tuple[str, bool]] = []
    with _opened(place) as fd:
        if fd is None:
            return found
        with os.scandir(fd) as entries:
            for entry in entries:
                found.append((entry.name, entry.is_dir(follow_symlinks=False)))
                if len(found) >= MAX_NAMES:
                    break
    return sorted(found)


@contextmanager
def _opened(place: EventFolder, name: str = "") -> Iterator[int | None]:
    """A descriptor of the folder, or of what is called `name` in it; None if it can't be had without a link."""
    try:
        fd = os.open(place.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        yield None
        return
    try:
        steps = [(part, _FOLDER) for part in place.parts]
        if name:
            steps.append((name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC))
        for part, flags in steps:
            inner = _inner(part, flags, fd)
            if inner is None:
                yield None
                return
            os.close(fd)
            fd = inner
        yield fd
    finally:
        os.close(fd)


def _inner(part: str, flags: int, folder: int) -> int | None:
    if part in ("", ".", "..") or "/" in part:
        return None
    try:
        return os.open(part, flags, dir_fd=folder)
    except (OSError, ValueError):  # ValueError: a NUL in the name
        return None


_LOSS = re.compile(r"(?:epoch_|batch_|train_|training_|total_|average_|evaluation_)?loss(?:_\d+|_vs_iterations)?")
_ACCURACY = re.compile(
    r"(?:epoch_|batch_|train_|training_|evaluation_)?(?:sparse_|categorical_|binary_)*(?:accuracy|acc)"
    r"(?:_\d+|_vs_iterations)?"
)
_RATES = frozenset(("global_step/sec", "batch_steps_per_second", "steps_per_second", "steps_per_sec"))
_EVALUATES = re.compile(r"(?:^|[/_ .-])(?:eval\w*|val|validation|valid|test\w*)(?:$|[/_ .-])")


class MetricMeaning(NamedTuple):
    """What a scalar is about."""

    name: str  #: loss, accuracy or rate
    evaluation: bool
    by_epoch: bool  #: its `step` counts epochs


def meaning(scalar: Scalar) -> MetricMeaning | None:
    """What a tag stands for, by the names that Estimators, Keras and people give; None if it is something else."""
    tag = scalar.tag.lower()
    evaluation = bool(_EVALUATES.search(tag) or any(_EVALUATES.search(part.lower()) for part in scalar.folder))
    if tag in _RATES:
        return MetricMeaning("rate", evaluation, False)
    for part in tag.split("/"):
        part = part.removeprefix("val_").removeprefix("eval_").removeprefix("test_").removeprefix("validation_")
        by_epoch = part.startswith("epoch_")
        if _LOSS.fullmatch(part):
            return MetricMeaning("loss", evaluation, by_epoch)
        if _ACCURACY.fullmatch(part):
            return MetricMeaning("accuracy", evaluation, by_epoch)
    return None
