"""One page of a bucket's objects, by walking its folders in the order of the objects' names.

A folder sorts by its name with a slash, so that a walk meets `a-b`, `a.b`, `a/b`, `ab` in just that order; it can
begin anywhere and reads no folder that the page doesn't touch.
"""

from __future__ import annotations

import os
from pathlib import Path

from trainshed.buckets import xattrs
from trainshed.buckets.dirfd import ABSENT, DirectoryWalk, open_directory
from trainshed.buckets.names import MAX_NAME, components
from trainshed.domain.objects import ListQuery, ObjectInfo, ObjectPage, bucket_not_found
from trainshed.errors import InvalidArgumentError

_NOTHING = ("", "", False)


def list_page(root: Path, bucket: str, query: ListQuery) -> ObjectPage:
    """What the query asks for. Objects that programs wrote as files come without checksums."""
    base = query.prefix[: query.prefix.rfind("/") + 1]
    try:
        parts = components(base) if base else ()
    except InvalidArgumentError:
        _check_bucket(root / bucket)
        return ObjectPage()  # a name that no object can have begins no object's name either
    walk = _Walk(bucket, query)
    try:
        with open_directory(root, (bucket, *parts)) as folder, DirectoryWalk(folder) as place:
            walk.go(place, base)
    except OSError as exc:
        if exc.errno not in ABSENT:
            raise
        _check_bucket(root / bucket)
    return walk.page()


def _check_bucket(path: Path) -> None:
    if not path.is_dir():
        raise bucket_not_found(path.name)


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

    def page(self) -> ObjectPage:
        return ObjectPage(
            items=tuple(self._items), prefixes=tuple(self._prefixes), next=self._last if self._more else ""
        )

    def go(self, place: DirectoryWalk, base: str) -> None:
        """Go through a folder and those below it until the page is full or there is nothing more to look for."""
        if not self._enter(place, base):
            return
        levels = [iter(self._entries(place.fd, base))]
        while levels:
            key, name, is_folder = next(levels[-1], _NOTHING)
            if not key:
                levels.pop()
                if levels:
                    place.up()
            elif self._ends(key):
                return
            elif self._skip and key.startswith(self._skip):
                continue
            elif not is_folder:
                if not self._file(place.fd, name, key):
                    return
            elif _went_down(place, name):
                if self._is_one_prefix(key):
                    goes_on = self._prefix(place, key)
                    place.up()
                else:
                    goes_on = self._enter(place, key)
                    levels.append(iter(self._entries(place.fd, key)))
                if not goes_on:
                    return

    def _enter(self, place: DirectoryWalk, base: str) -> bool:
        """Look at a folder's mark. False when there is nothing more to look for."""
        if base and self._wanted(base):
            mark = xattrs.read_mark(place.fd, bucket=self._bucket, name=base)
            if mark is not None and (self._ends(base) or not self._add(mark)):
                return False
        return True

    def _prefix(self, place: DirectoryWalk, key: str) -> bool:
        mark = xattrs.read_mark(place.fd, bucket=self._bucket, name=key)
        return not (mark or _holds_object(place.fd, key)) or self._add_prefix(self._prefix_of(key), mark)

    def _entries(self, folder: int, base: str) -> list[tuple[str, str, bool]]:
        """Name with its path, name, whether it is a folder: those that may hold something of this page, sorted."""
        found = []
        with os.scandir(folder) as entries:
            for entry in entries:
                name = entry.name
                if entry.is_file(follow_symlinks=False):
                    key = base + name
                    if self._wanted(key) and nameable(key):
                        found.append((key, name, False))
                elif entry.is_dir(follow_symlinks=False):
                    key = f"{base}{name}/"
                    if self._may_hold(key) and nameable(key):
                        found.append((key, name, True))
        found.sort()
        return found

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
        try:
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
            info = xattrs.read(f"/proc/self/fd/{folder}/{name}", status, bucket=self._bucket, name=key)
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


def _went_down(place: DirectoryWalk, name: str) -> bool:
    try:
        place.down(name)
    except OSError as exc:
        if exc.errno not in ABSENT:
            raise
        return False  # deleted since the folder was read
    return True


def _holds_object(folder: int, base: str) -> bool:
    """Whether there is an object below a folder, `base` being its name. Its own mark doesn't count."""
    with DirectoryWalk(folder) as place:
        levels = [(base, _look(place.fd, base))]
        while levels:
            key, folders = levels[-1]
            if folders is None:
                return True
            if not folders:
                levels.pop()
                if levels:
                    place.up()
                continue
            name = folders.pop()
            if _went_down(place, name):
                below = f"{key}{name}/"
                if xattrs.read_mark(place.fd, bucket="", name=below) is not None:
                    return True
                levels.append((below, _look(place.fd, below)))
    return False


def _look(folder: int, base: str) -> list[str] | None:
    """The folders in a folder that may hold objects; None if a file in it is one."""
    folders = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_file(follow_symlinks=False):
                if nameable(base + entry.name):
                    return None
            elif entry.is_dir(follow_symlinks=False) and nameable(f"{base}{entry.name}/"):
                folders.append(entry.name)
    return folders


def nameable(name: str) -> bool:
    """Whether a file can be an object of that name: UTF-8, not too long, without line ends.

    No folder with a name too long holds an object, so this also bounds how deep a walk goes.
    """
    if "\n" in name or "\r" in name:
        return False
    if name.isascii():
        return len(name) <= MAX_NAME
    if any("\ud800" <= char <= "\udfff" for char in name):
        return False
    return len(name.encode()) <= MAX_NAME
