"""Builds the file tree of a sandbox, in a mount namespace of its own: an empty root, and in it what the view names.

Every folder is mounted at the path that it has outside, so that no path changes its meaning. All that is not mounted
does not exist there: neither can it be opened, nor asked for its attributes, nor connected to.
"""

from __future__ import annotations

import errno
import os
import stat

from . import syscalls, view
from .syscalls import ATTR_NODEV, ATTR_NOSUID, ATTR_RDONLY, MS_NODEV, MS_NOEXEC, MS_NOSUID

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .view import View

_READ_ONLY = ATTR_RDONLY | ATTR_NOSUID | ATTR_NODEV
_WRITABLE = ATTR_NOSUID | ATTR_NODEV
_SMALL = "mode=755,size=1m"  #: of a tree that holds nothing but folders to mount on
_PROC_READ_ONLY = ("sys", "sysrq-trigger", "irq", "bus", "fs")
_PROC_HIDDEN = ("kcore", "keys", "key-users", "timer_list", "sched_debug", "kallsyms")
#: Folders of the sandbox's own, by their names in its private folder.
OWN_FOLDERS = {"/tmp": "tmp", "/var/tmp": "var-tmp"}  # noqa: S108 - mount points
HOME_FOLDER = "home"
_ROOT_FOLDER = "root"


def prepare(private: str) -> None:
    """Make the private folder of a sandbox. Idempotent: what a process before it left in `/tmp` stays."""
    for name in (_ROOT_FOLDER, HOME_FOLDER, *OWN_FOLDERS.values()):
        os.makedirs(os.path.join(private, name), mode=0o700, exist_ok=True)


