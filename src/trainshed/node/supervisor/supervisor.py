"""The supervisor of one attempt: a single-threaded loop that starts, logs, restarts and stops its replicas.

`restart_policy` decides what follows from an exit; this module does it. The loop ends when every process
that the job ever started is dead. Only then does it write the job's end to the journal.
"""

from __future__ import annotations

import functools
import os
import selectors
import signal
import time

from .. import failure
from .. import journal as events
from ..files import remove_folder
from ..journal import Journal
from ..process import environment, mark, spawn, tree
from ..process.exit_status import STARTED, ExitStatus
from ..process.metric_reports import ReportCopies
from ..process.sampler import SAMPLE_INTERVAL_S, SampleWriter
from . import restart_policy, step_tracker
from .child import Child
from .log_writer import CLEANUP, LogWriter, ReplicaLog
from .restart_policy import CANCELLED, CAUSE_WAIT_S, END, FAILED, GO_ON, HOLD, RESTART_GANG, JobEnd
from .start_order import StartOrder
from .step_tracker import RestartCost, StepTracker

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Optional

    from ..sandbox.cell import Cell
    from .cells import Cells
    from .hang_watch import HangWatch

REAPER_LOST = signal.SIGUSR1  #: sent by the kernel when the reaper is gone
_INSTALLER = "installer"
_SELECT_MAX_S = 3600.0
_SWEEP_INTERVAL_S = 0.02  #: between two checks for orphans of a replica
_PIPE_MAX_READS = 2  #: enough to empty a pipe, unless its writer is faster
_COMMAND_MAX_BYTES = 256
_NEVER = float("inf")


