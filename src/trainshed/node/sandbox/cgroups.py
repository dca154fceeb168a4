"""Control groups, in which the kernel counts the memory and the processes of a cell as a whole, and divides the cores.

Only root can make them. Both versions of the kernel's interface are known, and a machine may have some controllers in
each. The name of a group tells which process made it, so a group that was left behind is known by that.
"""

from __future__ import annotations

import os
import time

from ..process.tree import stat_fields

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Optional

_CONTROLLERS = ("memory", "pids", "cpu")
_DEFAULT_WEIGHT = 100
_V1_DEFAULT_SHARES = 1024
_REMOVE_TRIES = 50
_REMOVE_INTERVAL_S = 0.01
_MAKE_TRIES = 5
_number = 0  #: of groups that this process has made


def find_folders(name: str, proc: str = "/proc/self") -> dict[str, str]:
    """The folder for groups of each controller, with the last part `name`. Raises `OSError` if one can't be had.

    With version 1 it is below the group of this process, and with version 2, which allows no processes beside groups,
    at the top.
    """
    mounts = _mounts(proc + "/mountinfo")
    own = _own_groups(proc + "/cgroup")
    folders = {}
    for controller in _CONTROLLERS:
        found = mounts.get(controller)
        if found is not None and controller in own:
            root, point = found
            path = own[controller]
            below = path[len(root) :] if root != "/" and path.startswith(root) else path
            folders[controller] = os.path.join(point, below.strip("/"), name)
        elif "" in mounts and controller in _words(os.path.join(mounts[""][1], "cgroup.controllers")):
            folders[controller] = os.path.join(mounts[""][1], name)
        else:
            raise OSError(0, "the kernel offers no control groups for %s" % controller)
    return folders


def _mounts(path: str) -> dict[str, tuple[str, str]]:
    """Root and mount point by controller; by an empty name that of version 2."""
    found: dict[str, tuple[str, str]] = {}
    with open(path) as file:
        for line in file:
            fields, _, rest = line.partition(" - ")
            kind, _, options = rest.split(None, 2)
            place = (fields.split()[3], fields.split()[4])
            if kind == "cgroup2":
                found.setdefault("", place)
            elif kind == "cgroup":
                for option in options.strip().split(","):
                    found.setdefault(option, place)
    return found


def _own_groups(path: str) -> dict[str, str]:
    """The group of a process by controller of version 1."""
    with open(path) as file:
        lines = [line.strip().split(":", 2) for line in file]
    return {controller: line[2] for line in lines for controller in line[1].split(",")}


