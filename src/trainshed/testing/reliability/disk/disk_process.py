"""The process of a disk whose power can be cut: a `VolatileTree`, mounted by FUSE.

python -m trainshed.testing.reliability.disk.disk_process IMAGE FOLDER mounts it. IMAGE is what the last cut left;
there may be none. Setting the extended attribute `CUT` on FOLDER, with a seed as its value, cuts the power: what is
left is written to IMAGE, and the disk answers no more.
"""

from __future__ import annotations

import errno
import os
import pickle
import stat
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import mfusepy

from trainshed.testing.reliability.disk.power_cut_disk import CUT
from trainshed.testing.reliability.disk.volatile_tree import Inode, VolatileTree

_HIDDEN_PREFIX = ".fuse_hidden"  #: libfuse's own
_BLOCK = 4096
_BLOCKS = 1 << 20


class _Fuse(mfusepy.FUSE):  # type: ignore[misc]
    """Passes on what the library leaves out: the open file of a truncation, and the flags of a rename."""

    def truncate_fuse_3(self, path: bytes | None, length: int, fip: Any) -> int:
        name = None if path is None else os.fsdecode(path)
        done: int = self.operations.truncate(name, length, fip.contents.fh if fip else None)
        return done

    def rename_fuse_3(self, old: bytes, new: bytes, flags: int) -> int:
        if flags:
            raise OSError(errno.EINVAL, "flags of rename")
        done: int = self.rename_fuse_2(old, new)
        return done


