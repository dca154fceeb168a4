"""What a process in the sandbox sees: which paths of the machine, and how."""

from __future__ import annotations

import glob
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

#: Programs, libraries, their configuration, and what the kernel tells about devices.
SYSTEM_FOLDERS = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt", "/sys"),
    *("/nix/store", "/gnu/store"),
)
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty")
_GPU_DEVICES = ("/dev/nvidia*", "/dev/dri", "/dev/kfd", "/dev/accel*")
_LINKED_FILES = ("/etc/resolv.conf", "/etc/hosts", "/etc/localtime")  #: often links to /run


class View:
    """The paths that a process sees, each at its own name. Nothing else of the machine is there."""

    def __init__(self, read_only: Iterable[str], writable: Iterable[str], hidden: Iterable[str] = ()) -> None:
        """`hidden` are folders that must not be seen even if they lie below one that is; what is named itself stays."""
        self.read_only = [path for path in _unique(read_only) if not is_below(path, SYSTEM_FOLDERS)]
        self.writable = _unique(writable)
        self.hidden = [path for path in _unique(hidden) if is_below(path, [*SYSTEM_FOLDERS, *self.read_only])]


def is_below(path: str, folders: Iterable[str]) -> bool:
    """Whether a path is one of these folders, or below one."""
    return any(path == folder or path.startswith(folder.rstrip("/") + "/") for folder in folders)


def interpreter_paths(python: str) -> list[str]:
    """The folders that an interpreter needs: its environment, and each installation that its links lead to."""
    paths = [_prefix(python)]
    for _ in range(40):  # as many links as the kernel follows
        if not os.path.islink(python):
            break
        python = os.path.normpath(os.path.join(os.path.dirname(python), os.readlink(python)))
        paths.append(_prefix(python))
    paths.append(_prefix(os.path.realpath(python)))
    return [path for path in _unique(paths) if path != "/"]


def node_folder() -> str:
    """The folder of the shipped code."""
    return os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def own_interpreter() -> str:
    """The interpreter of this process."""
    return sys.executable


def linked_files() -> list[str]:
    """Files outside the system folders to which links in /etc point."""
    targets = [os.path.realpath(path) for path in _LINKED_FILES if os.path.islink(path)]
    return [path for path in targets if os.path.isfile(path) and not is_below(path, SYSTEM_FOLDERS)]


def devices() -> list[str]:
    """The devices that programs need, and those of GPUs."""
    found = [path for path in _DEVICES if os.path.exists(path)]
    for pattern in _GPU_DEVICES:
        found.extend(sorted(glob.glob(pattern)))
    return found


def _prefix(python: str) -> str:
    """The folder above the one with the interpreter."""
    return os.path.dirname(os.path.dirname(os.path.abspath(python)))


def _unique(paths: Iterable[str]) -> list[str]:
    result: list[str] = []
    for path in paths:
        path = os.path.abspath(path)
        if path not in result:
            result.append(path)
    return result