class Supervisor:
    """Runs one attempt to its end. `run` is called once."""

    def __init__(self, folder: str, spec: dict[str, Any], journal: Journal, cells: Cells) -> None:
        self._folder = folder
        self._spec = spec
        self._journal = journal
        self._cells = cells
        self._writer = LogWriter(os.path.join(folder, "log.jsonl"), self._cells.mask)
        self._service = ReplicaLog("service", self._writer, 0)
        self._steps = StepTracker(self._on_resumed)
        self._replicas: dict[str, dict[str, Any]] = {each["name"]: each for each in spec["replicas"]}
        self._logs = {
            name: ReplicaLog(name, self._writer, spec["log_limit_bytes"], self._steps.watch(name))
            for name in self._replicas
        }
        self._samples = os.path.join(folder, "samples.jsonl")
        self._sampler = SampleWriter(self._samples, inside=bool(spec.get("containers")))
        self._reports = ReportCopies(folder, spec)
        self._hangs: Optional[HangWatch] = None  # from the first sample on
        self._hung: set[str] = set()  # replicas that were killed because they hung, and have not restarted yet
        self._selector = selectors.DefaultSelector()
        self._children: dict[int, Child] = {}
        self._finished: list[Child] = []  # exited, but a descendant may still hold their pipes
        self._exits: dict[str, ExitStatus] = {}
        self._order = StartOrder()
        self._history = restart_policy.RestartHistory()
        self._due: dict[str, tuple[float, RestartCost]] = {}  # replicas to restart, and when
        self._undecided: list[str] = []  # replicas that may have failed over a loss not observed yet
        self._gang_due: Optional[RestartCost] = None  # the gang is being stopped for this restart
        self._job_end: Optional[JobEnd] = None
        self._kill_at = self._cancel_at = self._sample_at = self._decide_at = self._gang_at = _NEVER
        self._control, self._commands = -1, b""
        self._running = False

    def listen(self, control: int, signals: int) -> None:
        """Read commands from the FIFO `control` and signal numbers from `signals`."""
        self._control = control
        self._watch(control, self._on_control)
        self._watch(signals, lambda: self._on_signals(signals))

    def run(self) -> None:
        """Run the attempt. Blocks until all its processes are dead and the end is in the journal."""
        self._service.say("Waiting for training program to start.")
        self._journal.append(events.PREPARING)
        self._prepare()
        while self._job_end is None or (self._children and time.monotonic() < self._kill_at):
            self._run_once()
        self._finish()

    # -- starting

    def _prepare(self) -> None:
        if not self._spec.get("cluster"):  # a replica proxy logs it when the addresses are known
            for each in self._spec["replicas"]:
                for line in spawn.log_header(self._spec, each):
                    self._logs[each["name"]].say(line)
        log = self._logs[next(each["name"] for each in self._spec["replicas"] if each["primary"])]
        site = self._spec["site"]
        os.makedirs(os.path.join(self._folder, "work"), mode=0o700, exist_ok=True)
        for note in self._cells.notes:
            self._service.say(note)
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
        self._start(_INSTALLER, argv, environment.inherited_environment(), log)

    def _start_replicas(self) -> None:
        if not self._spec.get("cluster") or self._spec.get("hang_timeout_s"):
            self._sample_at = time.monotonic() + SAMPLE_INTERVAL_S
        if self._start_all() and not self._spec.get("cluster"):  # else a replica proxy reports the first one
            self._mark_running()

    def _mark_running(self) -> None:
        if self._job_end is None and not self._running:
            self._running = True
            self._journal.append(events.RUNNING)
            self._cancel_at = time.monotonic() + self._spec["max_running_s"]

    def _start_all(self) -> bool:
        """Start the gang, except replicas that `StartOrder` delays. Returns False if the job ends."""
        replicas = self._spec["replicas"]
        if not self._spec.get("cluster"):  # on a cluster, the nodes wait for each other
            replicas = self._order.begin(replicas, self._spec["site"], time.monotonic())
        return all(self._start_replica(each) for each in replicas)

    def _start_replica(self, replica: dict[str, Any]) -> bool:
        """Start one replica. Returns False if it can't be started; then the job ends."""
        log = self._logs[replica["name"]]
        log.say("Running command: " + spawn.display_command(self._spec, replica))
        if self._spec.get("cluster"):
            incarnation = "%d.%d" % (self._history.gang_restarts, self._history.restarts.get(replica["name"], 0))
            return self._start_proxy(replica["name"], incarnation, log)
        env = spawn.environment(self._spec, replica, self._spec["site"] if self._spec["packages"] else "")
        env.update({**self._cells.variables, tree.REPLICA_VARIABLE: replica["name"], mark.VARIABLE: self._folder})
        argv = spawn.command(self._spec, replica, self._folder)
        return self._start(replica["name"], argv, env, log, cell=self._cells.make(replica["name"], env, log))

    def _start_proxy(self, name: str, incarnation: str, log: ReplicaLog) -> bool:
        from ..remote import replica_proxy  # late: local replicas do not need it

        target = functools.partial(replica_proxy.main, self._folder, name, incarnation)
        return self._start(name, ["replica-proxy"], environment.inherited_environment(), log, target)

    def _start(
        self,
        name: str,
        argv: list[str],
        env: dict[str, str],
        log: ReplicaLog,
        target: Optional[Callable[[], int]] = None,
        cell: Optional[Cell] = None,
    ) -> bool:
        """Start a child and watch its output. Returns False if it can't be started; then the job ends."""
        try:
            process = spawn.spawn(argv, env, os.path.join(self._folder, "work"), target, cell)
        except OSError as exc:
            reason = "%s can't be started: %s." % (argv[0], exc.strerror)
            self._end(restart_policy.failed(0.0, failure.START_FAILED, reason))
            return False
        if process.note:
            log.say(process.note)
        self._children[process.pid] = Child(name, log, process, self._selector)
        if name != _INSTALLER:
            self._journal.append(events.REPLICA_STARTED, name=name, pid=process.first)
        return True

    # -- the loop

    def _run_once(self) -> None:
        timers = (self._kill_at, self._cancel_at, self._sample_at, self._decide_at, self._gang_at, self._cells.look_at)
        wake_at = min([*timers, self._order.check_at, *(due_s for due_s, _ in self._due.values())])
        for key, _ in self._selector.select(min(max(0.0, wake_at - time.monotonic()), _SELECT_MAX_S)):
            if self._selector.get_map().get(key.fd) is key:  # else an earlier callback closed it
                key.data()
        now = time.monotonic()
        if now >= self._cancel_at:
            self._end(restart_policy.over_time(self._spec))
        if now >= self._decide_at:
            self._end(JobEnd(FAILED, self._spec["grace_s"], blame=self._undecided[0]))
        if self._gang_due is not None and (not self._children or now >= self._gang_at):
            self._start_gang(self._gang_due)
        for each in self._order.due(now):
            self._start_replica(each)
        for name in [name for name, (due_s, _) in self._due.items() if now >= due_s]:
            self._restart_replica(name)
        self._cells.look(self._children.values(), now)
        if now >= self._sample_at:
            self._sample_at = now + SAMPLE_INTERVAL_S
            self._sample(now)
            self._journal.flush()

    def _sample(self, now: float) -> None:
        """Sample the replicas and look for hangs. Nodes sample remote ones, and replica proxies write the samples."""
        pids = {child.name: child.first for child in self._children.values() if child.name in self._replicas}
        if not self._spec.get("cluster"):
            self._sampler.sample(pids, now)
            self._reports.copy()
        if not self._spec.get("hang_timeout_s"):
            return
        self._hangs = self._hangs or self._watch_hangs()
        if self._job_end is None and self._gang_due is None:
            children = {
                child.name: (child.first, child.output_s, self._steps.last({child.name}))
                for child in self._children.values()
                if child.name in pids
            }
            self._hangs.check(children, now)

    def _watch_hangs(self) -> HangWatch:
        from .hang_watch import HangWatch, RemoteReadings  # late: short jobs end before

        readings = RemoteReadings(self._samples).read if self._spec.get("cluster") else self._sampler.readings
        return HangWatch(self._folder, self._spec, self._journal, self._service, self._logs, self._kill_hung, readings)

    def _watch(self, fd: int, callback: Callable[[], object]) -> None:
        self._selector.register(fd, selectors.EVENT_READ, callback)

    def _on_control(self) -> None:
        try:
            data = os.read(self._control, 4096)
        except BlockingIOError:
            return
        lines = (self._commands + data).split(b"\n")
        self._commands = lines.pop()[-_COMMAND_MAX_BYTES:]
        for line in lines:
            words = line.decode("ascii", "replace").split()
            if words == ["cancel"]:
                self._end(JobEnd(CANCELLED, self._spec["grace_s"], {"cause": failure.CANCELLED}))
            elif len(words) == 3 and words[0] == "kill" and words[2].isdigit():
                self._kill(words[1], int(words[2]))
            elif words == [STARTED] and self._spec.get("cluster"):
                self._mark_running()

    def _kill(self, name: str, number: int) -> None:
        """Send a signal to a replica, for fault injection."""
        for child in self._children.values():
            if child.name == name and 0 < number < signal.NSIG:
                self._journal.append(events.SIGNALLED, name=name, signal=number)
                self._service.say("%s is sent signal %d, as was asked for." % (name, number), "WARNING")
                tree.send_signal(child.first, number)

    def _kill_hung(self, name: str) -> None:
        """Kill a replica that hangs. Its exit is a loss, and restarts what the rules of the gang say."""
        self._hung.add(name)
        for child in self._children.values():
            if child.name == name:
                tree.send_signal(child.first, signal.SIGKILL)

    def _on_signals(self, fd: int) -> None:
        numbers = os.read(fd, 4096)
        if REAPER_LOST in numbers:
            self._end(restart_policy.failed(0.0, failure.REAPER_LOST))
        elif signal.SIGTERM in numbers:
            self._end(restart_policy.failed(self._spec["grace_s"], failure.SUPERVISOR_STOPPED))
        if signal.SIGCHLD in numbers:
            self._on_control()  # commands that a replica proxy wrote before it exited
            tree.reap(self._on_exit)

    def _on_exit(self, pid: int, status: int) -> None:
        child = self._children.pop(pid, None)
        if child is None:
            return  # an orphan that the trainer left behind
        child.drain()
        self._finished.append(child)
        exit_status = child.exit_status(status)
        if child.name == _INSTALLER:
            self._on_installed(exit_status)
            return
        self._cells.exited(child.name, exit_status, child.log.tail())
        self._exits[child.name] = exit_status
        self._reports.copy()
        if self._hangs is not None:
            self._hangs.exited(child.name)
        self._journal.append(events.REPLICA_EXITED, name=child.name, code=exit_status.code, signal=exit_status.signal)
        child.log.say("Module completed; cleaning up.", kind=CLEANUP)
        child.log.say("Clean up finished.", kind=CLEANUP)
        if exit_status.ok:
            child.log.say("Task completed successfully.")
        self._decide(child.name)

    # -- restarts

    def _decide(self, name: str) -> None:
        """Act on the exit of a replica, unless the supervisor itself stopped it."""
        if self._job_end is not None or self._gang_due is not None:
            return
        status, now = self._exits[name], time.monotonic()
        if status.lost:
            self._history = self._history.losing(name, now)
        decision = restart_policy.decide(
            self._spec["replicas"], self._history, name, status, self._is_peer_loss(name, status), now
        )
        self._history = self._history.after(name, decision)
        if decision.word == END:
            self._end(JobEnd(decision.outcome, self._spec["grace_s"], decision.known, "" if status.ok else name))
        elif decision.word == HOLD:
            self._undecided.append(name)
            self._decide_at = min(self._decide_at, now + CAUSE_WAIT_S)
        elif decision.word != GO_ON:
            delay_s = decision.delay_s * self._spec.get("backoff_factor", 1.0)
            self._plan_restart(name, status, decision.word == RESTART_GANG, now + delay_s)
        if status.lost:
            undecided, self._undecided, self._decide_at = self._undecided, [], _NEVER
            for each in undecided:
                self._decide(each)

    def _is_peer_loss(self, name: str, status: ExitStatus) -> bool:
        if status.ok or status.lost or status.limited or len(self._replicas) == 1:
            return False
        from . import replica_failure  # late: most jobs never need it

        return replica_failure.is_peer_loss(self._logs[name].tail())

    def _plan_restart(self, name: str, status: ExitStatus, gang: bool, due_s: float) -> None:
        for child in self._children.values():
            child.drain(_PIPE_MAX_READS)  # output before this point is from before the restart
        restart = RestartCost(name, status, gang, "" if status.lost else self._history.lost, hung=name in self._hung)
        self._hung.discard(name)
        restart.before = self._steps.last(step_tracker.reporters(self._spec["replicas"], restart))
        if gang:
            self._gang_due, self._gang_at = restart, time.monotonic() + self._spec["grace_s"]
            self._due, self._undecided, self._decide_at = {}, [], _NEVER
            self._order.clear()
            self._terminate()
        else:
            self._due[name] = (due_s, restart)
            self._sweep(name)

    def _sweep(self, name: str) -> bool:
        """Kill the orphans of a replica. Returns True if none is left."""
        return tree.kill_orphans(name, {pid: child.name for pid, child in self._children.items()})

    def _restart_replica(self, name: str) -> None:
        _, restart = self._due.pop(name)
        if self._sweep(name):
            self._record(restart)
            self._start_replica(self._replicas[name])
        else:
            self._due[name] = (time.monotonic() + _SWEEP_INTERVAL_S, restart)

    def _start_gang(self, restart: RestartCost) -> None:
        tree.kill_descendants(self._on_exit)
        self._gang_due, self._gang_at, self._hung = None, _NEVER, set()
        self._record(restart)
        self._start_all()

    def _record(self, restart: RestartCost) -> None:
        """Write log and journal entries of a restart, before the new process starts."""
        for child in self._finished:
            child.drain()
        self._finished = [child for child in self._finished if child.pipes]
        for name in self._replicas if restart.gang else (restart.name,):
            self._logs[name].reset()
        self._journal.append(events.GANG_RESTARTED if restart.gang else events.REPLICA_RESTARTED, **restart.facts())
        self._service.say("%s%s." % (restart.cause[0].upper(), restart.cause[1:]), "WARNING")
        self._steps.restarted(restart, step_tracker.reporters(self._spec["replicas"], restart))

    def _on_resumed(self, restart: RestartCost) -> None:
        self._journal.append(events.RESUMED, name=restart.name, step=restart.after)
        self._service.say("%s %s." % ("The gang" if restart.gang else restart.name, restart.cost))

    # -- ending

    def _on_installed(self, status: ExitStatus) -> None:
        remove_folder(os.path.join(self._folder, "packages"))
        if self._job_end is not None:
            return
        if status.ok:
            self._start_replicas()
            return
        known = failure.read_failure(self._folder, failure.INSTALLATION) or {}
        exited = {"cause": failure.INSTALL_FAILED, "exit_code": status.code, "signal": status.signal}
        self._end(JobEnd(FAILED, 0.0, dict(exited, **known)))

    def _end(self, job_end: JobEnd) -> None:
        """Start to end the job. The first reason wins."""
        if self._job_end is not None and self._job_end.grace_s <= job_end.grace_s:
            return
        if self._job_end is None:
            self._job_end = job_end
            self._journal.append(events.STOPPING, outcome=job_end.outcome)
        self._cancel_at = self._decide_at = self._gang_at = _NEVER
        self._due, self._undecided, self._gang_due = {}, [], None
        self._order.clear()
        self._kill_at = time.monotonic() + job_end.grace_s
        self._terminate()

    def _terminate(self) -> None:
        for child in self._children.values():
            tree.send_signal(child.first, signal.SIGTERM)
            tree.send_signal(child.first, signal.SIGCONT)  # a stopped process can't receive SIGTERM

    def _finish(self) -> None:
        tree.kill_descendants(self._on_exit)
        if self._spec.get("containers"):
            self._remove_containers()
        remove_folder(os.path.join(self._folder, "packages"))
        self._cells.remove()
        for child in self._finished:
            child.drain()
        for log in self._logs.values():
            log.close()
        assert self._job_end is not None
        self._service.say("Tearing down training program.")
        self._service.say("Finished tearing down training program.")
        while not self._writer.flush():
            time.sleep(0.2)  # wait for space on the disk
        self._journal.append(events.ENDED, outcome=self._job_end.outcome, failure=self._failure(self._job_end))
        self._journal.sync()

    def _remove_containers(self) -> None:
        from ..containers import replica as container_replica

        reason = container_replica.remove_containers(self._folder)
        if reason is not None:
            self._service.say("Containers of this job are left, and can't be removed: %s." % reason, "WARNING")
        tree.kill_descendants()

    def _failure(self, job_end: JobEnd) -> Optional[dict[str, Any]]:
        name = job_end.blame
        if not name:
            return job_end.failure
        from . import replica_failure  # late: most jobs never need it

        status, peak = self._exits[name], self._sampler.peaks.get(name)
        seen: dict[str, Any] = {"memory_peak_bytes": peak}
        if self._spec.get("cluster"):
            seen = failure.read_failure(self._folder, name) or {}
        seen.update(self._cells.reason(name, status))
        if name in self._hung:
            seen["cause"] = failure.REPLICA_HUNG
        seen.update(job_end.failure or {})
        return replica_failure.describe(self._spec, self._replicas[name], status, self._logs[name].tail(), seen)
