"""The supervisor of one attempt: a single-threaded loop that starts the replicas, keeps what they print, starts those
again that are lost, and ends them. What follows from the end of a replica is decided in `restart_policy`; here it is
done.

It stops when every process that the job ever started is dead, and only then writes down how the job ended.
"""

from __future__ import annotations

import functools
import os
import selectors
import signal
import time

from ..journal import Journal
from ..process import spawn, tree
from ..process.exit_status import STARTED, ExitStatus
from ..process.sampler import EVERY_S, SampleWriter, oom_kills
from . import restart_policy
from .log_writer import STDERR, STDOUT, LogWriter, ReplicaLog
from .restart_policy import CANCELLED, CAUSE_WAIT_S, END, FAILED, GO_ON, HOLD, RESTART_GANG, JobEnd
from .start_order import StartOrder
from .step_tracker import RestartCost, StepTracker

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Optional

REAPER_LOST = signal.SIGUSR1  #: what the kernel sends when the guardian is gone
_INSTALLER = "installer"
_CHUNK = 1 << 16
_DRAIN_LIMIT = 64 << 20
_LONGEST_WAIT_S = 3600.0
_SWEEP_S = 0.02  #: between two looks at what is left of a replica
_PIPE_READS = 2  #: empty a pipe, unless its writer is faster
_COMMAND_LIMIT = 256
_NEVER = float("inf")


class _Child:
    """A process that the supervisor started itself, and where its output goes."""

    __slots__ = ("log", "name", "pipes")

    def __init__(self, name: str, log: ReplicaLog, pipes: dict[int, str]) -> None:
        self.name = name
        self.log = log
        self.pipes = pipes  # what is still open, and whether it is STDOUT or STDERR


