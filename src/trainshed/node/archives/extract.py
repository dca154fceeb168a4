"""The one extractor of archives that users send: tar, plain or compressed, and zip.

Only files and folders come out of it, only below the folder named, each once, and never more than the limits say. Modes
lose everything but the permissions of their owner and the right to read and run.
"""

from __future__ import annotations

import lzma
import os
import stat
import struct
import zipfile
import zlib

from .readers import BadArchiveError, Member, tar_members, zip_members

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Iterator, Optional

__all__ = ["BadArchiveError", "check", "extract"]

MAX_MEMBERS = 20000
MAX_BYTES = 2 << 30
MAX_RATIO = 200  #: unpacked to packed size, once more than `_RATIO_FROM` bytes were unpacked
_RATIO_FROM = 16 << 20
_NAME_BYTES = 1024
_DEPTH = 64
_CHUNK = 1 << 16
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Limits:
    """How much an archive may hold."""

    def __init__(self, members: int = MAX_MEMBERS, size: int = MAX_BYTES, ratio: int = MAX_RATIO) -> None:
        self.members = members
        self.size = size
        self.ratio = ratio


def extract(archive: str, into: str, limits: Optional[Limits] = None) -> None:
    """Unpack `archive` into the folder `into`, which exists and is empty.

    `BadArchiveError` names the member that is at fault; what came before it may lie in `into`, and nothing lies
    elsewhere.
    """
    root = os.open(into, _FOLDER)
    try:
        _walk(archive, root, limits or Limits())
    finally:
        os.close(root)


def check(archive: str, limits: Optional[Limits] = None) -> None:
    """Read all of `archive` as `extract` does, and write nothing. `BadArchiveError` if it would be refused."""
    _walk(archive, None, limits or Limits())


def _walk(archive: str, root: Optional[int], limits: Limits) -> None:
    label = os.path.basename(archive)
    try:
        with open(archive, "rb") as file:
            head = file.read(512)
            file.seek(0)
            if head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
                size = os.path.getsize(archive)
                members, packed = zip_members(file, label, limits.members), lambda: size
            else:  # read from front to back
                members, packed = tar_members(file, head, label), file.tell
            _take_all(members, root, _Budget(label, packed, limits))
    except _DAMAGE as exc:
        if isinstance(exc, OSError) and exc.errno is not None:
            raise  # of the disk, not of the archive
        reason = str(exc).rstrip(".") or type(exc).__name__
        raise BadArchiveError("The archive %s is damaged or cut short: %s." % (label, reason)) from exc


#: What the decompressors of the standard library raise over bytes that make no sense to them.
_DAMAGE = (EOFError, OSError, zlib.error, lzma.LZMAError, zipfile.BadZipFile, struct.error, ValueError, RuntimeError)


class _Budget:
    """What may still be unpacked."""

    def __init__(self, label: str, packed: Callable[[], int], limits: Limits) -> None:
        self._label = label
        self._packed = packed
        self._limits = limits
        self._members = 0
        self._size = 0

    def member(self) -> None:
        self._members += 1
        if self._members > self._limits.members:
            raise BadArchiveError("The archive %s holds more than %d members." % (self._label, self._limits.members))

    def spend(self, size: int, name: str) -> None:
        self._size += size
        if self._size > self._limits.size:
            raise BadArchiveError(
                "The archive %s holds more than %d bytes; the limit was reached in %s."
                % (self._label, self._limits.size, shown(name))
            )
        if self._size > _RATIO_FROM and self._size > self._packed() * self._limits.ratio:
            raise BadArchiveError(
                "The archive %s unpacks to more than %d times its size; the limit was reached in %s."
                % (self._label, self._limits.ratio, shown(name))
            )

    def empty(self) -> bool:
        return self._members == 0


def _take_all(members: Iterator[Member], root: Optional[int], budget: _Budget) -> None:
    files: set[bytes] = set()
    for member in members:
        budget.member()
        parts = _parts(member.name)
        if member.folder:
            if root is not None:
                os.close(_enter(root, parts, member.name))
            continue
        path = b"/".join(parts)
        if not parts or member.name.endswith("/"):
            raise BadArchiveError("The member %s is a file without a name." % shown(member.name))
        if path in files:
            raise BadArchiveError("The member %s is there twice." % shown(member.name))
        files.add(path)
        _take(member, root, parts, budget)
    if budget.empty():
        raise BadArchiveError("The archive holds no files.")


def _take(member: Member, root: Optional[int], parts: list[bytes], budget: _Budget) -> None:
    fd = None if root is None else _create(root, parts, member)
    try:
        while True:
            data = member.read(_CHUNK)
            if not data:
                return
            budget.spend(len(data), member.name)
            if fd is not None:
                _write(fd, data)
    finally:
        if fd is not None:
            os.close(fd)


def _write(fd: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]


def _parts(name: str) -> list[bytes]:
    """The name's components, if it stays below the folder."""
    raw = name.encode("utf-8", "surrogateescape")
    if b"\0" in raw or b"\\" in raw:
        raise BadArchiveError("The member %s has a name that no file can have." % shown(name))
    if raw.startswith(b"/"):
        raise BadArchiveError("The member %s has an absolute path." % shown(name))
    parts = [part for part in raw.split(b"/") if part not in (b"", b".")]
    if b".." in parts:
        raise BadArchiveError("The member %s leads out of the archive." % shown(name))
    if len(raw) > _NAME_BYTES or len(parts) > _DEPTH or any(len(part) > 255 for part in parts):
        raise BadArchiveError("The member %s has a path that is too long." % shown(name))
    return parts


def _enter(root: int, parts: list[bytes], name: str) -> int:
    """Open the folder `parts` below `root`, making what is missing, following no link."""
    here = os.dup(root)
    for part in parts:
        try:
            try:
                os.mkdir(part, 0o755, dir_fd=here)
            except FileExistsError:
                pass
            below = os.open(part, _FOLDER, dir_fd=here)
        except NotADirectoryError:
            raise BadArchiveError("The member %s lies below a file." % shown(name)) from None
        finally:
            os.close(here)
        here = below
    return here


def _create(root: int, parts: list[bytes], member: Member) -> int:
    folder = _enter(root, parts[:-1], member.name)
    try:
        mode = stat.S_IMODE(member.mode) & 0o755 | 0o600
        return os.open(parts[-1], _NEW, mode, dir_fd=folder)
    except FileExistsError:
        raise BadArchiveError("The member %s is there twice." % shown(member.name)) from None
    finally:
        os.close(folder)


def shown(name: str) -> str:
    """A member's name for people: quoted, escaped, and not endless."""
    return ascii(name if len(name) <= 120 else name[:117] + "...")
