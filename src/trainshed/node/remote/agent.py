"""The keeper: what runs on a node beside one replica of a gang that is supervised from elsewhere.

It gets the node ready, says where the replica will listen, starts it when the whole gang is ready, and writes all that
comes of it to a stream, which whoever started the keeper reads. That one holds the keeper's stdin: by it come orders,
a line of JSON each, and when it is closed, for whatever reason, everything below the keeper is killed.

Two processes, as with a supervisor: the outer one does nothing but wait, so that there is someone to clean up if the
inner one is killed. A lock that both hold keeps a new copy of the replica waiting until nothing of the old one is left.
"""

from __future__ import annotations

import fcntl
import json
import os
import random
import select
import selectors
import signal
import socket
import sys
import time

from ..process import spawn, tree
from ..process.exit_status import ExitStatus
from ..process.sampler import EVERY_S, ProcessSampler, oom_kills
from ..process.tree import signal_pipe
from . import placeholders, streams
from .workspace import SPEC_FILE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Optional

    from .sidecar_proxy import SidecarProxy

STREAM = "stream"  #: in the keeper's folder: what came of it
PREPARED = "prepared.json"  #: in the keeper's folder: what `prepare_node` found or made
_CHUNK = 1 << 16
_DRAIN_LIMIT = 64 << 20
_HELD_LIMIT = 4 << 20  #: bytes that wait for space on the disk before the replica has to wait too
_LOOK_S = 0.02
_TRIES_S = 20.0  #: for the port that a replica had before
_EPHEMERAL = "/proc/sys/net/ipv4/ip_local_port_range"
_LOWEST_PORT, _HIGHEST_PORT, _ENOUGH_PORTS = 10000, 65535, 1000


def run_agent(folder: str) -> int:
    """Keep the replica that the order in `folder` is about; returns when nothing of it is left."""
    tree.become_subreaper()
    _be_normal()
    with open(os.path.join(folder, SPEC_FILE), "rb") as file:
        order = json.loads(file.read().decode())
    if not _take(order["lock"]):
        return 1
    inner = os.fork()
    if inner == 0:
        status = 1
        try:
            status = _keep(folder, order)
        finally:
            os._exit(status)
    os.close(0)
    while os.waitpid(-1, 0)[0] != inner:
        pass
    tree.kill_descendants()
    clear_containers(folder)
    return 0


def clear_containers(folder: str) -> None:
    """What a container needs beyond the end of its processes, if the replica had one."""
    if not os.path.exists(os.path.join(folder, "containers.json")):
        return
    from ..containers.replica import remove_containers  # late: most replicas never need it

    left = remove_containers(folder)
    if left is not None:
        sys.stderr.write("A container is left, and can't be removed: %s.\n" % left)
    tree.kill_descendants()


def _keep(folder: str, order: dict[str, Any]) -> int:
    tree.become_subreaper()
    signals = signal_pipe((signal.SIGCHLD, signal.SIGTERM))
    return Agent(folder, order, signals, _orders()).run()


def _orders() -> int:
    """What stdin is, out of the way of the processes to come: a replica that reads its stdin must not get orders."""
    orders = os.dup(0)
    os.set_blocking(orders, False)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    return orders


def _be_normal() -> None:
    """Give the replica the priority that it has elsewhere, where that is allowed: Ray's own processes have less."""
    try:
        os.setpriority(os.PRIO_PROCESS, 0, 0)
        with open("/proc/self/oom_score_adj", "r+b", 0) as file:
            file.write(b"0")
    except PermissionError:
        return


def _take(path: str) -> bool:
    """Wait for the lock, which is held until this process and those forked from it have ended. False: nobody wants the
    replica any more.
    """
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            poll = select.poll()
            poll.register(0, select.POLLHUP)
            if poll.poll(_LOOK_S * 1000):
                return False