class Supervisor:
    """Runs one attempt to its end. `run` is called once."""

    def __init__(self, folder: str, spec: dict[str, Any], journal: Journal) -> None:
        self._folder = folder
        self._spec = spec
        self._journal = journal
        self._file = LogWriter(os.path.join(folder, "log.jsonl"))
        self._service = ReplicaLog("service", self._file, 0)
        self._progress = StepTracker(self._on_resumed)
        self._replicas: dict[str, dict[str, Any]] = {each["name"]: each for each in spec["replicas"]}
        self._logs = {
            name: ReplicaLog(name, self._file, spec["log_limit_bytes"], self._progress.watch(name))
            for name in self._replicas
        }
        self._sampler = SampleWriter(os.path.join(folder, "samples.jsonl"), inside=bool(spec.get("containers")))
        self._selector = selectors.DefaultSelector()
        self._children: dict[int, _Child] = {}
        self._finished: list[_Child] = []  # ended, but a descendant may still hold their pipes
        self._exits: dict[str, ExitStatus] = {}
        self._order = StartOrder()
        self._past = restart_policy.RestartHistory()
        self._due: dict[str, tuple[float, RestartCost]] = {}  # replicas to start again, and when
        self._held: list[str] = []  # replicas that may have ended over the loss of another, which is not seen yet
        self._regroup: Optional[RestartCost] = None  # the whole gang is being stopped, to be started again
        self._ending: Optional[JobEnd] = None
        self._kill_at = self._cancel_at = self._sample_at = self._hold_until = self._regroup_at = _NEVER
        self._oom_kills = oom_kills()
        self._control = -1
        self._commands = b""
        self._runs = False

    def listen(self, control: int, signals: int) -> None:
        """Take commands from the FIFO `control` and the numbers of signals from `signals`."""
        self._control = control
        self._watch(control, self._on_control)
        self._watch(signals, lambda: self._on_signals(signals))

    def run(self) -> None:
        """Start everything and return when all of it is dead and the end is in the journal."""
        self._service.say("Waiting for training program to start.")
        self._journal.append("preparing")
        self._prepare()
        while self._ending is None or (self._children and time.monotonic() < self._kill_at):
            self._step()
        self._finish()

    # -- starting

    def _prepare(self) -> None:
        if not self._spec.get("cluster"):  # there it is said when the addresses are known
            for each in self._spec["replicas"]:
                for line in spawn.log_header(self._spec, each):
                    self._logs[each["name"]].say(line)
        log = self._logs[self._primary()["name"]]
        site = self._spec["site"]
        os.makedirs(os.path.join(self._folder, "work"), mode=0o700, exist_ok=True)
        if self._spec.get("containers") and not self._spec.get("cluster"):
            self._start_installer("images", log)
        elif not self._spec["packages"]:
            self._start_replicas()
        elif os.path.isdir(site):
            for package in self._spec["packages"]:
                log.say("The package is installed already: %s" % package["uri"])
            self._start_replicas()
        else:
            self._start_installer("install", log)

    def _start_installer(self, what: str, log: ReplicaLog) -> None:
        argv = spawn.node_command(self._spec["python"], what, self._folder)
        self._start(_INSTALLER, argv, spawn.inherited_environment(), log)

    def _start_replicas(self) -> None:
        if self._spec.get("cluster"):  # the nodes look, the stand-ins write it down, and tell when a replica runs
            self._start_first()
            return
        self._sample_at = time.monotonic() + EVERY_S
        if self._start_first():
            self._begin_to_run()

    def _begin_to_run(self) -> None:
        if self._ending is None and not self._runs:
            self._runs = True
            self._journal.append("running")
            self._cancel_at = time.monotonic() + self._spec["max_running_s"]

    def _start_first(self) -> bool:
        """Start the gang, but for those that are better started a little later. False: the job ends."""
        first = self._spec["replicas"]
        if not self._spec.get("cluster"):  # there the nodes wait for each other
            first = self._order.begin(first, self._spec["site"], time.monotonic())
        return all(self._start_replica(each) for each in first)

    def _start_replica(self, each: dict[str, Any]) -> bool:
        """Start one of the gang. False: it can't be, and the job ends."""
        log = self._logs[each["name"]]
        log.say("Running command: " + spawn.display_command(self._spec, each))
        if self._spec.get("cluster"):
            incarnation = "%d.%d" % (self._past.gang_restarts, self._past.restarts.get(each["name"], 0))
            return self._start_stand_in(each["name"], incarnation, log)
        env = spawn.environment(self._spec, each, self._spec["site"] if self._spec["packages"] else "")
        env[tree.MARK] = each["name"]
        return self._start(each["name"], spawn.command(self._spec, each, self._folder), env, log)

    def _start_stand_in(self, name: str, incarnation: str, log: ReplicaLog) -> bool:
        from ..remote import replica_proxy  # late: replicas on this machine need none

        be = functools.partial(replica_proxy.main, self._folder, name, incarnation)
        return self._start(name, ["replica-proxy"], spawn.inherited_environment(), log, be)

    def _start(
        self,
        name: str,
        argv: list[str],
        env: dict[str, str],
        log: ReplicaLog,
        be: Optional[Callable[[], int]] = None,
    ) -> bool:
        """Start a child and watch its output. False: it can't be, and the job ends."""
        try:
            started = spawn.spawn(argv, env, os.path.join(self._folder, "work"), be)
        except OSError as exc:
            self._end(JobEnd(FAILED, 0.0, "%s can't be started: %s." % (argv[0], exc.strerror)))
            return False
        if started.note:
            log.say(started.note)
        child = _Child(name, log, {started.stdout: STDOUT, started.stderr: STDERR})
        for fd in child.pipes:
            self._watch(fd, self._reader(child, fd))
        self._children[started.pid] = child
        if name != _INSTALLER:
            self._journal.append("replica_started", name=name, pid=started.pid)
        return True

    def _reader(self, child: _Child, fd: int) -> Callable[[], object]:
        return lambda: self._read(child, fd)

    # -- the loop

    def _step(self) -> None:
        own = (self._kill_at, self._cancel_at, self._sample_at, self._hold_until, self._regroup_at)
        wake_at = min([*own, self._order.look_at, *(due_s for due_s, _ in self._due.values())])
        for key, _ in self._selector.select(min(max(0.0, wake_at - time.monotonic()), _LONGEST_WAIT_S)):
            if self._selector.get_map().get(key.fd) is key:  # else one before it closed the file
                key.data()
        now = time.monotonic()
        if now >= self._cancel_at:
            self._end(JobEnd(CANCELLED, self._spec["grace_s"], restart_policy.TOO_LONG % self._spec["max_running_s"]))
        if now >= self._hold_until:
            self._end(JobEnd(FAILED, self._spec["grace_s"], blame=self._held[0]))
        if self._regroup is not None and (not self._children or now >= self._regroup_at):
            self._start_gang(self._regroup)
        for each in self._order.due(now):
            self._start_replica(each)
        for name in [name for name, (due_s, _) in self._due.items() if now >= due_s]:
            self._start_again(name)
        if now >= self._sample_at:
            self._sample_at = now + EVERY_S
            pids = {child.name: pid for pid, child in self._children.items()}
            self._sampler.sample(pids, now)
            self._journal.flush()

    def _watch(self, fd: int, act: Callable[[], object]) -> None:
        self._selector.register(fd, selectors.EVENT_READ, act)

    def _read(self, child: _Child, fd: int) -> bool:
        """Take what a pipe holds. False: nothing now, or nothing ever again."""
        try:
            data = os.read(fd, _CHUNK)
        except BlockingIOError:
            return False
        if data:
            child.log.take(child.pipes[fd], data)
            return True
        self._selector.unregister(fd)
        os.close(fd)
        child.log.end(child.pipes.pop(fd))
        return False

    def _drain(self, child: _Child, reads: int = _DRAIN_LIMIT // _CHUNK) -> None:
        """Take what is in the pipes now; someone may hold them for ever, so don't wait for their end."""
        for fd in list(child.pipes):
            for _ in range(reads):
                if not self._read(child, fd):
                    break

    def _on_control(self) -> None:
        try:
            data = os.read(self._control, 4096)
        except BlockingIOError:
            return
        lines = (self._commands + data).split(b"\n")
        self._commands = lines.pop()[-_COMMAND_LIMIT:]
        for line in lines:
            words = line.decode("ascii", "replace").split()
            if words == ["cancel"]:
                self._end(JobEnd(CANCELLED, self._spec["grace_s"], "The job was cancelled."))
            elif len(words) == 3 and words[0] == "kill" and words[2].isdigit():
                self._kill(words[1], int(words[2]))
            elif words == [STARTED] and self._spec.get("cluster"):
                self._begin_to_run()

    def _kill(self, name: str, number: int) -> None:
        """Send the replica a signal because someone wants to see what happens."""
        for pid, child in self._children.items():
            if child.name == name and 0 < number < signal.NSIG:
                self._journal.append("killed", name=name, signal=number)
                self._service.say("%s is sent signal %d, as was asked for." % (name, number), "WARNING")
                tree.send_signal(pid, number)

    def _on_signals(self, fd: int) -> None:
        numbers = os.read(fd, 4096)
        if REAPER_LOST in numbers:
            self._end(JobEnd(FAILED, 0.0, restart_policy.REAPER_KILLED))
        elif signal.SIGTERM in numbers:
            self._end(JobEnd(FAILED, self._spec["grace_s"], restart_policy.STOPPED))
        if signal.SIGCHLD in numbers:
            self._on_control()  # what a stand-in said before it ended
            tree.reap(self._on_exit)

    def _on_exit(self, pid: int, status: int) -> None:
        child = self._children.pop(pid, None)
        if child is None:
            return  # an orphan that the trainer left behind
        self._drain(child)
        self._finished.append(child)
        end = ExitStatus.of(status)
        if child.name == _INSTALLER:
            self._installed(end)
            return
        self._exits[child.name] = end
        self._journal.append("replica_exited", name=child.name, code=end.code, signal=end.signal)
        child.log.say("Module completed; cleaning up.")
        child.log.say("Clean up finished.")
        if end.ok:
            child.log.say("Task completed successfully.")
        self._judge(child.name)

    # -- restarts

    def _judge(self, name: str) -> None:
        """Do what follows from the end of a replica, unless it was told to end."""
        if self._ending is not None or self._regroup is not None:
            return
        end, now = self._exits[name], time.monotonic()
        if end.lost:
            self._past = self._past.losing(name, now)
        step = restart_policy.decide(self._spec["replicas"], self._past, name, end, self._echoes(name, end), now)
        self._past = self._past.after(name, step)
        if step.word == END:
            self._end(JobEnd(step.outcome, self._spec["grace_s"], step.message, "" if end.ok else name))
        elif step.word == HOLD:
            self._held.append(name)
            self._hold_until = min(self._hold_until, now + CAUSE_WAIT_S)
        elif step.word != GO_ON:
            self._plan_restart(name, end, step.word == RESTART_GANG, now + step.delay_s)
        if end.lost:
            held, self._held, self._hold_until = self._held, [], _NEVER
            for each in held:
                self._judge(each)

    def _echoes(self, name: str, end: ExitStatus) -> bool:
        if end.ok or end.lost or len(self._replicas) == 1:
            return False
        from . import failure_message  # late: most jobs never need it

        return failure_message.is_peer_loss(self._logs[name].tail())

    def _plan_restart(self, name: str, end: ExitStatus, whole: bool, due_s: float) -> None:
        for child in self._children.values():
            self._drain(child, _PIPE_READS)  # what was printed up to now came before the restart
        reason = end.how if end.lost else "%s after %s was lost" % (end.how, self._past.lost)
        restart = RestartCost(name, reason, whole)
        restart.before = self._progress.last(self._tellers(restart))
        if whole:
            self._regroup, self._regroup_at = restart, time.monotonic() + self._spec["grace_s"]
            self._due, self._held, self._hold_until = {}, [], _NEVER
            self._order.clear()
            self._terminate()
        else:
            self._due[name] = (due_s, restart)
            self._sweep(name)

    def _tellers(self, restart: RestartCost) -> set[str]:
        """Those whose steps tell how a restart went: a parameter server has none of its own."""
        if not restart.gang and self._replicas[restart.name]["type"] != "ps":
            return {restart.name}
        return {name for name, each in self._replicas.items() if each["type"] not in ("ps", "evaluator")}

    def _sweep(self, name: str) -> bool:
        """Kill what is left of a replica. True: there is nothing left."""
        return tree.kill_orphans(name, {pid: child.name for pid, child in self._children.items()})

    def _start_again(self, name: str) -> None:
        _, restart = self._due.pop(name)
        if self._sweep(name):
            self._note(restart)
            self._start_replica(self._replicas[name])
        else:
            self._due[name] = (time.monotonic() + _SWEEP_S, restart)

    def _start_gang(self, restart: RestartCost) -> None:
        tree.kill_descendants(self._on_exit)
        self._regroup, self._regroup_at = None, _NEVER
        self._note(restart)
        self._start_first()

    def _note(self, restart: RestartCost) -> None:
        """Everything that is to be written down before a new copy starts."""
        for child in self._finished:
            self._drain(child)
        self._finished = [child for child in self._finished if child.pipes]
        for name in self._replicas if restart.gang else (restart.name,):
            self._logs[name].renew()
        event = "gang_restarted" if restart.gang else "replica_restarted"
        self._journal.append(event, name=restart.name, reason=restart.reason, step_before=restart.before)
        self._service.say("%s." % restart.cause.replace("restarted", "Restarted", 1), "WARNING")
        self._progress.restarted(restart, self._tellers(restart))

    def _on_resumed(self, restart: RestartCost) -> None:
        self._journal.append("resumed", name=restart.name, step=restart.after)
        self._service.say("%s %s." % ("The gang" if restart.gang else restart.name, restart.cost))

    # -- ending

    def _installed(self, end: ExitStatus) -> None:
        self._remove_sources()
        if self._ending is not None:
            return
        if end.ok:
            self._start_replicas()
            return
        from . import failure_message

        self._end(JobEnd(FAILED, 0.0, failure_message.install_failure(self._folder, self._spec["job"], end)))

    def _remove_sources(self) -> None:
        """What the packages were installed from; the installer may have been killed over it."""
        sources = os.path.join(self._folder, "packages")
        if os.path.isdir(sources):
            import shutil

            shutil.rmtree(sources, ignore_errors=True)

    def _end(self, ending: JobEnd) -> None:
        """Begin to end the job; the first reason counts."""
        if self._ending is not None and self._ending.grace_s <= ending.grace_s:
            return
        if self._ending is None:
            self._ending = ending
            self._journal.append("stopping", reason=ending.message or ending.blame or ending.outcome)
        self._cancel_at = self._hold_until = self._regroup_at = _NEVER
        self._due, self._held, self._regroup = {}, [], None
        self._order.clear()
        self._kill_at = time.monotonic() + ending.grace_s
        self._terminate()

    def _terminate(self) -> None:
        for pid in self._children:
            tree.send_signal(pid, signal.SIGTERM)
            tree.send_signal(pid, signal.SIGCONT)  # one that was stopped could not hear it

    def _finish(self) -> None:
        tree.kill_descendants(self._on_exit)
        if self._spec.get("containers"):
            self._clear_containers()
        self._remove_sources()
        for child in self._finished:
            self._drain(child)
        for log in self._logs.values():
            log.close()
        assert self._ending is not None
        self._service.say("Tearing down training program.")
        self._service.say("Finished tearing down training program.")
        while not self._file.flush():
            time.sleep(0.2)  # for space on the disk
        self._journal.append("ended", outcome=self._ending.outcome, message=self._message(self._ending))
        self._journal.sync()

    def _clear_containers(self) -> None:
        from ..containers import replica as container_replica

        left = container_replica.remove_containers(self._folder)
        if left is not None:
            self._service.say("Containers of this job are left, and can't be removed: %s." % left, "WARNING")
        tree.kill_descendants()

    def _message(self, ending: JobEnd) -> str:
        if not ending.blame:
            return ending.message
        from . import failure_message  # late: most jobs never need it

        end, tail, oom = self._exits[ending.blame], self._logs[ending.blame].tail(), oom_kills() > self._oom_kills
        return failure_message.explain(self._spec, self._replicas[ending.blame], end, tail, oom, ending.message)

    def _primary(self) -> dict[str, Any]:
        return next(each for each in self._spec["replicas"] if each["primary"])