class CuttableDisk(mfusepy.Operations):  # type: ignore[misc]
    """The operations of FUSE on a tree. One thread calls them. Handles are the numbers of inodes."""

    use_ns = True

    def __init__(self, image: Path) -> None:
        self._image = image
        self._tree: VolatileTree | None = load_image(image)
        self._hidden: dict[str, int] = {}  #: removed files that are open, by the names that libfuse gives them
        self._hiding: str | None = None  #: the path of a file that is about to be removed or replaced

    @property
    def tree(self) -> VolatileTree:
        if self._tree is None:
            raise OSError(errno.EIO, "the power is off")
        if self._hiding is not None:
            removed, self._hiding = self._hiding, None
            self._tree.remove(removed, folder=False)
        return self._tree

    def _inode(self, path: str | None, handle: int | None = None) -> Inode:
        tree = self.tree
        if path is None:
            if not handle:
                raise OSError(errno.ENOENT, "removed")
            return tree.inode(handle)
        hidden = self._hidden.get(_base(path))
        return tree.find(path) if hidden is None else tree.inode(hidden)

    def getattr(self, path: str | None, fh: int | None = None) -> dict[str, Any]:
        inode = self._inode(path, fh)
        attributes, size = inode.attributes, len(inode.content)
        return {
            "st_ino": inode.number,
            "st_mode": attributes.mode,
            "st_nlink": inode.links + inode.is_folder,
            "st_uid": attributes.uid,
            "st_gid": attributes.gid,
            "st_size": size,
            "st_blocks": -(-size // 512),
            "st_atime": attributes.accessed_ns,
            "st_mtime": attributes.modified_ns,
            "st_ctime": attributes.modified_ns,
        }

    def statfs(self, path: str) -> dict[str, int]:
        blocks = {"f_blocks": _BLOCKS, "f_bfree": _BLOCKS, "f_bavail": _BLOCKS}
        return {
            "f_bsize": _BLOCK,
            "f_frsize": _BLOCK,
            "f_namemax": 255,
            "f_files": 1 << 20,
            "f_ffree": 1 << 20,
        } | blocks

    def readdir(self, path: str | None, fh: int) -> list[tuple[str, dict[str, int], int]]:
        names = {".": fh, "..": fh, **self.tree.inode(fh).names}
        inodes = {name: self.tree.inode(number) for name, number in names.items()}
        return [(name, {"st_ino": inode.number, "st_mode": inode.attributes.mode}, 0) for name, inode in inodes.items()]

    def opendir(self, path: str) -> int:
        return self._inode(path).number

    def releasedir(self, path: str | None, fh: int) -> int:
        return 0

    def _make(self, path: str, mode: int, content: bytes = b"") -> Inode:
        uid, gid, _ = mfusepy.fuse_get_context()
        return self.tree.make(path, mode, uid=uid, gid=gid, content=content)

    def mkdir(self, path: str, mode: int) -> int:
        self._make(path, stat.S_IFDIR | mode)
        return 0

    def mknod(self, path: str, mode: int, dev: int) -> int:
        self._make(path, mode)
        return 0

    def create(self, path: str, mode: int, flags: int = 0) -> int:
        return self._make(path, stat.S_IFREG | stat.S_IMODE(mode)).number

    def symlink(self, target: str, source: str) -> int:
        self._make(target, stat.S_IFLNK | 0o777, os.fsencode(source))
        return 0

    def readlink(self, path: str) -> str:
        return os.fsdecode(bytes(self._inode(path).content))

    def link(self, target: str, source: str) -> int:
        self.tree.link(source, target)
        return 0

    def unlink(self, path: str) -> int:
        if self._hidden.pop(_base(path), None) is None:
            self.tree.remove(path, folder=False)
        return 0

    def rmdir(self, path: str) -> int:
        self.tree.remove(path, folder=True)
        return 0

    def rename(self, old: str, new: str) -> int:
        """libfuse moves an open file out of the way before it lets the file be removed or replaced.

        On a disk there is no such step, so it becomes part of what comes next: a replacement stays one change.
        """
        if _base(new).startswith(_HIDDEN_PREFIX):
            self._hidden[_base(new)] = self._inode(old).number
            self._hiding = old
            return 0
        if self._hiding == new:
            self._hiding = None
        self.tree.rename(old, new)
        return 0

    def open(self, path: str, flags: int) -> int:
        inode = self._inode(path)
        if flags & os.O_TRUNC:
            self.tree.truncate(inode, 0)
        return inode.number

    def read(self, path: str | None, size: int, offset: int, fh: int) -> bytes:
        return bytes(memoryview(self.tree.inode(fh).content)[offset : offset + size])

    def write(self, path: str | None, data: bytes, offset: int, fh: int) -> int:
        return self.tree.write(self.tree.inode(fh), offset, data)

    def truncate(self, path: str | None, length: int, fh: int | None = None) -> int:
        self.tree.truncate(self._inode(path, fh), length)
        return 0

    def flush(self, path: str | None, fh: int) -> int:
        return 0

    def release(self, path: str | None, fh: int) -> int:
        return 0

    def fsync(self, path: str | None, datasync: int, fh: int) -> int:
        self.tree.sync(self.tree.inode(fh))
        return 0

    def fsyncdir(self, path: str | None, datasync: int, fh: int) -> int:
        self.tree.sync(self.tree.inode(fh))
        return 0

    def chmod(self, path: str | None, mode: int) -> int:
        inode = self._inode(path)
        mode = stat.S_IFMT(inode.attributes.mode) | stat.S_IMODE(mode)
        inode.attributes = replace(inode.attributes, mode=mode)
        return 0

    def chown(self, path: str | None, uid: int, gid: int) -> int:
        inode, old = self._inode(path), self._inode(path).attributes
        inode.attributes = replace(old, uid=old.uid if uid < 0 else uid, gid=old.gid if gid < 0 else gid)
        return 0

    def utimens(self, path: str | None, times: tuple[int, int] | None = None) -> int:
        inode, now = self._inode(path), time.time_ns()
        accessed, modified = times or (now, now)
        inode.attributes = replace(inode.attributes, accessed_ns=accessed, modified_ns=modified)
        return 0

    def setxattr(self, path: str, name: str, value: bytes, options: int, position: int = 0) -> int:
        if name == CUT:
            self._cut(value.decode())
            return 0
        self._set_xattrs(path, lambda xattrs: {**xattrs, name: value})
        return 0

    def getxattr(self, path: str, name: str, position: int = 0) -> bytes:
        return _value(dict(self._inode(path).attributes.xattrs), name)

    def listxattr(self, path: str) -> list[str]:
        return [name for name, _ in self._inode(path).attributes.xattrs]

    def removexattr(self, path: str, name: str) -> int:
        _value(dict(self._inode(path).attributes.xattrs), name)
        self._set_xattrs(path, lambda xattrs: {key: value for key, value in xattrs.items() if key != name})
        return 0

    def _set_xattrs(self, path: str, change: Callable[[dict[str, bytes]], dict[str, bytes]]) -> None:
        inode = self._inode(path)
        xattrs = change(dict(inode.attributes.xattrs))
        inode.attributes = replace(inode.attributes, xattrs=tuple(xattrs.items()))

    def _cut(self, seed: str) -> None:
        left, self._tree = self.tree.cut(seed), None
        self._image.write_bytes(pickle.dumps(left))


def _base(path: str) -> str:
    return path.rpartition("/")[2]


def _value(xattrs: dict[str, bytes], name: str) -> bytes:
    if name not in xattrs:
        raise OSError(errno.ENODATA, name)
    return xattrs[name]


def load_image(image: Path) -> VolatileTree:
    """The tree that a cut left, or an empty one."""
    if not image.exists():
        return VolatileTree()
    tree = pickle.loads(image.read_bytes())  # noqa: S301  # written by `_cut`
    assert isinstance(tree, VolatileTree)
    return tree


if __name__ == "__main__":
    _Fuse(
        CuttableDisk(Path(sys.argv[1])),
        sys.argv[2],
        foreground=True,
        nothreads=True,
        kernel_cache=True,
        use_ino=True,
        fsname="power-cut-disk",
    )
