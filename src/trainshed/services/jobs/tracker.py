"""Following one attempt: what its log, its event files and its samples tell, read on from where the last look ended."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from trainshed.attempts.event_files import EventFiles, EventFolder, Scalar, meaning
from trainshed.attempts.log_file import AttemptLog, LogRecord
from trainshed.attempts.progress_lines import ProgressParser, folder_in_line
from trainshed.attempts.samples import ResourceSample, samples_since
from trainshed.domain.jobs.gang import PS, ReplicaSpec
from trainshed.domain.jobs.progress import ProgressReport, StepRate, TrainingProgress, TrainingTarget
from trainshed.domain.time_series import TimeSeries

LOG_BYTES = 4 << 20  #: of one look; of a log that has grown by more, the last part is read
_SLACK_US = 10_000_000  #: what a trainer wrote so long after its end is still its own
_TURN_US = 30_000_000  #: the master's report is the job's, unless another one is newer by so much
_SILENT_US = 60_000_000  #: lines that are older than the event files by so much are not the news any more
_MAX_FOLDERS = 8

Metric = tuple[str, bool]  #: its name, and whether it is of an evaluation


@dataclass(slots=True)
class ProgressSource:
    """All that one source told: a replica's lines, or the event files."""

    report: ProgressReport | None = None  #: the last of each thing
    evaluation: ProgressReport | None = None
    pace: StepRate = field(default_factory=StepRate)
    metrics: dict[Metric, TimeSeries] = field(default_factory=dict)
    by_epoch: set[Metric] = field(default_factory=set)  #: of which metrics the steps are epochs

    def take(self, report: ProgressReport) -> None:
        """Follow a report of training. A bare number counts until there is one that came with a measure."""
        before = self.report
        if before is not None and before.measured and before.step is not None and not report.measured:
            report = replace(report, step=None, total_steps=None)
        self.report = report if before is None else _merged(before, report)
        if report.step is not None:
            self.pace.add(report.time_us, report.step)
        step = self.report.step
        count = self.report.epoch or 0 if step is None else step
        self._note(("loss", False), report.time_us, count, report.loss)
        self._note(("accuracy", False), report.time_us, count, report.accuracy)
        self._note(("steps_per_s", False), report.time_us, count, report.global_rate)

    def take_evaluation(self, report: ProgressReport) -> None:
        self.evaluation = _measured_at(self.evaluation, report)
        count = report.epoch or 0 if report.step is None else report.step
        self._note(("loss", True), report.time_us, count, report.loss)
        self._note(("accuracy", True), report.time_us, count, report.accuracy)

    def _note(self, metric: Metric, time_us: int, step: int, value: float | None) -> None:
        if value is not None:
            self.metrics.setdefault(metric, TimeSeries()).add(time_us, value, step=step)


def _merged(before: ProgressReport, report: ProgressReport) -> ProgressReport:
    """The newer of each thing that either of them tells."""
    told = {name: value for name in ProgressReport.__slots__ if (value := getattr(report, name)) is not None}
    return replace(before, **told)


def _measured_at(before: ProgressReport | None, report: ProgressReport) -> ProgressReport:
    """An evaluation may come in parts, its loss in one and its accuracy in another."""
    return _merged(before, report) if before is not None and before.step == report.step else report


class ReplicaUsage:
    """CPU and memory of one replica."""

    def __init__(self) -> None:
        self.cpu = TimeSeries()
        self.memory = TimeSeries(peak=True)
        self.last: ResourceSample | None = None

    def add(self, sample: ResourceSample) -> None:
        self.last = sample
        self.cpu.add(sample.time_us, sample.cpu, weight=sample.span_s)
        self.memory.add(sample.time_us, sample.memory_bytes, weight=sample.span_s)


