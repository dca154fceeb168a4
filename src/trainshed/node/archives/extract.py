"""The one extractor of archives that users send: tar, plain or compressed, and zip.

Extracts only files and folders, only below the target folder, each once, and within limits. Modes keep only the owner's
permissions and the rights to read and execute.
"""

from __future__ import annotations

import errno
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
MAX_RATIO = 200  #: extracted to packed size, once more than `_RATIO_MIN_BYTES` are extracted
_RATIO_MIN_BYTES = 16 << 20
_NAME_MAX_BYTES = 1024
_MAX_DEPTH = 64
_CHUNK_BYTES = 1 << 16
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW_FILE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Limits:
    """Limits on the content of an archive."""

    def __init__(self, members: int = MAX_MEMBERS, size: int = MAX_BYTES, ratio: int = MAX_RATIO) -> None:
        self.members = members
        self.size = size
        self.ratio = ratio


def extract(archive: str, into: str, limits: Optional[Limits] = None) -> None:
    """Extract `archive` into the folder `into`, which exists and is empty.

    Raises `BadArchiveError`, which names the member at fault. Members before it may be in `into`;
    nothing is written outside.
    """
    root = os.open(into, _FOLDER_FLAGS)
    try:
        _walk(archive, root, limits or Limits())
    finally:
        os.close(root)


def check(archive: str, limits: Optional[Limits] = None) -> None:
    """Read all of `archive` as `extract` does, without writing. Raises `BadArchiveError` if `extract` would."""
    _walk(archive, None, limits or Limits())


def _walk(archive: str, root: Optional[int], limits: Limits) -> None:
    label = os.path.basename(archive)
    try:
        with open(archive, "rb") as file:
            header = file.read(512)
            file.seek(0)
            if header.startswith((b"PK\x03\x04", b"PK\x05\x06")):
                size = os.path.getsize(archive)
                members, packed_size = zip_members(file, label, limits.members), lambda: size
            else:  # read from front to back
                members, packed_size = tar_members(file, header, label), file.tell
            _extract_all(members, root, _Budget(label, packed_size, limits))
    except _DAMAGE_ERRORS as exc:
        if isinstance(exc, OSError) and exc.errno not in (None, errno.EINVAL):
            raise  # an error of the disk, not of the archive, which can name a position before its start
        reason = str(exc).rstrip(".") or type(exc).__name__
        raise BadArchiveError("The archive %s is damaged or cut short: %s." % (label, reason)) from exc


#: Raised by the standard library's decompressors on invalid bytes.
_DAMAGE_ERRORS = (
    EOFError,
    OSError,
    zlib.error,
    lzma.LZMAError,
    zipfile.BadZipFile,
    struct.error,
    ValueError,
    RuntimeError,
)


class _Budget:
    """What may still be extracted."""

    def __init__(self, label: str, packed_size: Callable[[], int], limits: Limits) -> None:
        self._label = label
        self._packed_size = packed_size
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
                % (self._label, self._limits.size, display_name(name))
            )
        if self._size > _RATIO_MIN_BYTES and self._size > self._packed_size() * self._limits.ratio:
            raise BadArchiveError(
                "The archive %s unpacks to more than %d times its size; the limit was reached in %s."
                % (self._label, self._limits.ratio, display_name(name))
            )

    def empty(self) -> bool:
        return self._members == 0


def _extract_all(members: Iterator[Member], root: Optional[int], budget: _Budget) -> None:
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
            raise BadArchiveError("The member %s is a file without a name." % display_name(member.name))
        if path in files:
            raise BadArchiveError("The member %s is there twice." % display_name(member.name))
        files.add(path)
        _extract_file(member, root, parts, budget)
    if budget.empty():
        raise BadArchiveError("The archive holds no files.")


def _extract_file(member: Member, root: Optional[int], parts: list[bytes], budget: _Budget) -> None:
    fd = None if root is None else _create(root, parts, member)
    try:
        while True:
            data = member.read(_CHUNK_BYTES)
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
    """The name's components. Raises `BadArchiveError` if it is not below the folder."""
    raw = name.encode("utf-8", "surrogateescape")
    if b"\0" in raw or b"\\" in raw:
        raise BadArchiveError("The member %s has a name that no file can have." % display_name(name))
    if raw.startswith(b"/"):
        raise BadArchiveError("The member %s has an absolute path." % display_name(name))
    parts = [part for part in raw.split(b"/") if part not in (b"", b".")]
    if b".." in parts:
        raise BadArchiveError("The member %s leads out of the archive." % display_name(name))
    if len(raw) > _NAME_MAX_BYTES or len(parts) > _MAX_DEPTH or any(len(part) > 255 for part in parts):
        raise BadArchiveError("The member %s has a path that is too long." % display_name(name))
    return parts


def _enter(root: int, parts: list[bytes], name: str) -> int:
    """Open the folder `parts` below `root`. Creates missing folders and follows no links."""
    current = os.dup(root)
    for part in parts:
        try:
            try:
                os.mkdir(part, 0o755, dir_fd=current)
            except FileExistsError:
                pass
            child = os.open(part, _FOLDER_FLAGS, dir_fd=current)
        except NotADirectoryError:
            raise BadArchiveError("The member %s lies below a file." % display_name(name)) from None
        finally:
            os.close(current)
        current = child
    return current


def _create(root: int, parts: list[bytes], member: Member) -> int:
    folder = _enter(root, parts[:-1], member.name)
    try:
        mode = stat.S_IMODE(member.mode) & 0o755 | 0o600
        return os.open(parts[-1], _NEW_FILE_FLAGS, mode, dir_fd=folder)
    except FileExistsError:
        raise BadArchiveError("The member %s is there twice." % display_name(member.name)) from None
    finally:
        os.close(folder)


def display_name(name: str) -> str:
    """A member's name for messages: quoted, escaped and shortened."""
    return ascii(name if len(name) <= 120 else name[:117] + "...")
