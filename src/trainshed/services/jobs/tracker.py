"""The attempt tracker: reads an attempt's log, event files and samples incrementally, and derives its progress."""

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

MAX_LOG_BYTES = 4 << 20  #: of log per update; of a larger increment only the end is read
_END_GRACE_US = 10_000_000  #: event files written this long after the end still count
_MASTER_GRACE_US = 30_000_000  #: the master's report counts unless another replica's is newer by this
_LINES_OUTDATED_AFTER_US = 60_000_000  #: log lines older than the event files by this are outdated
_MAX_FOLDERS = 8

Metric = tuple[str, bool]  #: name, and whether it is of an evaluation


@dataclass(slots=True)
class ProgressSource:
    """All progress from one source: the log lines of a replica, or the event files."""

    report: ProgressReport | None = None  #: the latest value of each field
    evaluation: ProgressReport | None = None
    pace: StepRate = field(default_factory=StepRate)
    metrics: dict[Metric, TimeSeries] = field(default_factory=dict)
    by_epoch: set[Metric] = field(default_factory=set)  #: metrics whose steps are epochs

    def add(self, report: ProgressReport) -> None:
        """Add a training report. A step without a metric counts only until one with a metric arrives."""
        before = self.report
        if before is not None and before.measured and before.step is not None and not report.measured:
            report = replace(report, step=None, total_steps=None)
        self.report = report if before is None else _merge(before, report)
        if report.step is not None:
            self.pace.add(report.time_us, report.step)
        step = self.report.step
        count = self.report.epoch or 0 if step is None else step
        self._add_point(("loss", False), report.time_us, count, report.loss)
        self._add_point(("accuracy", False), report.time_us, count, report.accuracy)
        self._add_point(("steps_per_s", False), report.time_us, count, report.global_rate)

    def add_evaluation(self, report: ProgressReport) -> None:
        self.evaluation = _merge_evaluation(self.evaluation, report)
        count = report.epoch or 0 if report.step is None else report.step
        self._add_point(("loss", True), report.time_us, count, report.loss)
        self._add_point(("accuracy", True), report.time_us, count, report.accuracy)

    def _add_point(self, metric: Metric, time_us: int, step: int, value: float | None) -> None:
        if value is not None:
            self.metrics.setdefault(metric, TimeSeries()).add(time_us, value, step=step)


def _merge(before: ProgressReport, report: ProgressReport) -> ProgressReport:
    """Merge two reports; fields of the newer one win."""
    values = {name: value for name in ProgressReport.__slots__ if (value := getattr(report, name)) is not None}
    return replace(before, **values)


def _merge_evaluation(before: ProgressReport | None, report: ProgressReport) -> ProgressReport:
    """Merge an evaluation that arrives in parts: loss in one report, accuracy in another."""
    return _merge(before, report) if before is not None and before.step == report.step else report


class ReplicaUsage:
    """CPU and memory of one replica over time."""

    def __init__(self) -> None:
        self.cpu = TimeSeries()
        self.memory = TimeSeries(peak=True)
        self.last: ResourceSample | None = None

    def add(self, sample: ResourceSample) -> None:
        self.last = sample
        self.cpu.add(sample.time_us, sample.cpu, weight=sample.span_s)
        self.memory.add(sample.time_us, sample.memory_bytes, weight=sample.span_s)


