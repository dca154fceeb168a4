"""One page of a bucket's objects, by walking its folders in the order of the objects' names.

A folder sorts by its name with a slash, so that a walk meets `a-b`, `a.b`, `a/b`, `ab` in just that order; it can
begin anywhere and reads no folder that the page doesn't touch.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trainshed.buckets import attributes
from trainshed.buckets.folders import ABSENT, open_folder, opened
from trainshed.buckets.names import components
from trainshed.domain.objects import ListQuery, ObjectInfo, Page, no_bucket
from trainshed.errors import Invalid


def list_page(root: Path, bucket: str, query: ListQuery) -> Page:
    """What the query asks for. Objects that programs wrote as files come without checksums."""
    base = query.prefix[: query.prefix.rfind("/") + 1]
    try:
        parts = components(base) if base else ()
    except Invalid:
        _check_bucket(root / bucket)
        return Page()  # a name that no object can have begins no object's name either
    walk = _Walk(bucket, query)
    try:
        with opened(root, (bucket, *parts)) as folder:
            walk.enter(folder, base)
    except OSError as exc:
        if exc.errno not in ABSENT:
            raise
        _check_bucket(root / bucket)
    return walk.page()


def _check_bucket(path: Path) -> None:
    if not path.is_dir():
        raise no_bucket(path.name)


class _Walk:
    def __init__(self, bucket: str, query: ListQuery) -> None:
        self._bucket = bucket
        self._query = query
        self._items: list[ObjectInfo] = []
        self._prefixes: list[str] = []
        self._last = ""  #: the last name or prefix that was put on the page
        self._more = False
        after_is_prefix = bool(query.delimiter) and query.delimiter in query.after[len(query.prefix) :]
        self._skip = query.after if after_is_prefix else ""  #: what begins with this is on a page already

    def page(self) -> Page:
        return Page(items=tuple(self._items), prefixes=tuple(self._prefixes), next=self._last if self._more else "")

    def enter(self, folder: int, base: str) -> bool:
        """Go through a folder: its mark, then what is in it. False when there is nothing more to look for."""
        if base and self._wanted(base):
            mark = attributes.read_mark(folder, bucket=self._bucket, name=base)
            if mark is not None and (self._ends(base) or not self._add(mark)):
                return False
        for key, name, is_folder in self._entries(folder, base):
            if self._ends(key):
                return False
            if not (self._below(folder, name, key) if is_folder else self._file(folder, name, key)):
                return False
        return True

    def _entries(self, folder: int, base: str) -> list[tuple[str, str, bool]]:
        """Name with its path, name, whether it is a folder: those that may hold something of this page, sorted."""
        found = []
        with os.scandir(folder) as entries:
            for entry in entries:
                name = entry.name
                if entry.is_file(follow_symlinks=False):
                    key = base + name
                    if self._wanted(key) and _nameable(name):
                        found.append((key, name, False))
                elif entry.is_dir(follow_symlinks=False):
                    key = f"{base}{name}/"
                    if self._may_hold(key) and _nameable(name):
                        found.append((key, name, True))
        found.sort()
        return found

    def _below(self, folder: int, name: str, key: str) -> bool:
        if self._skip and key.startswith(self._skip):
            return True
        with _entered(name, folder) as below:
            if below is None:
                return True
            if self._is_one_prefix(key):
                mark = attributes.read_mark(below, bucket=self._bucket, name=key)
                return not (mark or _holds_object(below)) or self._add_prefix(self._prefix_of(key), mark)
            return self.enter(below, key)

    def _is_one_prefix(self, key: str) -> bool:
        """Whether all of a folder is told by one prefix, wherever in it the listing's bounds may fall."""
        query = self._query
        bounds = (query.start, query.after, query.end)
        return (
            key.startswith(query.prefix)
            and self._prefix_of(key) != ""
            and not any(bound.startswith(key) for bound in bounds)
        )

    def _file(self, folder: int, name: str, key: str) -> bool:
        if self._skip and key.startswith(self._skip):
            return True
        try:
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
            info = attributes.read(f"/proc/self/fd/{folder}/{name}", status, bucket=self._bucket, name=key)
        except FileNotFoundError:
            return True  # deleted since the folder was read
        return self._add(info)

    def _add(self, info: ObjectInfo) -> bool:
        if self._skip and info.name.startswith(self._skip):
            return True
        if prefix := self._prefix_of(info.name):
            return self._add_prefix(prefix, info)
        if self._full():
            return False
        self._items.append(info)
        self._last = info.name
        return True

    def _add_prefix(self, prefix: str, mark: ObjectInfo | None = None) -> bool:
        if self._full():
            return False
        self._prefixes.append(prefix)
        self._last = self._skip = prefix
        if self._query.delimiter_objects and mark is not None and mark.name == prefix:
            self._items.append(mark)
        return True

    def _full(self) -> bool:
        self._more = len(self._items) + len(self._prefixes) >= self._query.limit
        return self._more

    def _prefix_of(self, name: str) -> str:
        """A name up to the first delimiter behind the prefix asked for. Empty: the name stands for itself."""
        if not self._query.delimiter:
            return ""
        at = name.find(self._query.delimiter, len(self._query.prefix))
        return name[: at + len(self._query.delimiter)] if at >= 0 else ""

    def _ends(self, key: str) -> bool:
        return bool(self._query.end) and key >= self._query.end

    def _wanted(self, name: str) -> bool:
        query = self._query
        return name.startswith(query.prefix) and name >= query.start and (not query.after or name > query.after)

    def _may_hold(self, key: str) -> bool:
        query = self._query
        if not (key.startswith(query.prefix) or query.prefix.startswith(key)):
            return False
        return all(key > bound or bound.startswith(key) for bound in (query.start, query.after) if bound)


@contextmanager
def _entered(name: str, folder: int) -> Iterator[int | None]:
    try:
        below = open_folder(name, folder=folder)
    except OSError as exc:
        if exc.errno not in ABSENT:
            raise
        yield None
        return
    try:
        yield below
    finally:
        os.close(below)


def _holds_object(folder: int) -> bool:
    folders = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_file(follow_symlinks=False) and _nameable(entry.name):
                return True
            if entry.is_dir(follow_symlinks=False):
                folders.append(entry.name)
    for name in folders:
        with _entered(name, folder) as below:
            if below is not None and (attributes.has_mark(below) or _holds_object(below)):
                return True
    return False


def _nameable(name: str) -> bool:
    """Whether a file's name can be part of an object's: UTF-8 without line ends."""
    if "\n" in name or "\r" in name:
        return False
    return name.isascii() or not any("\ud800" <= char <= "\udfff" for char in name)
