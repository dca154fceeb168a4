"""Python stacks of running processes, by py-spy; without it, what the kernel knows of their threads.

py-spy reads the memory of a process from outside. So it works for a process that is stopped or blocked in native code,
and needs no signal handler in user code. A dump runs beside the supervisor, which must not wait for it: a file that
py-spy reads may be on the file system that makes the replica hang.
"""

from __future__ import annotations

import json
import os
import signal

from ..process import spawn, tree
from ..process.environment import inherited_environment

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional

    Thread = dict[str, Any]  # its `name`, and its `frames` as [file, line, function], the innermost first

MAX_THREADS = 16
_MAX_FRAMES = 40  #: of a thread; the innermost are kept
_TEXT_MAX = 300  #: of a file or a function
_STACK_MAX_BYTES = 16 * 1024
_OUTPUT_MAX_BYTES = 8 << 20
_MAIN = "MainThread"
_NO_TOOL = "py-spy is not installed beside the server"


class StackDump:
    """A run of py-spy on one process. `poll` it until it is done."""

    def __init__(self, tool: str, pid: int, folder: str, deadline_s: float) -> None:
        """`tool` is the path of py-spy, or empty. `folder` is any folder."""
        self._deadline_s = deadline_s
        self._output = {"out": b"", "err": b""}
        self._pipes: dict[int, str] = {}
        self._pid = self._main = 0
        self.error = "" if tool else _NO_TOOL
        self.stack: list[Thread] = []
        if not tool:
            return
        try:
            argv = [tool, "dump", "--nonblocking", "--json", "--pid", str(pid)]
            process = spawn.spawn(argv, inherited_environment(), folder)
        except OSError as exc:
            self.error = "py-spy can't be started: %s" % exc.strerror
            return
        self._pid = process.pid
        self._main = _inner_pid(pid)
        self._pipes = {process.stdout: "out", process.stderr: "err"}

    def poll(self, now_s: float) -> bool:
        """Read what there is. Returns True if it is done: `stack` or `error` is set then. Never blocks."""
        for fd, name in list(self._pipes.items()):
            self._read(fd, name)
        if self._pipes and now_s < self._deadline_s:
            return False
        if self._pipes:
            self._close("py-spy did not end in time")
        elif self._pid:
            self._parse()
        self._pid = 0
        return True

    def _read(self, fd: int, name: str) -> None:
        while True:
            try:
                data = os.read(fd, 1 << 16)
            except BlockingIOError:
                return
            self._output[name] += data
            if len(self._output[name]) > _OUTPUT_MAX_BYTES:
                self._close("py-spy prints too much")
                return
            if not data:
                os.close(fd)
                del self._pipes[fd]
                return

    def _close(self, error: str) -> None:
        """Give up. The supervisor reaps the process, as it reaps all."""
        self.error = error
        tree.send_signal(self._pid, signal.SIGKILL)
        for fd in self._pipes:
            os.close(fd)
        self._pipes, self._pid = {}, 0

    def _parse(self) -> None:
        try:
            self.stack = parse_stack(self._output["out"], self._main)
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            self.stack = []
        if not self.stack:
            lines = self._output["err"].decode("utf-8", "replace").strip().splitlines()
            self.error = "py-spy says: %s" % lines[-1][:_TEXT_MAX].rstrip(".") if lines else "py-spy found no Python"


def parse_stack(output: bytes, main: int = 0) -> list[Thread]:
    """The threads in the JSON of py-spy, the main thread first, within bounds. Raises `ValueError`, `LookupError` or
    `TypeError` if it is another document. `main` is the number that the main thread has in its own namespace."""
    threads = json.loads(output.decode("utf-8", "replace"))
    threads.sort(key=lambda thread: _thread_name(thread, main) != _MAIN)
    stack: list[Thread] = []
    size = 0
    for thread in threads[:MAX_THREADS]:
        frames = [
            [str(frame["filename"])[-_TEXT_MAX:], int(frame["line"]), str(frame["name"])[:_TEXT_MAX]]
            for frame in _user_frames(thread["frames"])[:_MAX_FRAMES]
        ]
        size += len(json.dumps(frames))
        if size > _STACK_MAX_BYTES and stack:
            break
        stack.append({"name": _thread_name(thread, main)[:_TEXT_MAX], "frames": frames})
    return stack


def _inner_pid(pid: int) -> int:
    """The number that a process has in its own namespace. 0 if it is unknown."""
    try:
        with open("/proc/%d/status" % pid, "rb") as file:
            return next((int(line.split()[-1]) for line in file if line.startswith(b"NSpid:")), 0)
    except (OSError, ValueError):
        return 0


def _thread_name(thread: dict[str, Any], main: int) -> str:
    """Python has no names until a program imports `threading`. The main thread has the process's number."""
    if thread["thread_name"]:
        return str(thread["thread_name"])
    return _MAIN if thread["os_thread_id"] in (thread["pid"], main) else str(thread["os_thread_id"])


def _user_frames(frames: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without those of the warm process that a replica was forked from."""
    own = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))) + os.sep
    index = next((index for index, frame in enumerate(frames) if str(frame["filename"]).startswith(own)), len(frames))
    return frames[:index]


def kernel_threads(pid: int) -> list[list[str]]:
    """Name, state and kernel function of each thread of a process. Empty if the process is gone."""
    threads = []
    try:
        for number in sorted(os.listdir("/proc/%d/task" % pid), key=int)[:MAX_THREADS]:
            path = "/proc/%d/task/%s/" % (pid, number)
            with open(path + "status", "rb") as file:
                fields = dict(line.split(b":\t", 1) for line in file.read().splitlines() if b":\t" in line)
            state = fields[b"State"].decode("ascii", "replace")[:1]
            threads.append([fields[b"Name"].decode("utf-8", "replace"), state, _kernel_function(path)])
    except (OSError, LookupError):
        return threads
    return threads


def _kernel_function(path: str) -> str:
    """Where a thread waits in the kernel. An unknown place if the kernel keeps it to itself."""
    try:
        with open(path + "wchan", "rb") as file:
            name = file.read(_TEXT_MAX).decode("ascii", "replace").strip()
    except OSError:
        name = ""
    return "user code" if name == "0" else name or "an unknown place"


def python_process(pids: list[int]) -> Optional[int]:
    """The first of these processes that is a Python, or else the first one. Returns None if there is none."""
    for pid in pids:
        try:
            if os.path.basename(os.readlink("/proc/%d/exe" % pid)).startswith("python"):
                return pid
        except OSError:
            continue
    return pids[0] if pids else None
