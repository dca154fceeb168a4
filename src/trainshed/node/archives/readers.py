"""Readers of tar and zip archives: members in order, without trusting the archive."""

from __future__ import annotations

import bz2
import gzip
import lzma
import stat
import struct
import zipfile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import IO, Callable, Iterator, Union

    _Readable = Union[IO[bytes], gzip.GzipFile, bz2.BZ2File, lzma.LZMAFile]

_BLOCK_BYTES = 512
_HEADER_MAX_BYTES = 1 << 16  #: of an extended header: it holds a name, times and the like
_MAX_HEADERS = 8  #: extended headers in a row
_KIND_NAMES = {
    b"1": "a hard link",
    b"2": "a symbolic link",
    b"3": "a device",
    b"4": "a device",
    b"6": "a named pipe",
    b"K": "a link",
    b"S": "a sparse file",
}
_ZIP_END = b"PK\x05\x06"
_ZIP_END_BYTES = 22  #: without the comment
_ZIP_END_MAX_BYTES = _ZIP_END_BYTES + (1 << 16)
_ZIP_ENTRY = b"PK\x01\x02"
_ZIP64_LOCATOR = b"PK\x06\x07"
_ZIP_LOCATOR_BYTES = 20
_ZIP_DIRECTORY_MAX_BYTES = 32 << 20  #: room for `MAX_MEMBERS` names of the longest kind, not for their comments


class BadArchiveError(Exception):
    """A damaged or harmful archive. The message is one sentence for its sender."""


class Member:
    """A file or folder in an archive. `read(n)` returns its next bytes, empty at its end.
    Valid until the next member."""

    __slots__ = ("folder", "mode", "name", "read")

    def __init__(self, name: str, folder: bool, mode: int, read: Callable[[int], bytes]) -> None:
        self.name = name
        self.folder = folder
        self.mode = mode
        self.read = read


def tar_members(file: IO[bytes], header: bytes, label: str) -> Iterator[Member]:
    """The members, in order. Raises `BadArchiveError` if this is no tar archive, is damaged, or has a member that is
    neither file nor folder. Propagates errors of the decompressors, also when a member is read."""
    source = _decompress(file, header)
    if source is file and len(header) < _BLOCK_BYTES:
        raise BadArchiveError("The file %s is not a tar or zip archive." % label)
    return _read(source, label)


def _decompress(file: IO[bytes], header: bytes) -> _Readable:
    if header.startswith(b"\x1f\x8b"):
        return gzip.GzipFile(fileobj=file)
    if header.startswith(b"BZh"):
        return bz2.BZ2File(file)
    if header.startswith(b"\xfd7zXZ\0"):
        return lzma.LZMAFile(file)
    return file


class _Stream:
    """The archive's bytes in order, with the bounds of the current member."""

    def __init__(self, file: _Readable, label: str) -> None:
        self._file = file
        self._label = label
        self._remaining = 0
        self._padding = 0

    def exactly(self, size: int) -> bytes:
        data = self._file.read(size)
        while len(data) < size:
            more = self._file.read(size - len(data))
            if not more:
                raise BadArchiveError("The archive %s is cut short." % self._label)
            data += more
        return data

    def block(self) -> bytes:
        """The next header, after the rest of the current member."""
        while self.content(1 << 16):
            pass
        self.exactly(self._padding)
        self._padding = 0
        return self.exactly(_BLOCK_BYTES)

    def open(self, size: int) -> None:
        self._remaining = size
        self._padding = -size % _BLOCK_BYTES

    def content(self, size: int) -> bytes:
        data = self.exactly(min(size, self._remaining))
        self._remaining -= len(data)
        return data


def _read(file: _Readable, label: str) -> Iterator[Member]:
    stream = _Stream(file, label)
    extended: dict[str, bytes] = {}
    headers = 0
    first = True
    while True:
        header = stream.block()
        if not header.strip(b"\0"):
            file.read(1 << 20)  # the padding of the last record, so that a checksum after it is verified
            return
        _verify(header, label, first)
        first = False
        kind = header[156:157]
        size = _size(extended, header, label)
        stream.open(size)
        if kind in (b"x", b"g", b"L"):
            headers += 1
            if size > _HEADER_MAX_BYTES or headers > _MAX_HEADERS:
                raise BadArchiveError("The archive %s has headers that are longer than any name." % label)
            extended.update(_extension(kind, stream.content(size), label))
            continue
        yield _tar_member(header, extended, size, stream, label)
        extended = {}
        headers = 0


def _extension(kind: bytes, data: bytes, label: str) -> dict[str, bytes]:
    if kind == b"L":
        return {"path": data.rstrip(b"\0")}
    return _records(data, label) if kind == b"x" else {}


def _tar_member(header: bytes, extended: dict[str, bytes], size: int, stream: _Stream, label: str) -> Member:
    name = extended.get("path", _name(header)).decode("utf-8", "surrogateescape")
    kind = header[156:157]
    if any(key.startswith("GNU.sparse") for key in extended):
        kind = b"S"
    if kind not in (b"0", b"\0", b"5", b"7"):
        kind_name = _KIND_NAMES.get(kind, "of the unknown kind %s" % ascii(kind.decode("latin-1")))
        raise BadArchiveError(
            "The member %s is %s; only files and folders are unpacked." % (ascii(name[:120]), kind_name)
        )
    folder = kind == b"5" or (kind == b"\0" and name.endswith("/"))
    if folder and size:
        raise BadArchiveError("The member %s is a folder with content." % ascii(name[:120]))
    return Member(name, folder, _octal(header[100:108], label) & 0o7777, stream.content)