class Agent:
    """One replica on this node. `run` is called once."""

    def __init__(self, folder: str, order: dict[str, Any], signals: int, orders: int) -> None:
        """`orders` is a pipe, by which they come."""
        self._folder = folder
        self._source = orders
        self._order = order
        self._stream = streams.StreamWriter(os.path.join(folder, STREAM))
        self._looks = ProcessSampler(folder if order.get("container") else "")
        self._selector = selectors.DefaultSelector()
        self._selector.register(orders, selectors.EVENT_READ, self._on_orders)
        self._selector.register(signals, selectors.EVENT_READ, lambda: self._on_signals(signals))
        self._orders = b""
        self._pipes: dict[int, int] = {}  # what the child prints to, and which kind of frame it becomes
        self._paused = False  # the disk is full, and what the child prints has to wait
        self._child = 0
        self._then: Callable[[ExitStatus], None] = self._prepared  # what to do when the child has ended
        self._port: Optional[socket.socket] = None  # held until the replica takes it
        self._sample_at = float("inf")
        self._oom_kills = oom_kills()
        self._end: Optional[ExitStatus] = None
        self._wanted = True
        self._relay: Optional[SidecarProxy] = None
        self._relay_pid = 0

    def run(self) -> int:
        """Until the replica has ended and all of its output is written down, or nobody wants it any more."""
        self._start(["prepare"], _inherited(), self._folder, self._prepare)
        while self._wanted and self._end is None:
            self._step()
        tree.kill_descendants()
        if not self._wanted:
            return 1
        self._drain()
        assert self._end is not None
        self._stream.append(streams.EXIT, _json(code=self._end.code, signal=self._end.signal))
        while self._wanted and not self._stream.flush():
            self._step(0.2)
        return 0

    # -- the loop

    def _step(self, longest_s: float = 3600.0) -> None:
        wait_s = min(max(0.0, self._sample_at - time.monotonic()), longest_s, 0.2 if self._paused else longest_s)
        for key, _ in self._selector.select(wait_s):
            if self._selector.get_map().get(key.fd) is key:  # else one before it closed the file
                key.data()
        self._pause(self._stream.held > _HELD_LIMIT and not self._stream.flush())
        if time.monotonic() >= self._sample_at and self._child:
            self._sample_at = time.monotonic() + EVERY_S
            lines = self._looks.lines({self._order["replica"]: self._child}, time.monotonic())
            if lines:
                self._stream.append(streams.SAMPLE, lines.encode())

    def _pause(self, full: bool) -> None:
        """Leave what the child prints in its pipes for as long as there is no space for it."""
        if full == self._paused:
            return
        self._paused = full
        for fd in self._pipes:
            if full:
                self._selector.unregister(fd)
            else:
                self._selector.register(fd, selectors.EVENT_READ, self._reader(fd))

    def _on_orders(self) -> None:
        data = os.read(self._source, _CHUNK)
        if not data:
            self._wanted = False
            return
        lines = (self._orders + data).split(b"\n")
        self._orders = lines.pop()
        for line in lines:
            order = json.loads(line.decode())
            if order["do"] == "signal":
                self._pass_on(order["number"])
            elif order["do"] == "addresses" and self._port is not None:
                self._run(order["addresses"])

    def _pass_on(self, number: int) -> None:
        if self._child:
            tree.send_signal(self._child, number)
            tree.send_signal(self._child, signal.SIGCONT)  # one that was stopped could not hear it
        else:
            self._end = ExitStatus(None, number)

    def _on_signals(self, fd: int) -> None:
        if signal.SIGTERM in os.read(fd, 4096):
            self._wanted = False
        tree.reap(self._on_exit)

    def _on_exit(self, pid: int, status: int) -> None:
        if self._relay is not None and pid == self._relay_pid:
            self._relay_pid = self._relay.start()
        if pid == self._child:
            self._drain()
            self._child = 0
            self._then(ExitStatus.of(status))

    # -- the child

    def _prepare(self) -> int:
        """In a process of its own: get the node ready."""
        from .setup import prepare_node

        return prepare_node(self._folder, self._order, os.path.join(self._folder, PREPARED))

    def _start(self, argv: list[str], env: dict[str, str], folder: str, be: Optional[Callable[[], int]] = None) -> None:
        started = spawn.spawn(argv, env, folder, be)
        self._child = started.pid
        self._pipes = {started.stdout: streams.OUT, started.stderr: streams.ERR}
        for fd in self._pipes:
            self._selector.register(fd, selectors.EVENT_READ, self._reader(fd))

    def _reader(self, fd: int) -> Callable[[], bool]:
        return lambda: self._read(fd)

    def _read(self, fd: int) -> bool:
        """Take what a pipe holds. False: nothing now, or nothing ever again."""
        try:
            data = os.read(fd, _CHUNK)
        except BlockingIOError:
            return False
        if data:
            self._stream.append(self._pipes[fd], data)
            return True
        if not self._paused:
            self._selector.unregister(fd)
        os.close(fd)
        del self._pipes[fd]
        return False

    def _drain(self) -> None:
        """Take what is in the pipes now; someone may hold them for ever, so don't wait for their end."""
        for fd in list(self._pipes):
            for _ in range(_DRAIN_LIMIT // _CHUNK):
                if not self._read(fd):
                    break

    def _say(self, line: str, kind: int = streams.OUT) -> None:
        self._stream.append(kind, line.encode("utf-8", "backslashreplace") + b"\n")

    # -- from a node that is ready to a replica that runs

    def _prepared(self, end: ExitStatus) -> None:
        if not end.ok:
            self._end = end
            return
        try:
            self._port = reserve_port(self._order["host"], self._order["port"])
        except OSError as exc:
            self._say("No port is free on %s: %s." % (self._order["host"], exc.strerror), streams.ERR)
            self._end = ExitStatus(1)
            return
        self._stream.append(streams.ADDRESS, _json(host=self._order["host"], port=self._port.getsockname()[1]))

    def _run(self, addresses: dict[str, list[str]]) -> None:
        with open(os.path.join(self._folder, PREPARED), "rb") as file:
            prepared = json.loads(file.read().decode())
        known = dict(self._equip(), node=self._folder)
        ours = not self._order["module"] and not self._order.get("container")  # a host, and no code of a user's
        if ours:
            known.update(site=prepared["site"], model=prepared["model"])
        fill = placeholders.substitution(known, addresses)
        if self._order["kit"]["files"]:
            from . import credentials

            credentials.unpack_credentials(
                self._order["kit"], self._folder, fill, for_all=bool(self._order.get("container"))
            )
        env = dict(_inherited(), **{key: fill(value) for key, value in self._order["env"].items()})
        env["PYTHONUNBUFFERED"] = "1"
        args = [fill(arg) for arg in self._order["args"]]
        if not ours:
            for line in spawn.log_header(self._order, {"env": env, "container": self._order.get("container") or {}}):
                self._say(line)
            if prepared["site"]:
                env["PYTHONPATH"] = prepared["site"] + (os.pathsep + env["PYTHONPATH"] if env.get("PYTHONPATH") else "")
            argv = [prepared["python"], "-m", self._order["module"], *args]
        else:
            argv = spawn.runtime_command(prepared["python"], *args)
        if self._order.get("container"):
            from ..containers import replica as container_replica

            container_replica.write_spec(self._folder, self._order, fill)
            argv, env = (
                spawn.node_command(prepared["python"], "run-container", self._folder, self._order["replica"]),
                _inherited(),
            )
        work = os.path.join(self._folder, "work")
        os.makedirs(work, mode=0o700, exist_ok=True)
        assert self._port is not None
        self._port.close()
        self._port = None
        self._then = self._ended
        try:
            self._start(argv, env, work)
        except OSError as exc:
            self._say("%s can't be started: %s." % (prepared["python"], exc.strerror), streams.ERR)
            self._end = ExitStatus(1)
            return
        self._stream.append(streams.STARTED, b"")
        self._sample_at = time.monotonic() + EVERY_S

    def _equip(self) -> dict[str, str]:
        """What stands for the way to the server, if the replica is to have one."""
        if self._order["kit"]["relay"] is None:
            return {}
        from .sidecar_proxy import SidecarProxy

        self._relay = SidecarProxy(self._order["kit"]["relay"])
        self._relay_pid = self._relay.start()
        return {"relay": self._relay.address}

    def _ended(self, end: ExitStatus) -> None:
        if end.signal == signal.SIGKILL and oom_kills() > self._oom_kills:
            self._say("The memory of %s ran out, and its kernel killed a process." % self._order["host"], streams.ERR)
        self._end = end


def _inherited() -> dict[str, str]:
    """The node's environment, without what Ray put there for its own processes."""
    env = spawn.inherited_environment()
    return {key: value for key, value in env.items() if not key.startswith("RAY_") and key != "OMP_NUM_THREADS"}


def _json(**facts: Any) -> bytes:
    return json.dumps(facts).encode()


def reserve_port(host: str, wanted: int = 0) -> socket.socket:
    """A port of this host that nobody else has, `wanted` if that is not 0. It stays ours until the socket is closed.

    Others are below those that the kernel gives to outgoing connections: one of those could be taken by anybody
    between now and the moment when the trainer listens.
    """
    if wanted:
        return _bind_patiently(host, wanted)
    with open(_EPHEMERAL) as file:
        first = int(file.read().split()[0])
    below = first if first >= _LOWEST_PORT + _ENOUGH_PORTS else _HIGHEST_PORT + 1
    failure = OSError(0, "none was tried")
    for port in random.sample(range(_LOWEST_PORT, below), _ENOUGH_PORTS):
        try:
            return _bind(host, port, shared=False)
        except OSError as exc:
            failure = exc
    raise failure


def _bind_patiently(host: str, port: int) -> socket.socket:
    deadline = time.monotonic() + _TRIES_S
    while True:
        try:
            return _bind(host, port, shared=True)
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(_LOOK_S)


def _bind(host: str, port: int, shared: bool) -> socket.socket:
    """`shared`: although connections of an earlier listener are not forgotten yet."""
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        if shared:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
    except OSError:
        listener.close()
        raise
    return listener