class ControlGroup:
    """The groups of one cell."""

    def __init__(self, folders: dict[str, str], memory_bytes: int, processes: int, cpu_weight: int) -> None:
        """Make them. `folders` as `find_folders` returns them. Raises `OSError` if they can't be made."""
        global _number
        _number += 1
        started = stat_fields(os.getpid())[19].decode()
        self._name = "%d.%s.%d" % (os.getpid(), started, _number)
        self._folders = folders
        self._paths = {each: os.path.join(folder, self._name) for each, folder in folders.items()}
        self._limits = (memory_bytes, processes, cpu_weight)
        try:
            for folder in sorted(set(folders.values())):  # with version 2 there is one
                self._make(folder)
            for controller in folders:
                self._limit(controller)
        except OSError:
            self.remove()
            raise

    def _make(self, folder: str) -> None:
        for left in reversed(range(_MAKE_TRIES)):
            try:
                _make_folder(folder)
                os.mkdir(os.path.join(folder, self._name))
                break
            except FileNotFoundError:  # another process removed the folder, which was empty
                if not left:
                    raise

    def _limit(self, controller: str) -> None:
        memory_bytes, processes, weight = self._limits
        if controller == "memory" and self._has("memory", "memory.max"):
            self._write("memory", "memory.max", memory_bytes)
            if self._has("memory", "memory.swap.max"):
                self._write("memory", "memory.swap.max", 0)
            if self._has("memory", "memory.oom.group"):
                self._write("memory", "memory.oom.group", 1)
        elif controller == "memory":
            self._write("memory", "memory.limit_in_bytes", memory_bytes)
            if self._has("memory", "memory.memsw.limit_in_bytes"):
                self._write("memory", "memory.memsw.limit_in_bytes", memory_bytes)
        elif controller == "pids":
            self._write("pids", "pids.max", processes)
        elif self._has("cpu", "cpu.weight"):
            self._write("cpu", "cpu.weight", weight)
        else:
            self._write("cpu", "cpu.shares", max(2, weight * _V1_DEFAULT_SHARES // _DEFAULT_WEIGHT))

    def join(self) -> None:
        """Move this process into the groups, with all that it will start."""
        for path in sorted(set(self._paths.values())):
            with open(os.path.join(path, "cgroup.procs"), "w") as file:
                file.write("0")

    @property
    def memory_kills(self) -> int:
        """How many of its processes the kernel has killed for memory."""
        name = "memory.events" if self._has("memory", "memory.events") else "memory.oom_control"
        return self._count("memory", name, "oom_kill")

    @property
    def memory_peak(self) -> Optional[int]:
        """The most memory it had. None if the kernel does not tell."""
        for name in ("memory.peak", "memory.max_usage_in_bytes"):
            if self._has("memory", name):
                return int(_words(os.path.join(self._paths["memory"], name))[0])
        return None

    @property
    def refused_forks(self) -> int:
        """How many processes and threads the kernel has refused."""
        return self._count("pids", "pids.events", "max")

    def remove(self) -> bool:
        """Remove the groups, which must be empty, and their folders if no other is in them. Idempotent. Returns whether
        they are gone."""
        gone = True
        for path in set(self._paths.values()):
            for _ in range(_REMOVE_TRIES):  # a process that was just reaped may still be counted
                removed = _remove(path)
                if removed:
                    break
                time.sleep(_REMOVE_INTERVAL_S)
            gone = gone and removed
        for folder in set(self._folders.values()):
            _remove(folder)
        return gone

    def _has(self, controller: str, name: str) -> bool:
        return os.path.exists(os.path.join(self._paths[controller], name))

    def _write(self, controller: str, name: str, value: int) -> None:
        with open(os.path.join(self._paths[controller], name), "w") as file:
            file.write("%d" % value)

    def _count(self, controller: str, name: str, key: str) -> int:
        with open(os.path.join(self._paths[controller], name)) as file:
            for line in file:
                words = line.split()
                if words[0] == key:
                    return int(words[1])
        return 0


def sweep(folders: Iterable[str]) -> None:
    """Remove the empty groups in these folders whose makers are gone, and the folders if nothing is left in them."""
    for folder in set(folders):
        try:
            names = os.listdir(folder)
        except FileNotFoundError:
            continue
        for name in names:
            path = os.path.join(folder, name)
            if os.path.isdir(path) and not _has_maker(name):
                _remove(path)
        _remove(folder)


def _has_maker(name: str) -> bool:
    pid, _, rest = name.partition(".")
    fields = stat_fields(int(pid)) if pid.isdigit() else []
    return bool(fields) and fields[0] not in (b"Z", b"X") and fields[19].decode() == rest.partition(".")[0]


def _make_folder(folder: str) -> None:
    """With version 2, the folder passes its controllers on to groups in it."""
    parent = os.path.dirname(folder)
    if not os.path.exists(os.path.join(parent, "cgroup.subtree_control")):
        os.makedirs(folder, exist_ok=True)
        return
    _pass_on(parent)
    os.makedirs(folder, exist_ok=True)
    _pass_on(folder)


def _pass_on(folder: str) -> None:
    path = os.path.join(folder, "cgroup.subtree_control")
    passed = _words(path)
    offered = _words(os.path.join(folder, "cgroup.controllers"))
    missing = [each for each in _CONTROLLERS if each in offered and each not in passed]
    if missing:
        with open(path, "w") as file:
            file.write(" ".join("+" + each for each in missing))


def _remove(path: str) -> bool:
    try:
        os.rmdir(path)
    except FileNotFoundError:
        return True
    except OSError:  # a process or a group is still in it
        return False
    return True


def _words(path: str) -> list[str]:
    with open(path) as file:
        return file.read().split()
