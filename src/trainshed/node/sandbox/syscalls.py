"""The system calls of the sandbox. Each raises `OSError` if it fails."""

from __future__ import annotations

import ctypes
import os
import struct

CLONE_NEWNS, CLONE_NEWIPC, CLONE_NEWUSER = 0x00020000, 0x08000000, 0x10000000
CLONE_NEWPID, CLONE_NEWNET = 0x20000000, 0x40000000

MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REC, MS_PRIVATE = 2, 4, 8, 16384, 1 << 18
ATTR_RDONLY, ATTR_NOSUID, ATTR_NODEV, ATTR_NOEXEC, _ATTR_IDMAP = 1, 2, 4, 8, 0x00100000

_SIGCHLD = 17
_MNT_DETACH = 2
_AT_FDCWD = -100
_AT_EMPTY_PATH, _AT_RECURSIVE, _OPEN_TREE_CLONE = 0x1000, 0x8000, 1
_MOVE_MOUNT_EMPTY_PATHS = 0x4 | 0x40  #: both the mount and its target are descriptors
_SET_DUMPABLE, _CAPBSET_DROP, _SET_NO_NEW_PRIVS, _CAP_AMBIENT, _AMBIENT_CLEAR_ALL = 4, 24, 38, 47, 4
_CAP_LAST = 63
_CAPABILITY_VERSION_3 = 0x20080522
_SECCOMP_SET_FILTER = 1

#: Numbers that differ between architectures; the newer ones are the same everywhere.
_NUMBERS = {
    "x86_64": {"clone": 56, "pivot_root": 155, "capset": 126, "seccomp": 317},
    "aarch64": {"clone": 220, "pivot_root": 41, "capset": 91, "seccomp": 277},
}
_OPEN_TREE, _MOVE_MOUNT, _MOUNT_SETATTR = 428, 429, 442
MACHINE = os.uname().machine

_libc = ctypes.CDLL(None, use_errno=True)
_python = ctypes.PyDLL(None, use_errno=True)  #: keeps the interpreter's lock: a call from which two processes return


def is_supported() -> bool:
    """Whether the numbers of this machine's system calls are known."""
    return MACHINE in _NUMBERS


def syscall(number: int, *arguments: object) -> int:
    """Call the kernel. Integers become `long`."""
    result = _libc.syscall(ctypes.c_long(number), *_converted(arguments))
    return _checked(int(result))


def clone(flags: int) -> int:
    """Fork into new namespaces. Returns 0 in the child, which must not leave this thread, and must not return."""
    number = _NUMBERS[MACHINE]["clone"]
    return _checked(int(_python.syscall(ctypes.c_long(number), *_converted((flags | _SIGCHLD, 0, 0, 0, 0)))))


def unshare(flags: int) -> None:
    _checked(_libc.unshare(flags))


def map_own_user(uid: int, gid: int) -> None:
    """Keep the numbers of this user in the user namespace that this process has made."""
    for name, content in (
        ("setgroups", "deny"),
        ("uid_map", "%d %d 1" % (uid, uid)),
        ("gid_map", "%d %d 1" % (gid, gid)),
    ):
        with open("/proc/self/" + name, "w") as file:
            file.write(content)


def mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    arguments = (source.encode(), os.fsencode(target), kind.encode(), ctypes.c_ulong(flags), options.encode() or None)
    if _libc.mount(*arguments) == -1:
        number = ctypes.get_errno()
        raise OSError(number, "%s for a mount of %s" % (os.strerror(number), kind))


def make_private() -> None:
    """Keep the mounts of this namespace to itself."""
    _checked(_libc.mount(b"none", b"/", None, ctypes.c_ulong(MS_REC | MS_PRIVATE), None))


def clone_tree(path: str) -> int:
    """A copy of the mounts at a path, which is mounted nowhere yet."""
    flags = _OPEN_TREE_CLONE | os.O_CLOEXEC | _AT_RECURSIVE
    return syscall(_OPEN_TREE, _AT_FDCWD, os.fsencode(path), flags)


def set_attributes(tree: int, attributes: int, users: int = -1) -> None:
    """Set attributes of a tree. `users` is a user namespace whose mapping the owners of files get."""
    attributes |= _ATTR_IDMAP if users >= 0 else 0
    argument = struct.pack("QQQQ", attributes, 0, 0, max(users, 0))
    syscall(_MOUNT_SETATTR, tree, b"", _AT_EMPTY_PATH | _AT_RECURSIVE, argument, len(argument))


def set_root_attributes(attributes: int) -> None:
    """Set attributes of the mount at `/` alone."""
    argument = struct.pack("QQQQ", attributes, 0, 0, 0)
    syscall(_MOUNT_SETATTR, _AT_FDCWD, b"/", 0, argument, len(argument))


def attach_tree(tree: int, target: int) -> None:
    """Mount a tree at an open folder or file."""
    syscall(_MOVE_MOUNT, tree, b"", target, b"", _MOVE_MOUNT_EMPTY_PATHS)


def change_root(folder: str) -> None:
    """Make a mounted folder the root of this namespace, and forget the old one."""
    os.chdir(folder)
    syscall(_NUMBERS[MACHINE]["pivot_root"], b".", b".")
    _checked(_libc.umount2(b".", _MNT_DETACH))
    os.chdir("/")


def drop_capabilities() -> None:
    """Give up all capabilities, for this process and all that it starts."""
    for capability in range(_CAP_LAST + 1):
        if _prctl(_CAPBSET_DROP, capability) != 0:
            break  # the kernel has no more of them, or this process has none to give up
    _prctl(_CAP_AMBIENT, _AMBIENT_CLEAR_ALL)
    header = struct.pack("Ii", _CAPABILITY_VERSION_3, 0)
    syscall(_NUMBERS[MACHINE]["capset"], header, struct.pack("6I", 0, 0, 0, 0, 0, 0))
    forbid_privileges()


def forbid_privileges() -> None:
    """No program that is started from here on gets more rights by its file."""
    _checked(_prctl(_SET_NO_NEW_PRIVS, 1))


def set_dumpable(dumpable: bool) -> None:
    """Whether processes of the same user may look into this one. A change of user takes it away."""
    _checked(_prctl(_SET_DUMPABLE, int(dumpable)))


def set_filter(program: bytes) -> None:
    """Install a filter of system calls, in the kernel's form, for this process and all that it starts."""
    code = ctypes.create_string_buffer(program, len(program))
    argument = struct.pack("H6xP", len(program) // 8, ctypes.addressof(code))
    syscall(_NUMBERS[MACHINE]["seccomp"], _SECCOMP_SET_FILTER, 0, argument)


def _prctl(option: int, value: int) -> int:
    zero = ctypes.c_ulong(0)
    return int(_libc.prctl(option, ctypes.c_ulong(value), zero, zero, zero))


def _converted(arguments: tuple[object, ...]) -> list[object]:
    return [ctypes.c_long(each) if isinstance(each, int) else each for each in arguments]


def _checked(result: int) -> int:
    if result == -1:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