class Mounter:
    """Builds the tree in steps: `begin`, then `finish`."""

    def __init__(self, private: str, seen: View, home: str) -> None:
        self._private = private
        self._root = os.path.join(private, _ROOT_FOLDER)
        self._ordered = self._in_order(seen, home)
        self._trees: dict[str, int] = {}

    def begin(self) -> str:
        """Mount the empty root, and /proc in it. Returns the path of /proc."""
        syscalls.make_private()
        sources = [path for path in view.SYSTEM_FOLDERS if os.path.isdir(path) and not os.path.islink(path)]
        sources += view.devices() + [source for _, source, _ in self._ordered if source]
        # Before the root is mounted: it may be below one of them.
        self._trees = {source: syscalls.clone_tree(source) for source in sources}
        syscalls.mount("tmpfs", self._root, "tmpfs", MS_NOSUID | MS_NODEV, _SMALL)
        proc = self._root + "/proc"
        os.mkdir(proc)
        syscalls.mount("proc", proc, "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
        return proc

    def finish(self, users: int) -> None:
        """Mount all else, and make it the root of this namespace. `users` is a user namespace whose mapping the owners
        of files get, or -1."""
        self._protect_proc()
        for path in view.SYSTEM_FOLDERS:
            if path in self._trees:
                self._attach(self._trees[path], path, _READ_ONLY)
            elif os.path.islink(path):
                os.symlink(os.readlink(path), self._root + path)
        self._make_devices()
        for folder in ("/run", "/var"):
            os.mkdir(self._root + folder, 0o755)
        os.symlink("/run", self._root + "/var/run")
        self._make_points()
        for path, source, attributes in self._ordered:
            if source:
                self._attach(self._trees[source], path, attributes, users)
            else:
                syscalls.mount("tmpfs", self._root + path, "tmpfs", MS_NOSUID | MS_NODEV, _SMALL)
        syscalls.change_root(self._root)
        syscalls.set_root_attributes(_READ_ONLY)

    def _in_order(self, seen: View, home: str) -> list[tuple[str, str, int]]:
        """What is mounted where, the outer folders first. An empty source stands for nothing."""
        mounts = {path: (os.path.join(self._private, name), _WRITABLE) for path, name in OWN_FOLDERS.items()}
        if os.path.isabs(home) and home != "/" and not view.is_below(home, view.SYSTEM_FOLDERS):
            mounts.setdefault(os.path.normpath(home), (os.path.join(self._private, HOME_FOLDER), _WRITABLE))
        mounts.update((path, (path, _READ_ONLY)) for path in view.linked_files())
        mounts.update((path, ("", 0)) for path in seen.hidden)
        mounts.update((path, (path, _READ_ONLY)) for path in seen.read_only if os.path.exists(path))
        mounts.update((path, (path, _WRITABLE)) for path in seen.writable if os.path.exists(path))
        by_depth = sorted(mounts.items(), key=lambda item: item[0].count("/"))
        return [(path, source, attributes) for path, (source, attributes) in by_depth]

    def _make_points(self) -> None:
        """Create the mount points inside the sandbox's own folders, before these are mapped to another owner."""
        own = {path: source for path, source, _ in self._ordered if source and source != path}
        for path, source, _ in self._ordered:
            outer = [folder for folder in own if path != folder and view.is_below(path, [folder])]
            if outer:
                folder = max(outer, key=len)
                os.close(_open_point(own[folder], path[len(folder) :], os.path.isdir(source or path)))

    def _protect_proc(self) -> None:
        """Of the kernel's settings, nothing can be written; what tells about other users is hidden."""
        for name in (*_PROC_READ_ONLY, *_PROC_HIDDEN):
            path = "%s/proc/%s" % (self._root, name)
            if os.path.exists(path):
                source = "/dev/null" if name in _PROC_HIDDEN else path
                self._attach(syscalls.clone_tree(source), "/proc/" + name, ATTR_RDONLY)

    def _make_devices(self) -> None:
        root = self._root
        for path in view.devices():
            self._attach(self._trees[path], path, ATTR_NOSUID)
        for name in ("/dev/pts", "/dev/shm"):  # noqa: S108 - mount points
            os.mkdir(root + name, 0o755)
        options = "newinstance,ptmxmode=0666,mode=0620"
        syscalls.mount("devpts", root + "/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC, options)
        syscalls.mount("tmpfs", root + "/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777")  # noqa: S108 - see above
        os.symlink("pts/ptmx", root + "/dev/ptmx")
        os.symlink("/proc/self/fd", root + "/dev/fd")
        for number, name in enumerate(("stdin", "stdout", "stderr")):
            os.symlink("/proc/self/fd/%d" % number, root + "/dev/" + name)

    def _attach(self, tree: int, path: str, attributes: int, users: int = -1) -> None:
        """Mount a tree, and close it."""
        try:
            target = _open_point(self._root, path, stat.S_ISDIR(os.fstat(tree).st_mode))
            try:
                _set_attributes(tree, attributes, users)
                syscalls.attach_tree(tree, target)
            finally:
                os.close(target)
        except OSError as exc:
            raise OSError(exc.errno, "%s at %s" % (os.strerror(exc.errno or 0), path)) from exc
        finally:
            os.close(tree)


def _set_attributes(tree: int, attributes: int, users: int) -> None:
    try:
        syscalls.set_attributes(tree, attributes, users)
    except OSError as exc:
        if exc.errno != errno.EINVAL or users < 0 or not attributes & ATTR_RDONLY:
            raise
        syscalls.set_attributes(tree, attributes)  # data on a file system that can't map owners: what all may read


def _open_point(root: str, path: str, folder: bool) -> int:
    """Open what `path` is below `root`, and make it if it is missing. Follows no link: user code may have left one in a
    folder of its own, and outside of the sandbox it would lead out of it."""
    parts = [part for part in path.split("/") if part]
    current = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    for index, part in enumerate(parts):
        is_folder = folder or index < len(parts) - 1
        flags = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC | (os.O_DIRECTORY if is_folder else 0)
        try:
            opened = _open_or_make(part, current, flags, is_folder)
        finally:
            os.close(current)
        current = opened
    return current


def _open_or_make(name: str, parent: int, flags: int, folder: bool) -> int:
    try:
        return os.open(name, flags, dir_fd=parent)
    except FileNotFoundError:
        if folder:
            os.mkdir(name, 0o755, dir_fd=parent)
        else:
            os.close(os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o644, dir_fd=parent))
        return os.open(name, flags, dir_fd=parent)
