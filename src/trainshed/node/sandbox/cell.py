"""A cell: the sandbox of one process and all that it starts.

A cell has one process more than the program in it. Its init is the first process of a PID namespace: when it exits,
the kernel kills all others in it. It builds the file tree, forks the program, waits for it, and reports its status
through a pipe, since the init of a namespace can't die by the signal that ended another. Its parent, the supervisor,
sends signals to the program itself.

As an ordinary user, the cell has a user namespace in which the user is the same one, without rights. As root, the
program has another user, which is root in a namespace of its own, again without rights. Mounts are mapped between that
user and the server's, so files on the disk have one owner.
"""

from __future__ import annotations

import os
import select
import signal
import struct

from ..process.tree import set_death_signal
from . import filter as calls
from . import landlock, mounts, syscalls, view
from .limits import CellLimits
from .network.namespace import SandboxNetwork

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Optional

FULL, LANDLOCK, NONE = "full", "landlock", "none"
LEVELS = (NONE, LANDLOCK, FULL)  #: from the weakest to the strongest
_NAMESPACES = syscalls.CLONE_NEWNS | syscalls.CLONE_NEWPID | syscalls.CLONE_NEWIPC
_NUMBER = struct.Struct("i")


class Cell:
    """The sandbox of one process. `enter` is called in the process itself."""

    def __init__(
        self,
        level: str,
        seen: view.View,
        private: str,
        home: str,
        uid: int = 0,
        limits: Optional[dict[str, Any]] = None,
        counted: Optional[list[str]] = None,
    ) -> None:
        """`private` is a folder for what the cell alone uses. As root, `uid` is the user of the program; 0: the
        server's own, without its rights. `limits` is the part of a spec about them, and `counted` are the folders
        besides `private` whose files have a limit: by default those that it can write to."""
        self.level = level
        self._view = seen
        self.private = private
        self._home = home
        self._uid = uid
        self._filter = calls.build(syscalls.MACHINE)
        self._user = (os.getuid(), os.getgid())
        by_kernel = level == FULL and bool(uid or self._user[0])  # the kernel counts no processes of root
        folders = [private, *(seen.writable if counted is None else counted)]
        self.limits = CellLimits(limits, by_kernel, folders, own_shm=level == FULL) if limits else None
        self._network: Optional[SandboxNetwork] = None
        self._makes_network = False

    @classmethod
    def of(cls, spec: dict[str, Any], private: str, home: str) -> Cell:
        """From the part of a spec file."""
        seen = view.View(spec["read_only"], spec["writable"], spec["hidden"])
        cell = cls(spec["level"], seen, private, home, spec["uid"], spec.get("limits"), spec.get("counted"))
        if spec.get("network"):
            cell.make_network(SandboxNetwork(spec["network"]))
        return cell

    def make_network(self, network: SandboxNetwork) -> None:
        """Let the cell have a network of its own."""
        self._network, self._makes_network = network, True

    def join_network(self, network: SandboxNetwork) -> None:
        """Let the cell be in a network that it shares: this process moves into it before it forks the first one."""
        self._network = network

    @property
    def has_init(self) -> bool:
        """Whether the cell has processes of its own."""
        return self.level == FULL

    def fork(self) -> int:
        """Fork the init of the cell. Returns 0 in it; it must call `run_init`."""
        mounts.prepare(self.private)
        flags = _NAMESPACES | (0 if self._is_root else syscalls.CLONE_NEWUSER)
        if self._network is not None and self._makes_network:
            self._network.begin()
            flags |= syscalls.CLONE_NEWNET
        elif self._network is not None:
            self._network.enter()
        try:
            pid = syscalls.clone(flags)
        except OSError as exc:  # "No space left on device": user.max_user_namespaces are in use
            raise OSError(exc.errno, "no namespaces can be made for its sandbox: %s" % exc.strerror) from exc
        if pid and self._network is not None and self._makes_network:
            self._network.close()
        return pid

    def end(self) -> None:
        """End what the cell has outside of it. Its processes are gone."""
        if self._network is not None and self._makes_network:
            self._network.end()

    @property
    def _is_root(self) -> bool:
        return self._user[0] == 0

    def run_init(self, status: int, alive: int, program: Callable[[], None]) -> None:
        """Run the init, in the process that `fork` made: `program` is called in another one, and must not return.

        Writes to `status` the pid of the program and, when it has exited, its wait status. `alive` is a pipe that the
        parent reads: if nobody does, the parent is gone. Raises `OSError` if the cell can't be set up, and never
        returns otherwise.
        """
        os.setpgid(0, 0)
        set_death_signal(signal.SIGKILL)
        if self.limits is not None:
            self.limits.join()
        if _is_closed(alive):
            os._exit(0)
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)  # the init of a namespace gets none of them then
        if not self._is_root:
            syscalls.map_own_user(*self._user)
        if self._network is not None and self._makes_network:
            self._network.set_up()
        ready_r, ready_w = os.pipe()
        go_r, go_w = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.write(status, _NUMBER.pack(int(os.readlink("/proc/self"))))  # the number that the parent knows it by
            if self._is_root:
                syscalls.unshare(syscalls.CLONE_NEWUSER)
            os.write(ready_w, b"x")
            os.close(go_w)
            if not os.read(go_r, 1):
                os._exit(1)  # the init has reported why
            program()
        os.close(ready_w)
        os.read(ready_r, 1)
        self._build(pid)
        os.write(go_w, b"x")
        _close_all_but(status)
        syscalls.set_dumpable(False)
        _await(pid, status)

    def _build(self, pid: int) -> None:
        mounter = mounts.Mounter(self.private, self._view, self._home)
        os.umask(0o022)  # of the init alone: the program may have another user, and passes these folders
        proc, users = mounter.begin(), -1
        if self._is_root:
            for name in ("uid_map", "gid_map"):
                with open("%s/%d/%s" % (proc, pid, name), "w") as file:
                    file.write("0 %d 1" % self._uid)
            if self._uid:
                users = os.open("%s/%d/ns/user" % (proc, pid), os.O_RDONLY | os.O_CLOEXEC)
        mounter.finish(users)

    def enter(self) -> None:
        """Give up all rights. Called in the program's own process, right before user code runs."""
        if self.limits is not None:
            if not self.has_init:
                self.limits.join()
            self.limits.enter()
        if self.level == FULL:
            if self._is_root:
                os.setgroups([])
                os.setresgid(0, 0, 0)
                os.setresuid(0, 0, 0)
            syscalls.drop_capabilities()
            syscalls.set_dumpable(True)
            landlock.restrict_scopes()
        else:
            mounts.prepare(self.private)
            own = [os.path.join(self.private, name) for name in mounts.OWN_FOLDERS.values()]
            syscalls.drop_capabilities()
            read_only = [*view.SYSTEM_FOLDERS, "/proc", *view.linked_files(), *self._view.read_only]
            landlock.restrict(read_only, [*view.devices(), "/dev/shm", *own, *self._view.writable])  # noqa: S108
        syscalls.set_filter(self._filter)

    def read_pid(self, status: int) -> int:
        """The pid of the program, as its parent knows it. `status` is the other end of that of `run_init`. Returns 0 if
        there is none, because the cell can't be set up."""
        data = os.read(status, _NUMBER.size)
        return int(_NUMBER.unpack(data)[0]) if data else 0

    def read_status(self, status: int) -> Optional[int]:
        """The wait status of the program. Returns None if the cell was killed with it."""
        return read_status(status)

    def environment(self, env: dict[str, str]) -> dict[str, str]:
        """The variables of a program in the cell."""
        if self._network is not None:
            env = self._network.variables(env)
        if self.level == FULL:
            return {name: value for name, value in env.items() if name != "TMPDIR"}
        return dict(env, TMPDIR=os.path.join(self.private, "tmp"))


def read_status(status: int) -> Optional[int]:
    """The wait status of the program. Returns None if the cell was killed with it."""
    data = os.read(status, _NUMBER.size)
    return int(_NUMBER.unpack(data)[0]) if data else None


def _is_closed(pipe: int) -> bool:
    poll = select.poll()
    poll.register(pipe, 0)
    return bool(poll.poll(0))


def _close_all_but(kept: int) -> None:
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in (0, 1, 2, kept):
            try:
                os.close(int(name))
            except OSError:
                continue  # the descriptor of the listing itself


def _await(pid: int, status: int) -> None:
    """Reap all processes of the cell until the program has exited. Never returns."""
    while True:
        exited, wait_status = os.waitpid(-1, 0)
        if exited == pid:
            os.write(status, _NUMBER.pack(wait_status))
            os._exit(0)
