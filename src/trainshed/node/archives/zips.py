"""Reading zip archives member by member, refusing what is neither a file nor a folder."""

from __future__ import annotations

import stat
import struct
import zipfile

from .readers import BadArchiveError, Member

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import IO, Iterator

_END = b"PK\x05\x06"
_ENTRY = b"PK\x01\x02"


def members(file: IO[bytes], label: str, max_members: int) -> Iterator[Member]:
    """The members, in the order of the directory. `BadArchiveError` if there are too many, or one is not plain; what
    `zipfile` raises comes through, also when a member is read."""
    _count(file, label, max_members)
    with zipfile.ZipFile(file) as archive:
        for info in archive.infolist():
            yield from _member(archive, info)


def _member(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Iterator[Member]:
    name = info.orig_filename  # as it is in the archive: `filename` ends at a NUL
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


def _count(file: IO[bytes], label: str, max_members: int) -> None:
    """Walk the directory without keeping it: a million names would not fit into memory."""
    size = file.seek(0, 2)
    file.seek(max(0, size - (1 << 16) - 22))
    tail = file.read()
    at = tail.rfind(_END)
    if at < 0 or len(tail) - at < 22:
        raise BadArchiveError("The archive %s is cut short: its directory is missing." % label)
    directory, start = struct.unpack_from("<II", tail, at + 12)
    if 0xFFFFFFFF in (directory, start) or struct.unpack_from("<H", tail, at + 10)[0] == 0xFFFF:
        raise BadArchiveError("The archive %s is larger than a package may be (zip64)." % label)
    end = size - len(tail) + at
    place = end - directory
    for count in range(max_members + 2):
        file.seek(max(0, place))
        header = file.read(46)
        if place >= end or len(header) < 46 or not header.startswith(_ENTRY):
            break
        if count == max_members:
            raise BadArchiveError("The archive %s holds more than %d members." % (label, max_members))
        place += 46 + sum(struct.unpack_from("<HHH", header, 28))
    file.seek(0)
