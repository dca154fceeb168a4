"""Command line of the node.

`supervise DIR`             start the supervisor of an attempt
`install DIR`               install the packages of an attempt
`images DIR`                pull the images of an attempt
`run-container DIR REPLICA` run a replica in a container
`warm DIR`                  run the warm process of a runtime
`tensorboard FILE`          run TensorBoard
`sandbox DIR UID`           find the level of the sandbox, and print it
`replica-proxy DIR NAME INCARNATION`  represent a remote replica
`agent DIR`                 run a replica or host on a remote node
`remove-containers DIR`     remove the container of a replica whose agent was killed

`supervise` returns when the supervisor is ready. It leaves two processes: the supervisor and, as its parent, a reaper
that only waits and cleans up if the supervisor is killed. Both hold the lock on DIR/lock. While it is held, processes
of the job may live; when it is free, none does, unless both were killed: the server ends those by their mark.
"""

from __future__ import annotations

import errno
import fcntl
import gc
import json
import os
import signal
import struct
import sys

from . import failure
from . import journal as events
from .journal import Journal
from .process import mark, spawn, tree
from .process.tree import signal_pipe

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional

    from .sandbox.network.namespace import SandboxNetwork

#: An open file description lock, which forked processes share. Unlike flock, others can query it without taking it.
_F_OFD_SETLK = 37  # in `fcntl` from Python 3.9 on
_READY = b"ready"
FORMAT = 1


def main(argv: list[str]) -> int:
    """Run a command. Returns its exit status."""
    if len(argv) in (2, 3) and argv[0] == "supervise":
        spawn.cold_reason = "".join(argv[2:])
        return supervise(os.path.abspath(argv[1]))
    if len(argv) == 2 and argv[0] == "warm":
        from .warm.process import serve

        return serve(os.path.abspath(argv[1]), supervise)
    if len(argv) == 2 and argv[0] == "install":
        from .package_install import install

        return install(argv[1])
    if len(argv) == 2 and argv[0] == "images":
        from .containers.images import prepare_images

        return prepare_images(argv[1])
    if len(argv) == 3 and argv[0] == "run-container":
        from .containers.replica import run_replica

        return run_replica(argv[1], argv[2])
    if len(argv) == 4 and argv[0] == "replica-proxy":
        from .remote.replica_proxy import main as stand_in

        return stand_in(*argv[1:])
    if len(argv) == 2 and argv[0] == "agent":
        from .remote.agent import run_agent

        return run_agent(argv[1])
    if len(argv) == 2 and argv[0] == "remove-containers":
        from .remote.agent import remove_replica_containers

        remove_replica_containers(argv[1])
        return 0
    if len(argv) == 2 and argv[0] == "tensorboard":
        from .tensorboard import main as board

        return board(argv[1])
    if len(argv) == 3 and argv[0] == "sandbox":
        from .sandbox.check import find_level

        sys.stdout.write(json.dumps(find_level(os.path.abspath(argv[1]), int(argv[2]))))
        return 0
    words = "supervise|install|warm|agent|remove-containers FOLDER, or replica-proxy, or tensorboard FILE"
    sys.stderr.write("Usage: run.py %s\n" % words)
    return 2


def supervise(folder: str) -> int:
    """Start the attempt in `folder`. Idempotent. Returns 1 if it can't be started, with the reason on stderr."""
    spawn.close_inherited_fds()
    try:
        lock = _take_lock(os.path.join(folder, "lock"))
        if lock is None:
            return 0
        journal = Journal(os.path.join(folder, "journal.jsonl"))
    except OSError as exc:
        sys.stderr.write("%s can't be written to: %s.\n" % (folder, exc.strerror))
        return 1
    if journal.started():
        return 0
    gc.freeze()  # forked processes share the objects that exist now
    ready_r, ready_w = os.pipe()
    reaper = os.fork()
    if reaper == 0:
        try:
            os.close(ready_r)
            _reap(folder, journal, ready_w)
        finally:
            os._exit(0)
    os.close(ready_w)
    with open(ready_r, "rb") as file:
        response = file.read()
    if response == _READY:
        return 0
    os.waitpid(reaper, 0)  # until the lock is free again
    sys.stderr.write(response.decode("utf-8", "replace") or "The supervisor ended before it was ready.")
    sys.stderr.write("\n")
    return 1