def _verify(header: bytes, label: str, first: bool) -> None:
    total = sum(header[:148]) + sum(header[156:]) + 8 * 32
    try:
        valid = int(header[148:156].strip(b" \0"), 8) == total
    except ValueError:
        valid = False
    if not valid:
        problem = "is not a tar or zip archive" if first else "is damaged: a header in it has a wrong checksum"
        raise BadArchiveError("The file %s %s." % (label, problem))


def _name(header: bytes) -> bytes:
    name, prefix = header[:100].split(b"\0")[0], header[345:500].split(b"\0")[0]
    return prefix + b"/" + name if prefix and header[257:263] == b"ustar\0" else name


def _size(extended: dict[str, bytes], header: bytes, label: str) -> int:
    if "size" in extended:
        if not extended["size"].isdigit():
            raise BadArchiveError("The archive %s is damaged: a size in it is not a number." % label)
        return int(extended["size"][:20])
    field = header[124:136]
    return int.from_bytes(field[1:], "big") if field[0] == 0x80 else _octal(field, label)


def _octal(field: bytes, label: str) -> int:
    digits = field.split(b"\0")[0].strip()
    try:
        return max(0, int(digits, 8)) if digits else 0
    except ValueError:
        raise BadArchiveError("The archive %s is damaged: a number in a header is not one." % label) from None


def _records(data: bytes, label: str) -> dict[str, bytes]:
    """The `LENGTH KEY=VALUE` records of an extended header."""
    records = {}
    while data.strip(b"\0"):
        length, _, _ = data.partition(b" ")
        if not length.isdigit() or not len(length) + 3 <= int(length) <= len(data):
            raise BadArchiveError("The archive %s is damaged: an extended header in it makes no sense." % label)
        key, _, value = data[len(length) + 1 : int(length) - 1].partition(b"=")
        records[key.decode("utf-8", "replace")] = value
        data = data[int(length) :]
    return records


def zip_members(file: IO[bytes], label: str, max_members: int) -> Iterator[Member]:
    """The members, in the order of the directory. Raises `BadArchiveError` if there are too many, the directory is too
    large, or a member is neither file nor folder. Propagates errors of `zipfile`, also when a member is read."""
    _check_directory(file, label, max_members)
    with zipfile.ZipFile(file) as archive:
        for info in archive.infolist():
            yield from _zip_member(archive, info)


def _zip_member(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Iterator[Member]:
    name = info.orig_filename  # as in the archive: `filename` ends at a NUL
    kind = stat.S_IFMT(info.external_attr >> 16)
    if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
        raise BadArchiveError(
            "The member %s is a link or a device; only files and folders are unpacked." % ascii(name[:120])
        )
    if info.flag_bits & 1:
        raise BadArchiveError("The member %s is encrypted." % ascii(name[:120]))
    folder = name.endswith("/") and (info.file_size == 0 or kind == stat.S_IFDIR)
    if folder:
        yield Member(name, True, 0o755, lambda size: b"")
        return
    with archive.open(info) as content:
        yield Member(name, False, (info.external_attr >> 16) or 0o644, content.read)


def _check_directory(file: IO[bytes], label: str, max_members: int) -> None:
    """Check the directory before `zipfile` reads all of it: a million names would not fit into memory.

    Trusts no count: the entries themselves are counted, at the place where `zipfile` will look for them.
    """
    size = file.seek(0, 2)
    file.seek(max(0, size - _ZIP_LOCATOR_BYTES - _ZIP_END_MAX_BYTES))
    tail = file.read()
    end_offset = tail.rfind(_ZIP_END, max(0, len(tail) - _ZIP_END_MAX_BYTES))
    if end_offset < 0 or len(tail) - end_offset < _ZIP_END_BYTES:
        raise BadArchiveError("The archive %s is cut short: its directory is missing." % label)
    directory_bytes, start = struct.unpack_from("<II", tail, end_offset + 12)
    located = tail[max(0, end_offset - _ZIP_LOCATOR_BYTES) : end_offset].startswith(_ZIP64_LOCATOR)
    count = struct.unpack_from("<H", tail, end_offset + 10)[0]
    if located or 0xFFFFFFFF in (directory_bytes, start) or count == 0xFFFF:
        # `zipfile` takes a zip64 directory instead, whatever the plain one says
        raise BadArchiveError("The archive %s is larger than a package may be (zip64)." % label)
    end = size - len(tail) + end_offset
    position = end - directory_bytes
    if position < 0:
        raise BadArchiveError("The archive %s is cut short: its directory is missing." % label)
    if directory_bytes > _ZIP_DIRECTORY_MAX_BYTES:
        raise BadArchiveError(
            "The archive %s has a directory of more than %d bytes." % (label, _ZIP_DIRECTORY_MAX_BYTES)
        )
    _check_count(file, (position, end), label, max_members)
    file.seek(0)


def _check_count(file: IO[bytes], directory: tuple[int, int], label: str, max_members: int) -> None:
    position, end = directory
    for count in range(max_members + 1):
        file.seek(position)
        header = file.read(46)
        if position >= end or len(header) < 46 or not header.startswith(_ZIP_ENTRY):
            return  # `zipfile` goes no further either
        if count == max_members:
            raise BadArchiveError("The archive %s holds more than %d members." % (label, max_members))
        position += 46 + sum(struct.unpack_from("<HHH", header, 28))