class AttemptTracker:
    """One attempt. Hold `lock` while you use anything else of it."""

    def __init__(self, log: AttemptLog, attempt: Path, gang: Sequence[ReplicaSpec], *, since_us: int) -> None:
        self.lock = threading.Lock()
        self.tellers = {replica.name: ProgressSource() for replica in gang}
        self.events = ProgressSource()
        self.usage = {replica.name: ReplicaUsage() for replica in gang}
        self.complete = False  #: whether the last look came to the end of everything
        self._gang = gang
        self._log = log
        self._attempt = attempt
        self._readers = {replica.name: ProgressParser() for replica in gang}
        self._files = EventFiles(since_us=since_us)
        self._owners: dict[Metric, tuple[tuple[str, ...], str]] = {}
        self._offset = self._sampled = 0
        self._folders: dict[str, None] = {}  #: that lines told of
        self._closed = False

    def look(self, places: Callable[[Iterable[str]], Sequence[EventFolder]], *, ended_us: int | None) -> None:
        """Read what is new. `places` says where event files may be, given the folders that lines told of."""
        if self._closed:
            return
        self._read_log()
        samples, self._sampled, sampled = samples_since(self._attempt, self._sampled)
        for sample in samples:
            if sample.replica in self.usage:
                self.usage[sample.replica].add(sample)
        for scalar in self._files.look(places(self._folders)):
            if ended_us is None or scalar.time_us <= ended_us + _SLACK_US:
                self._take(scalar)
        self.complete = sampled and self._files.complete
        self._closed = self.complete and ended_us is not None

    def _read_log(self) -> None:
        size = self._log.size()
        if size - self._offset > LOG_BYTES:
            self._offset = size - LOG_BYTES  # the rest of the line that is cut is taken for a damaged one
        for line in self._log.forwards(self._offset):
            self._offset = line.end
            if line.replica in self._readers:
                self._follow(line)
            if line.end >= size:
                break

    def _follow(self, line: LogRecord) -> None:
        report, evaluation = self._readers[line.replica].read(line.time_us, line.message)
        if report is not None:
            self.tellers[line.replica].take(report)
        if evaluation is not None:
            self.tellers[line.replica].take_evaluation(evaluation)
        if len(self._folders) < _MAX_FOLDERS and (folder := folder_in_line(line.message)) is not None:
            self._folders[folder] = None

    def _take(self, scalar: Scalar) -> None:
        """Follow a scalar, if it means something. Of several tags with one meaning the first is followed."""
        if (found := meaning(scalar)) is None:
            return
        metric = (found.name, found.evaluation)
        if self._owners.setdefault(metric, (scalar.folder, scalar.tag)) != (scalar.folder, scalar.tag):
            return
        count = scalar.step + 1 if found.by_epoch else scalar.step  # Keras counts epochs from 0 in its event files
        report = ProgressReport(
            time_us=scalar.time_us,
            step=None if found.by_epoch else count,
            epoch=count if found.by_epoch else None,
            loss=scalar.value if found.name == "loss" else None,
            accuracy=scalar.value if found.name == "accuracy" else None,
            global_rate=scalar.value if found.name == "rate" else None,
        )
        if found.by_epoch:
            self.events.by_epoch.add(metric)
        if found.evaluation:
            self.events.take_evaluation(report)
        else:
            self.events.take(report)

    def standing(self, target: TrainingTarget) -> tuple[TrainingProgress, StepRate] | None:
        """Where the training is, and the pace that this is from; None if nothing told."""
        lines, events = self._spokesman(), self.events
        base = lines if _speaks(lines, before=events) else events if events.report is not None else lines
        if base.report is None:
            return None
        other = events.report if base is lines else lines.report
        report = base.report if other is None else _filled(base.report, other)
        if base is lines:
            report = self._caught_up(report, report.total_steps or target.steps)
        evaluations = [each.evaluation for each in (*self.tellers.values(), self.events) if each.evaluation]
        evaluation = max(evaluations, key=lambda each: each.time_us, default=None)
        return TrainingProgress(report=report, evaluation=evaluation, target=target, rate=base.pace.rate), base.pace

    def _caught_up(self, report: ProgressReport, limit: int | None) -> ProgressReport:
        """The report with the furthest step that others told of since: a master that evaluates makes none itself.

        Workers may go past the limit by a step each; that is not the job's.
        """
        told = (each.report for each in self.tellers.values())
        since = [each.step for each in told if each and each.measured and each.step and each.time_us > report.time_us]
        further = [step for step in since if step > (report.step or 0) and (limit is None or step <= limit)]
        return replace(report, step=max(further)) if further else report

    def _spokesman(self) -> ProgressSource:
        """The replica whose lines are taken for the job's: the master, unless only others tell."""
        telling = [self.tellers[each.name] for each in self._gang]
        newest = max((_told_us(each) for each in telling), default=(False, 0))
        recent = (each for each in telling if _told_us(each) >= (newest[0], newest[1] - _TURN_US))
        return next(recent, ProgressSource())

    def metrics(self) -> Mapping[Metric, tuple[ProgressSource, TimeSeries]]:
        """Each metric from the source that has most of it."""
        found: dict[Metric, tuple[ProgressSource, TimeSeries]] = {}
        for teller in (self._spokesman(), *self.tellers.values(), self.events):
            for metric, series in teller.metrics.items():
                if metric not in found or (teller is self.events and len(series) > len(found[metric][1])):
                    found[metric] = (teller, series)
        return found

    def local_rate(self, name: str) -> float | None:
        """Steps a second of one replica: as it told, or, where all do each step together, as it was measured."""
        teller = self.tellers[name]
        if teller.report is not None and teller.report.local_rate is not None:
            return teller.report.local_rate
        return None if any(each.type == PS for each in self._gang) else teller.pace.rate


def _told_us(teller: ProgressSource) -> tuple[bool, int]:
    report = teller.report
    return (report.measured, report.time_us) if report else (False, 0)


def _speaks(lines: ProgressSource, *, before: ProgressSource) -> bool:
    """Whether lines are to be believed before event files: they measure, know the step, and have not fallen silent."""
    told, other = lines.report, before.report
    if told is None or not told.measured:
        return False
    if other is None:
        return True
    silent = other.time_us - told.time_us > _SILENT_US
    return not (other.step is not None and (told.step is None or silent))


def _filled(report: ProgressReport, other: ProgressReport) -> ProgressReport:
    """What the one source did not tell, from the other."""
    return replace(
        report,
        loss=other.loss if report.loss is None else report.loss,
        accuracy=other.accuracy if report.accuracy is None else report.accuracy,
        global_rate=other.global_rate if report.global_rate is None else report.global_rate,
    )
