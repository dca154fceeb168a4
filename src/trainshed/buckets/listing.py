"""One page of a bucket's objects, by walking its folders in the order of object names.

A folder sorts by its name with a slash, so a walk visits `a-b`, `a.b`, `a/b`, `ab` in exactly that order. It can start
anywhere, and reads no folder outside of the page.
"""

from __future__ import annotations

import os
from pathlib import Path

from trainshed.buckets import xattrs
from trainshed.buckets.dirfd import NOT_FOUND_ERRNOS, DirectoryWalk, open_directory
from trainshed.buckets.names import MAX_NAME_BYTES, components
from trainshed.domain.objects import ListQuery, ObjectInfo, ObjectPage, bucket_not_found
from trainshed.domain.work_budget import WorkBudget, unlimited
from trainshed.errors import InvalidArgumentError

_END_OF_FOLDER = ("", "", False)
_LAST_NAME = chr(0x10FFFF)  #: behind a folder's key, the end of all names in it
_ENTRIES_PER_CHECK = 1000  #: of a folder, between two looks at the budget


def list_page(root: Path, bucket: str, query: ListQuery, budget: WorkBudget | None = None) -> ObjectPage:
    """The page that the query selects. Files that other programs wrote have no checksums.

    When the budget is exhausted, the page ends early, with a `next`. It may be empty then, after folders without
    objects. Raises `RequestCancelledError` if nobody waits for it any more.
    """
    base = query.prefix[: query.prefix.rfind("/") + 1]
    try:
        parts = components(base) if base else ()
    except InvalidArgumentError:
        _check_bucket(root / bucket)
        return ObjectPage()  # the prefix is no valid name, so no object has it
    walk = _Walk(bucket, query, budget or unlimited())
    try:
        with open_directory(root, (bucket, *parts)) as folder, DirectoryWalk(folder) as position:
            walk.go(position, base)
    except OSError as exc:
        if exc.errno not in NOT_FOUND_ERRNOS:
            raise
        _check_bucket(root / bucket)
    return walk.page()


def _check_bucket(path: Path) -> None:
    if not path.is_dir():
        raise bucket_not_found(path.name)