class AttemptTracker:
    """Tracks one attempt. Callers hold `lock` while they use any other member."""

    def __init__(self, log: AttemptLog, attempt: Path, gang: Sequence[ReplicaSpec], *, since_us: int) -> None:
        self.lock = threading.Lock()
        self.sources = {replica.name: ProgressSource() for replica in gang}
        self.events = ProgressSource()
        self.usage = {replica.name: ReplicaUsage() for replica in gang}
        self.complete = False  #: whether the last update read everything
        self._gang = gang
        self._log = log
        self._attempt = attempt
        self._readers = {replica.name: ProgressParser() for replica in gang}
        self._files = EventFiles(since_us=since_us)
        self._owners: dict[Metric, tuple[tuple[str, ...], str]] = {}
        self._offset = self._samples_offset = 0
        self._folders: dict[str, None] = {}  #: folders named in log lines
        self._closed = False

    def update(self, event_folders: Callable[[Iterable[str]], Sequence[EventFolder]], *, ended_us: int | None) -> None:
        """Read what is new. `places` returns the folders of event files, given the folders named in log lines."""
        if self._closed:
            return
        self._read_log()
        samples, self._samples_offset, samples_complete = samples_since(self._attempt, self._samples_offset)
        for sample in samples:
            if sample.replica in self.usage:
                self.usage[sample.replica].add(sample)
        for scalar in self._files.read_new(event_folders(self._folders)):
            if ended_us is None or scalar.time_us <= ended_us + _END_GRACE_US:
                self._add_scalar(scalar)
        self.complete = samples_complete and self._files.complete
        self._closed = self.complete and ended_us is not None

    def _read_log(self) -> None:
        size = self._log.size()
        if size - self._offset > MAX_LOG_BYTES:
            self._offset = size - MAX_LOG_BYTES  # the partial first line is skipped as damaged
        for record in self._log.forwards(self._offset):
            self._offset = record.end
            if record.replica in self._readers:
                self._add_record(record)
            if record.end >= size:
                break

    def _add_record(self, record: LogRecord) -> None:
        report, evaluation = self._readers[record.replica].read(record.time_us, record.message)
        if report is not None:
            self.sources[record.replica].add(report)
        if evaluation is not None:
            self.sources[record.replica].add_evaluation(evaluation)
        if len(self._folders) < _MAX_FOLDERS and (folder := folder_in_line(record.message)) is not None:
            self._folders[folder] = None

    def _add_scalar(self, scalar: Scalar) -> None:
        """Add a scalar, if its tag has a meaning. Of several tags with one meaning, only the first counts."""
        if (metric_meaning := meaning(scalar)) is None:
            return
        metric = (metric_meaning.name, metric_meaning.evaluation)
        if self._owners.setdefault(metric, (scalar.folder, scalar.tag)) != (scalar.folder, scalar.tag):
            return
        count = scalar.step + 1 if metric_meaning.by_epoch else scalar.step  # Keras counts epochs from 0 in event files
        report = ProgressReport(
            time_us=scalar.time_us,
            step=None if metric_meaning.by_epoch else count,
            epoch=count if metric_meaning.by_epoch else None,
            loss=scalar.value if metric_meaning.name == "loss" else None,
            accuracy=scalar.value if metric_meaning.name == "accuracy" else None,
            global_rate=scalar.value if metric_meaning.name == "rate" else None,
        )
        if metric_meaning.by_epoch:
            self.events.by_epoch.add(metric)
        if metric_meaning.evaluation:
            self.events.add_evaluation(report)
        else:
            self.events.add(report)

    def progress(self, target: TrainingTarget) -> tuple[TrainingProgress, StepRate] | None:
        """Return the training progress and its step rate. Returns None if nothing was reported."""
        lines, events = self._primary_source(), self.events
        base = lines if _lines_take_precedence(lines, events=events) else events if events.report is not None else lines
        if base.report is None:
            return None
        other = events.report if base is lines else lines.report
        report = base.report if other is None else _fill_missing(base.report, other)
        if base is lines:
            report = self._with_latest_step(report, report.total_steps or target.steps)
        evaluations = [each.evaluation for each in (*self.sources.values(), self.events) if each.evaluation]
        evaluation = max(evaluations, key=lambda each: each.time_us, default=None)
        return TrainingProgress(report=report, evaluation=evaluation, target=target, rate=base.pace.rate), base.pace

    def _with_latest_step(self, report: ProgressReport, limit: int | None) -> ProgressReport:
        """Advance the step to the highest that other replicas reported since.

        A master that evaluates trains no steps itself. Steps beyond `limit` are ignored: each worker may exceed it by
        one.
        """
        reports = (each.report for each in self.sources.values())
        steps = [
            each.step for each in reports if each and each.measured and each.step and each.time_us > report.time_us
        ]
        further = [step for step in steps if step > (report.step or 0) and (limit is None or step <= limit)]
        return replace(report, step=max(further)) if further else report

    def _primary_source(self) -> ProgressSource:
        """Return the source that represents the job: the master, unless only others report."""
        sources = [self.sources[each.name] for each in self._gang]
        newest = max((_report_order(each) for each in sources), default=(False, 0))
        recent = (each for each in sources if _report_order(each) >= (newest[0], newest[1] - _MASTER_GRACE_US))
        return next(recent, ProgressSource())

    def metrics(self) -> Mapping[Metric, tuple[ProgressSource, TimeSeries]]:
        """Return each metric from the source with the most points."""
        metrics: dict[Metric, tuple[ProgressSource, TimeSeries]] = {}
        for source in (self._primary_source(), *self.sources.values(), self.events):
            for metric, series in source.metrics.items():
                if metric not in metrics or (source is self.events and len(series) > len(metrics[metric][1])):
                    metrics[metric] = (source, series)
        return metrics

    def local_rate(self, name: str) -> float | None:
        """Return a replica's steps per second: as it reports, or as measured if all replicas step together."""
        source = self.sources[name]
        if source.report is not None and source.report.local_rate is not None:
            return source.report.local_rate
        return None if any(each.type == PS for each in self._gang) else source.pace.rate


def _report_order(source: ProgressSource) -> tuple[bool, int]:
    report = source.report
    return (report.measured, report.time_us) if report else (False, 0)


def _lines_take_precedence(lines: ProgressSource, *, events: ProgressSource) -> bool:
    """Return whether log lines take precedence over event files.

    They do if they have metrics and a step, and are not outdated.
    """
    report, other = lines.report, events.report
    if report is None or not report.measured:
        return False
    if other is None:
        return True
    silent = other.time_us - report.time_us > _LINES_OUTDATED_AFTER_US
    return not (other.step is not None and (report.step is None or silent))


def _fill_missing(report: ProgressReport, other: ProgressReport) -> ProgressReport:
    """Fill missing fields of a report from another source."""
    return replace(
        report,
        loss=other.loss if report.loss is None else report.loss,
        accuracy=other.accuracy if report.accuracy is None else report.accuracy,
        global_rate=other.global_rate if report.global_rate is None else report.global_rate,
    )
