"""A file tree in memory that knows what a power cut would leave of it.

The promises are those of POSIX and no more. What was written to a file survives once the file was synced; until then
each sector of it may survive or not. A name survives once its folder was synced, whether or not its file was. Until
then, changes of a folder survive up to some moment, in their order. A rename is lost or survives as a whole, and with
it what happened to its folders before.
"""

from __future__ import annotations

import errno
import os
import random
import stat
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from _typeshed import SupportsLenAndGetItem

T = TypeVar("T")

SECTOR = 512  #: bytes that a disk writes as a whole
_NAME_SURVIVAL = (0.0, 0.5, 0.9, 1.0)  #: probabilities that a change of a folder survives, the worst first
ROOT = 1


@dataclass(frozen=True, slots=True)
class Attributes:
    """What is known of an inode besides its content."""

    mode: int
    uid: int
    gid: int
    accessed_ns: int
    modified_ns: int
    xattrs: tuple[tuple[str, bytes], ...] = ()


@dataclass(frozen=True, slots=True)
class Write:
    """Bytes written to a file, or its truncation to `offset` if `data` is None."""

    offset: int
    data: bytes | None

    def apply(self, content: bytearray) -> None:
        if self.data is None:
            resize(content, self.offset)
            return
        if self.offset > len(content):
            resize(content, self.offset)
        content[self.offset : self.offset + len(self.data)] = self.data


def resize(content: bytearray, size: int) -> None:
    if size < len(content):
        del content[size:]
    else:
        content.extend(bytes(size - len(content)))


@dataclass(slots=True)
class Inode:
    """A file, a folder, a link or anything else that has a name."""

    number: int
    attributes: Attributes
    synced: Attributes
    content: bytearray = field(default_factory=bytearray)  #: of a file; the target of a link
    durable: bytearray = field(default_factory=bytearray)
    pending: list[Write] = field(default_factory=list)  #: since the last sync
    names: dict[str, int] = field(default_factory=dict)  #: of a folder
    durable_names: dict[str, int] = field(default_factory=dict)
    links: int = 0

    @property
    def is_folder(self) -> bool:
        return stat.S_ISDIR(self.attributes.mode)


@dataclass(frozen=True, slots=True)
class NameChange:
    """A change of names that survives as a whole or not at all: (folder, name, inode or None)."""

    names: tuple[tuple[int, str, int | None], ...]

    @property
    def folders(self) -> set[int]:
        return {folder for folder, _, _ in self.names}


class _WorstCase(random.Random):
    """Of all choices the first: nothing survives."""

    def choice(self, seq: SupportsLenAndGetItem[T]) -> T:
        return seq[0]