class _Walk:
    def __init__(self, bucket: str, query: ListQuery, budget: WorkBudget) -> None:
        self._bucket = bucket
        self._query = query
        self._budget = budget
        self._items: list[ObjectInfo] = []
        self._prefixes: list[str] = []
        self._last = ""  #: the last name or prefix on the page
        self._more = False
        after_is_prefix = bool(query.delimiter) and query.delimiter in query.after[len(query.prefix) :]
        self._skip = query.after if after_is_prefix else ""  #: common prefix that the previous page ended with

    def page(self) -> ObjectPage:
        return ObjectPage(
            items=tuple(self._items), prefixes=tuple(self._prefixes), next=self._last if self._more else ""
        )

    def go(self, position: DirectoryWalk, base: str) -> None:
        """Walk a folder tree until the page is full or past the end."""
        if not self._enter(position, base):
            return
        levels = [(base, iter(self._entries(position.fd, base)))]
        while levels:
            key, name, is_folder = next(levels[-1][1], _END_OF_FOLDER)
            if not key:
                folder, _ = levels.pop()
                if levels:
                    position.up()
                    if self._ends_behind(folder):
                        return
            elif self._past_end(key):
                return
            elif self._skip and key.startswith(self._skip):
                continue
            elif not is_folder:
                if not self._add_file(position.fd, name, key):
                    return
            elif _try_down(position, name):
                if self._folds_into_prefix(key):
                    proceed = self._add_folder_prefix(position, key)
                    position.up()
                else:
                    proceed = self._enter(position, key)
                    levels.append((key, iter(self._entries(position.fd, key))))
                if not proceed:
                    return

    def _enter(self, position: DirectoryWalk, base: str) -> bool:
        """Add a folder's mark. Returns False when the page is complete."""
        if base and self._selects(base):
            mark = xattrs.read_mark(position.fd, bucket=self._bucket, name=base)
            if mark is not None and (self._past_end(base) or not self._add(mark)):
                return False
        return True

    def _add_folder_prefix(self, position: DirectoryWalk, key: str) -> bool:
        mark = xattrs.read_mark(position.fd, bucket=self._bucket, name=key)
        holds = mark or _holds_object(position.fd, key, self._budget)
        return not holds or self._add_prefix(self._prefix_of(key), mark)

    def _entries(self, folder: int, base: str) -> list[tuple[str, str, bool]]:
        """The entries that can be on this page, sorted: full name, name, whether it is a folder."""
        result = []
        with os.scandir(folder) as entries:
            for number, entry in enumerate(entries):
                if number % _ENTRIES_PER_CHECK == 0:
                    self._budget.spend(0)
                name = entry.name
                if entry.is_file(follow_symlinks=False):
                    key = base + name
                    if self._selects(key) and is_valid_name(key):
                        result.append((key, name, False))
                elif entry.is_dir(follow_symlinks=False):
                    key = f"{base}{name}/"
                    if self._may_contain(key) and is_valid_name(key):
                        result.append((key, name, True))
        result.sort()
        return result

    def _folds_into_prefix(self, key: str) -> bool:
        """Whether one common prefix represents the whole folder, with none of the query's bounds inside it."""
        query = self._query
        bounds = (query.start, query.after, query.end)
        return (
            key.startswith(query.prefix)
            and self._prefix_of(key) != ""
            and not any(bound.startswith(key) for bound in bounds)
        )

    def _add_file(self, folder: int, name: str, key: str) -> bool:
        try:
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
            info = xattrs.read(f"/proc/self/fd/{folder}/{name}", status, bucket=self._bucket, name=key)
        except FileNotFoundError:
            return True  # deleted since the folder was read
        except PermissionError:  # its attribute can't be read, but its size and time are known
            info = xattrs.plain_file_info(status, bucket=self._bucket, name=key)
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
        count = len(self._items) + len(self._prefixes)
        self._more = count >= self._query.limit or (count > 0 and self._budget.exhausted)
        return self._more

    def _ends_behind(self, folder: str) -> bool:
        """Whether the page ends here, behind all names of a folder, because the budget is exhausted."""
        self._budget.spend(0)
        end = folder + _LAST_NAME
        if end > self._query.after and self._budget.exhausted:  # so that each page gets further than the one before
            self._last, self._more = end, True
        return self._more

    def _prefix_of(self, name: str) -> str:
        """The common prefix of a name: up to the first delimiter after the query's prefix. Empty if there is none."""
        if not self._query.delimiter:
            return ""
        index = name.find(self._query.delimiter, len(self._query.prefix))
        return name[: index + len(self._query.delimiter)] if index >= 0 else ""

    def _past_end(self, key: str) -> bool:
        return bool(self._query.end) and key >= self._query.end

    def _selects(self, name: str) -> bool:
        query = self._query
        return name.startswith(query.prefix) and name >= query.start and (not query.after or name > query.after)

    def _may_contain(self, key: str) -> bool:
        query = self._query
        if not (key.startswith(query.prefix) or query.prefix.startswith(key)):
            return False
        return all(key > bound or bound.startswith(key) for bound in (query.start, query.after) if bound)


def _try_down(position: DirectoryWalk, name: str) -> bool:
    try:
        position.down(name)
    except OSError as exc:
        if exc.errno not in NOT_FOUND_ERRNOS:
            raise
        return False  # deleted since the folder was read
    return True


def _holds_object(folder: int, base: str, budget: WorkBudget) -> bool:
    """Whether there is an object below the folder `base`. Its own mark does not count."""
    with DirectoryWalk(folder) as position:
        levels = [(base, _subfolders(position.fd, base))]
        while levels:
            key, folders = levels[-1]
            if folders is None:
                return True
            if not folders:
                levels.pop()
                if levels:
                    position.up()
                continue
            budget.spend(0)
            name = folders.pop()
            if _try_down(position, name):
                child = f"{key}{name}/"
                if xattrs.read_mark(position.fd, bucket="", name=child) is not None:
                    return True
                levels.append((child, _subfolders(position.fd, child)))
    return False


def _subfolders(folder: int, base: str) -> list[str] | None:
    """The subfolders that can contain objects. Returns None if a file in the folder is an object."""
    folders = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_file(follow_symlinks=False):
                if is_valid_name(base + entry.name):
                    return None
            elif entry.is_dir(follow_symlinks=False) and is_valid_name(f"{base}{entry.name}/"):
                folders.append(entry.name)
    return folders


def is_valid_name(name: str) -> bool:
    """Whether a file can be an object of that name: UTF-8, within the length limit, without line ends.

    A folder whose name is too long contains no object, so this also bounds the depth of a walk.
    """
    if "\n" in name or "\r" in name:
        return False
    if name.isascii():
        return len(name) <= MAX_NAME_BYTES
    if any("\ud800" <= char <= "\udfff" for char in name):
        return False
    return len(name.encode()) <= MAX_NAME_BYTES
