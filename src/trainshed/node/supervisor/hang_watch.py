"""Watches the replicas of one attempt for hangs, and reports them with their stacks. `hang_policy` decides."""

from __future__ import annotations

import json
import os

from .. import journal as events
from ..process.sampler import ProcessReading
from . import hang_policy
from .hang_policy import Activity, Hang, Observation
from .hang_report import HangReport, duration
from .stacks import StackDump, kernel_threads, python_process

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Optional

    from ..journal import Journal
    from .log_writer import ReplicaLog

_DUMP_TIMEOUT_S = 10.0
_MAX_STACKS = 100  #: in the journal of an attempt, which is read at once
_MAX_REPORTS = 1000
_TAIL_MAX_BYTES = 1 << 20


class HangWatch:
    """Finds hangs, and writes their begin and end to journal and log. `restart` is called with a replica to restart."""

    def __init__(
        self,
        folder: str,
        spec: dict[str, Any],
        journal: Journal,
        service: ReplicaLog,
        logs: dict[str, ReplicaLog],
        restart: Callable[[str], None],
        readings: Callable[[], dict[str, ProcessReading]],
    ) -> None:
        self._folder = folder
        self._replicas = spec["replicas"]
        self._timeout_s: float = spec["hang_timeout_s"]
        self._restarts = bool(spec.get("hang_restart"))
        self._tool = spec.get("py_spy") or ""
        self._journal = journal
        self._service = service
        self._logs = logs
        self._restart = restart
        self._read = readings
        self._activities: dict[str, Activity] = {}
        self._readings: dict[str, ProcessReading] = {}
        self._reported: dict[str, Hang] = {}
        self._dumps: dict[str, tuple[Hang, StackDump]] = {}  # of hangs that are not reported yet
        self._reports = 0
        self._stacks = 0

    def check(self, children: dict[str, tuple[int, float, Optional[int]]], now_s: float) -> None:
        """Called about once a second. `children` has pid, time of the last output and last step of each replica that
        runs. A replica without a reading is not observed."""
        readings = self._read()
        self._readings = {**self._readings, **readings}
        for name, (pid, output_s, step) in children.items():
            reading = readings.get(name)
            if reading is not None:
                observation = Observation(pid, reading.cpu_s, reading.stopped, output_s, step)
                before = self._activities.get(name)
                self._activities[name] = hang_policy.observed(before, observation, now_s, self._timeout_s)
        # Of a replica on a node that is unreachable, nothing is known.
        known = {
            name: activity
            for name, activity in self._activities.items()
            if now_s - activity.seen_s <= hang_policy.GAP_MAX_S
        }
        hangs = hang_policy.find_hangs(self._replicas, known, self._timeout_s, now_s)
        for name in [name for name in self._reported if name in known and name not in hangs]:
            self._end(name, now_s - self._reported.pop(name).since_s)
        self._begin(hangs, now_s)

    def exited(self, name: str) -> None:
        """Forget a replica. The journal has its exit."""
        for values in (self._activities, self._readings, self._reported, self._dumps):
            values.pop(name, None)

    def _begin(self, hangs: dict[str, Hang], now_s: float) -> None:
        """Report hangs that began or got worse since the last call, when their stacks are known."""
        for name, hang in hangs.items():
            before = self._dumps[name][0] if name in self._dumps else self._reported.get(name)
            if before is None or before.kind != hang.kind or (before.working and not hang.working):
                self._dumps[name] = (hang, self._dump(name, now_s))
        self._dumps = {name: (hang, dump) for name, (hang, dump) in self._dumps.items() if name in hangs}
        pending = [name for name, (_, dump) in self._dumps.items() if not dump.poll(now_s)]
        if self._dumps and not pending:
            dumps, self._dumps = self._dumps, {}
            self._report(hangs, {name: dump for name, (_, dump) in dumps.items()}, now_s)

    def _dump(self, name: str, now_s: float) -> StackDump:
        pid = python_process(self._readings[name].pids) if name in self._readings else None
        tool = self._tool if pid is not None and self._stacks < _MAX_STACKS else ""
        dump = StackDump(tool, pid or 0, self._folder, now_s + _DUMP_TIMEOUT_S)
        if pid is None:
            dump.error = "it runs on a node of the cluster"
        elif self._stacks >= _MAX_STACKS:
            dump.error = "this attempt has reported %d stacks already" % _MAX_STACKS
        return dump

    def _report(self, hangs: dict[str, Hang], dumps: dict[str, StackDump], now_s: float) -> None:
        stacks = {name: dump.stack for name, dump in dumps.items()}
        suspect, evidence = hang_policy.find_suspect(self._replicas, hangs, self._activities, stacks)
        restart = self._to_restart(hangs, suspect)
        for name, dump in dumps.items():
            hang, reading = hangs[name], self._readings.get(name)
            self._reported[name] = hang
            self._stacks += bool(dump.stack)
            pid = python_process(reading.pids) if reading is not None else None
            facts = {
                "name": name,
                "kind": hang.kind,
                "seconds": round(now_s - hang.since_s, 1),
                "pid": pid or 0,
                "state": reading.state if reading is not None else "",
                "step": self._activities[name].step,
                "working": list(hang.working),
                "suspect": suspect,
                "evidence": evidence,
                "restart": name == restart,
                "stack": dump.stack,
                "threads": kernel_threads(pid) if pid and not dump.stack else [],
                "stack_error": dump.error,
            }
            self._write(HangReport(facts), facts)
        if restart:
            self._restart(restart)

    def _to_restart(self, hangs: dict[str, Hang], suspect: str) -> str:
        """The replica whose restart may end the hang. The rules of the gang tell what else restarts. Empty: none."""
        if not self._restarts:
            return ""
        names = [name for name, hang in hangs.items() if hang_policy.may_restart(self._replicas, hang)]
        order = sorted(names, key=lambda name: (name != suspect, hangs[name].kind != hang_policy.STOPPED))
        return order[0] if order else ""

    def _write(self, report: HangReport, facts: dict[str, Any]) -> None:
        self._reports += 1
        if self._reports > _MAX_REPORTS:
            return
        self._journal.append(events.REPLICA_HUNG, **facts)
        self._service.say(report.sentence, "WARNING")
        for line in report.stack_lines:
            self._logs[report.name].say(line, "WARNING")

    def _end(self, name: str, seconds: float) -> None:
        if self._reports <= _MAX_REPORTS:
            self._journal.append(events.HANG_ENDED, name=name, seconds=round(seconds, 1))
            self._service.say("%s does not hang any more, after %s." % (name, duration(seconds)))


class RemoteReadings:
    """Readings of remote replicas: their agents sample them, and replica proxies write that to `samples.jsonl`."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._offset = 0
        self._cpu_s: dict[str, float] = {}

    def read(self) -> dict[str, ProcessReading]:
        """The readings of those replicas with new samples. Lines that are no samples are skipped."""
        try:
            with open(self._path, "rb") as file:
                size = os.fstat(file.fileno()).st_size
                self._offset = max(self._offset, size - _TAIL_MAX_BYTES)
                file.seek(self._offset)
                lines, end, _ = file.read(_TAIL_MAX_BYTES).rpartition(b"\n")
        except FileNotFoundError:
            return {}
        self._offset += len(lines) + len(end)
        readings = {}
        for line in lines.split(b"\n"):
            try:
                sample = json.loads(line.decode())
                name = str(sample["r"])
                self._cpu_s[name] = self._cpu_s.get(name, 0.0) + float(sample["cpu"]) * float(sample["span"])
                readings[name] = ProcessReading(self._cpu_s[name], str(sample.get("state", "")))
            except (ValueError, LookupError, TypeError):
                continue
        return readings