class VolatileTree:
    """The tree. Not thread-safe. Raises OSError as a file system does."""

    def __init__(self, *, clock_ns: Callable[[], int] = time.time_ns) -> None:
        self._clock_ns = clock_ns
        self._inodes: dict[int, Inode] = {}
        self._changes: list[NameChange] = []  #: of folders, that are not synced, in their order
        self._last = 0
        root = self._new(stat.S_IFDIR | 0o755, os.getuid(), os.getgid())
        root.links = 1

    def _new(self, mode: int, uid: int, gid: int) -> Inode:
        self._last += 1
        now = self._clock_ns()
        attributes = Attributes(mode, uid, gid, now, now)
        inode = self._inodes[self._last] = Inode(self._last, attributes, attributes)
        return inode

    def inode(self, number: int) -> Inode:
        return self._inodes[number]

    def find(self, path: str) -> Inode:
        inode = self._inodes[ROOT]
        for name in filter(None, path.split("/")):
            if not inode.is_folder:
                raise OSError(errno.ENOTDIR, path)
            if name not in inode.names:
                raise OSError(errno.ENOENT, path)
            inode = self._inodes[inode.names[name]]
        return inode

    def _parent(self, path: str) -> tuple[Inode, str]:
        folder, _, name = path.rstrip("/").rpartition("/")
        return self.find(folder), name

    def make(self, path: str, mode: int, *, uid: int = 0, gid: int = 0, content: bytes = b"") -> Inode:
        """Create a file, a folder, a link or a node, by the kind in `mode`."""
        folder, name = self._parent(path)
        if name in folder.names:
            raise OSError(errno.EEXIST, path)
        inode = self._new(mode, uid, gid)
        if content:  # the target of a link, which is part of the inode
            inode.content[:] = inode.durable[:] = content
        self._change((folder.number, name, inode.number))
        return inode

    def link(self, source: str, target: str) -> None:
        folder, name = self._parent(target)
        if name in folder.names:
            raise OSError(errno.EEXIST, target)
        self._change((folder.number, name, self.find(source).number))

    def remove(self, path: str, *, folder: bool) -> None:
        parent, name = self._parent(path)
        inode = self.find(path)
        if inode.is_folder != folder:
            raise OSError(errno.ENOTDIR if folder else errno.EISDIR, path)
        if inode.names:
            raise OSError(errno.ENOTEMPTY, path)
        self._change((parent.number, name, None))

    def rename(self, source: str, target: str) -> None:
        (old_folder, old_name), (new_folder, new_name) = self._parent(source), self._parent(target)
        inode = self.find(source)
        if (number := new_folder.names.get(new_name)) is not None:
            there = self._inodes[number]
            if there is inode:
                return
            if there.is_folder != inode.is_folder:
                raise OSError(errno.EISDIR if there.is_folder else errno.ENOTDIR, target)
            if there.names:
                raise OSError(errno.ENOTEMPTY, target)
        self._change((old_folder.number, old_name, None), (new_folder.number, new_name, inode.number))

    def _change(self, *names: tuple[int, str, int | None]) -> None:
        for folder, name, number in names:
            inode = self._inodes[folder]
            before = inode.names.pop(name, None)
            if number is not None:
                inode.names[name] = number
                self._inodes[number].links += 1
            if before is not None:
                self._inodes[before].links -= 1
            inode.attributes = replace(inode.attributes, modified_ns=self._clock_ns())
        self._changes.append(NameChange(names))

    def write(self, inode: Inode, offset: int, data: bytes) -> int:
        self._apply(inode, Write(offset, data))
        return len(data)

    def truncate(self, inode: Inode, size: int) -> None:
        self._apply(inode, Write(size, None))

    def _apply(self, inode: Inode, write: Write) -> None:
        write.apply(inode.content)
        inode.pending.append(write)
        inode.attributes = replace(inode.attributes, modified_ns=self._clock_ns())

    def sync(self, inode: Inode) -> None:
        """What fsync does: content and attributes of a file, names and attributes of a folder."""
        for write in inode.pending:
            write.apply(inode.durable)
        inode.pending.clear()
        inode.synced = inode.attributes
        if inode.is_folder:
            self._sync_names(inode.number)

    def _sync_names(self, folder: int) -> None:
        folders, chosen, rest = {folder}, [], []
        for change in reversed(self._changes):
            if change.folders & folders:
                folders |= change.folders
                chosen.append(change)
            else:
                rest.append(change)
        self._changes = rest[::-1]
        self._make_durable(reversed(chosen))

    def _make_durable(self, changes: Iterable[NameChange]) -> None:
        for change in changes:
            for folder, name, number in change.names:
                names = self._inodes[folder].durable_names
                names.pop(name, None)
                if number is not None:
                    names[name] = number

    def cut(self, seed: str) -> VolatileTree:
        """Return what a power cut at this moment leaves, as a tree of which all is durable.

        The seed decides what survives of that which was not synced. With an empty one, nothing does.
        """
        chance = random.Random(seed) if seed else _WorstCase()
        self._make_durable(_surviving(self._changes, chance))
        self._changes = []
        left = VolatileTree(clock_ns=self._clock_ns)
        left._last = self._last
        waiting = [ROOT]
        while waiting:
            inode = self._inodes[waiting.pop()]
            if inode.number not in left._inodes or inode.number == ROOT:
                left._inodes[inode.number] = _after_cut(inode, chance)
            waiting += [each for each in inode.durable_names.values() if each not in left._inodes]
        for folder in left._inodes.values():
            for number in folder.names.values():
                left._inodes[number].links += 1
        left._inodes[ROOT].links = 1
        return left


def _surviving(changes: Iterable[NameChange], chance: random.Random) -> list[NameChange]:
    """Of the changes of each folder those up to some moment. Folders that a rename connects share that moment."""
    survive = chance.choice(_NAME_SURVIVAL)
    lost: set[int] = set()
    kept: list[NameChange] = []
    for change in changes:
        if change.folders & lost or chance.random() >= survive:
            lost |= change.folders
        else:
            kept.append(change)
    return kept


def _after_cut(inode: Inode, chance: random.Random) -> Inode:
    attributes = chance.choice((inode.synced, inode.attributes))
    content = inode.durable if stat.S_ISLNK(inode.attributes.mode) else torn(inode.durable, inode.pending, chance)
    names = dict(inode.durable_names)
    return Inode(
        inode.number,
        attributes,
        attributes,
        content=bytearray(content),
        durable=bytearray(content),
        names=names,
        durable_names=dict(names),
    )


def torn(durable: bytes | bytearray, pending: Iterable[Write], chance: random.Random) -> bytearray:
    """A content after a cut: no write survives, or all do, or some sectors of them, or only the new size."""
    content = bytearray(durable)
    fate = chance.choice(("lost", "whole", "sectors", "size"))
    for write in pending if fate != "lost" else ():
        if write.data is None or fate == "whole":
            if write.data is not None or chance.random() < 0.5 or fate == "whole":
                write.apply(content)
        elif fate == "size":
            resize(content, max(len(content), write.offset + len(write.data)))
        else:
            for sector in _sectors(write):
                if chance.random() < 0.5:
                    sector.apply(content)
    return content


def _sectors(write: Write) -> list[Write]:
    """A write as the parts of it that a disk writes as a whole."""
    data = write.data or b""
    ends = [*range(SECTOR - write.offset % SECTOR, len(data), SECTOR), len(data)]
    return [Write(write.offset + begin, data[begin:end]) for begin, end in zip([0, *ends], ends, strict=False)]