def _take_lock(path: str) -> Optional[int]:
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.fcntl(fd, _F_OFD_SETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
    except OSError as exc:
        if exc.errno not in (errno.EAGAIN, errno.EACCES):
            raise
        os.close(fd)
        return None
    return fd


def _reap(folder: str, journal: Journal, ready: int) -> None:
    """The reaper: wait for the supervisor, kill all descendants, and close the journal if it has no end."""
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    os.close(null)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    tree.become_subreaper()
    mark.set_limit(folder)
    network = _begin_network(folder)
    supervisor = os.fork()
    if supervisor == 0:
        status = 1
        try:
            status = _run_supervisor(folder, journal, ready, network)
        finally:
            os._exit(status)
    os.close(ready)
    if network is not None:
        network.close()
    while os.waitpid(-1, 0)[0] != supervisor:
        pass
    tree.kill_descendants()
    _remove_containers(folder, journal)
    if journal.started() and not journal.ended():
        _remove_groups(folder)
        journal.append(events.LOST)
        journal.sync()


def _begin_network(folder: str) -> Optional[SandboxNetwork]:
    """Start what holds the connections of a gang that has a network of its own, outside of it."""
    try:
        spec = (_read_spec(folder).get("sandbox") or {}).get("network")
    except (OSError, ValueError, KeyError):
        return None  # the supervisor says so
    if not spec:
        return None
    from .sandbox.network.namespace import SandboxNetwork  # late: not all gangs have one

    network = SandboxNetwork(spec)
    network.begin()
    return network


def _remove_groups(folder: str) -> None:
    """Remove the control groups that a killed supervisor has left."""
    from .sandbox.cgroups import sweep  # late: few supervisors are killed

    sandbox = _read_spec(folder).get("sandbox") or {}
    sweep((sandbox.get("limits") or {}).get("cgroups", {}).values())


def _remove_containers(folder: str, journal: Journal) -> None:
    """Remove containers if the supervisor was killed before it did. They outlive their processes."""
    if not os.path.exists(os.path.join(folder, "containers.json")):
        return
    from .containers.replica import remove_containers  # late: most jobs need no containers

    reason = remove_containers(folder)
    if reason is not None:
        journal.append(events.CONTAINERS_LEFT, reason=reason)
    tree.kill_descendants()


def _run_supervisor(folder: str, journal: Journal, ready: int, network: Optional[SandboxNetwork]) -> int:
    """The supervisor. Returns 0 if the end of the job is in the journal."""
    from .supervisor.cells import Cells
    from .supervisor.supervisor import REAPER_LOST, Supervisor

    tree.become_subreaper()
    signals = signal_pipe((signal.SIGCHLD, signal.SIGTERM, REAPER_LOST))
    reaper = os.getppid()
    tree.set_parent_death_signal(reaper, REAPER_LOST)
    try:
        spec = _read_spec(folder)
        supervisor = Supervisor(folder, spec, journal, Cells(folder, spec, network))
        supervisor.listen(_make_control_fifo(os.path.join(folder, "control")), signals)
        journal.append(
            events.SUPERVISOR_STARTED,
            pid=os.getpid(),
            reaper=reaper,
            boot_id=_boot_id(),
            started=_start_time(),
            start="cold" if spawn.warm_runner is None else "warm",
        )
        journal.sync()
    except (OSError, ValueError, KeyError) as exc:
        os.write(ready, ("The attempt in %s can't be started: %s." % (folder, exc)).encode("utf-8", "replace")[:4096])
        return 1
    os.write(ready, _READY)
    os.close(ready)
    try:
        supervisor.run()
    except Exception as exc:  # noqa: BLE001 - the job's processes must end, and its user must know
        tree.kill_descendants()
        failed = {"cause": failure.SUPERVISOR_FAILED, "message": "%s: %s" % (type(exc).__name__, exc)}
        journal.append(events.ENDED, outcome="FAILED", failure=failed)
        journal.sync()
    return 0


def _read_spec(folder: str) -> dict[str, Any]:
    with open(os.path.join(folder, "spec.json"), "rb") as file:
        spec = json.loads(file.read().decode())
    if spec["format"] != FORMAT:
        raise ValueError("its spec has the format %r, and this supervisor knows %d" % (spec["format"], FORMAT))
    return spec  # type: ignore[no-any-return]


def _make_control_fifo(path: str) -> int:
    """Create the FIFO for the server's commands. Open for writing too, so that reads never see its end."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
    os.mkfifo(path, 0o600)
    return os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)


def _boot_id() -> str:
    with open("/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip()


def _start_time() -> int:
    """Start time of this process, in ticks since boot. Unique together with pid and boot id."""
    return int(tree.stat_fields(os.getpid())[19])
