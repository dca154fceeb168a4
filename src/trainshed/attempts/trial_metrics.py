"""Reads the values of a metric that one attempt at a trial reports: in event files, and with hypertune.

Trainers write these files, and may write anything. The limits of `event_files` hold.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from trainshed.attempts.event_files import EventFiles, EventFolder, Scalar
from trainshed.attempts.event_records import MAX_TAG
from trainshed.attempts.metric_reports import BrokenLine, Report, ReportCopy, last_reports
from trainshed.domain.tuning.trial import MAX_TAGS, TrialMeasurement, TrialOutcome, thinned

HYPERTUNE = "hypertune"  #: the source of values that were reported with it
_HYPERTUNE_KEYS = frozenset({"checkpoint_path", "global_step", "timestamp", "trial"})
_MAX_VALUES = 20_000  #: of one source; beyond it every second one is dropped
_EVALUATION = re.compile(r"(?:eval|valid|test)")


@dataclass(slots=True)
class _Source:
    """The values of the metric in one folder, or of one file."""

    values: dict[tuple[int, int], float] = field(default_factory=dict)  #: by time and step

    def add(self, time_us: int, step: int, value: float) -> None:
        self.values[time_us, step] = value
        if len(self.values) > _MAX_VALUES:
            kept = sorted(self.values)[::-2]
            self.values = {key: self.values[key] for key in reversed(kept)}


class TrialMetrics:
    """The metric of one attempt at a trial. Not thread-safe."""

    def __init__(self, tag: str, *, since_us: int) -> None:
        self._tag = tag
        self._files = EventFiles(since_us=since_us)
        self._sources: dict[tuple[str, ...], _Source] = {}  # by folder
        self._reports = _Source()
        self._copy = ReportCopy()
        self._problem = ""  # of reports with hypertune
        self._tags: dict[str, None] = {}

    @property
    def complete(self) -> bool:
        """Whether the last `update` read all event files to their ends."""
        return self._files.complete

    def update(self, folders: Iterable[EventFolder], attempt: EventFolder, report_files: Iterable[EventFolder]) -> None:
        """Read what is new. `attempt` has the copy of all reports, `report_files` are folders of hypertune's files."""
        for scalar in self._files.read_new(folders):
            self._add_scalar(scalar)
        for report in self._copy.new_reports(attempt):
            self._add_report(report)
        for line in last_reports(report_files):
            if isinstance(line, BrokenLine):
                self._problem = f"A line that hypertune wrote is cut off or no JSON object: {str(line)!r}."
            else:
                self._add_report(line)

    def outcome(self) -> TrialOutcome:
        """What the trial has reported so far."""
        name, source = self._preferred()
        ordered = [(time_us, step, value) for (time_us, step), value in sorted(source.values.items())]
        finite = [TrialMeasurement(*each) for each in ordered if math.isfinite(each[2])]
        return TrialOutcome(
            measurements=thinned(finite),
            source=name,
            diverged=bool(ordered) and not math.isfinite(ordered[-1][2]),
            tags=() if ordered else tuple(self._tags)[:MAX_TAGS],
            problem="" if ordered else self._problem or next(self._files.problems(), ""),
        )

    def _preferred(self) -> tuple[str, _Source]:
        """The source that counts: hypertune, else a folder of an evaluation, else the one with most values."""
        if self._reports.values:
            return HYPERTUNE, self._reports
        if not self._sources:
            return "", _Source()
        folder, source = max(self._sources.items(), key=lambda item: (_is_evaluation(item[0]), len(item[1].values)))
        return "/".join(folder) or ".", source

    def _add_scalar(self, scalar: Scalar) -> None:
        if scalar.tag == self._tag:
            self._sources.setdefault(scalar.folder, _Source()).add(scalar.time_us, scalar.step, scalar.value)
        elif len(self._tags) < MAX_TAGS:
            self._tags[scalar.tag] = None

    def _add_report(self, report: Report) -> None:
        for tag in report.keys() - _HYPERTUNE_KEYS:
            try:
                time_us, step = int(float(str(report["timestamp"])) * 1e6), int(str(report["global_step"]))
                value = float(str(report[tag]))
            except (KeyError, ValueError, OverflowError) as exc:
                what = f"no {exc}" if isinstance(exc, KeyError) else str(exc)
                self._problem = f"A report with hypertune of {tag[:MAX_TAG]!r} can't be used: {what[:MAX_TAG]}."
                continue
            if tag == self._tag and 0 <= time_us < 1 << 62 and 0 <= step < 1 << 62:
                self._reports.add(time_us, step, value)
            elif tag == self._tag:
                self._problem = (
                    f"A report with hypertune has a time or a step that can't be: {time_us / 1e6:g}, {step}."
                )
            elif len(self._tags) < MAX_TAGS:
                self._tags[tag[:200]] = None


def _is_evaluation(folder: tuple[str, ...]) -> bool:
    return any(_EVALUATION.match(part.lower()) for part in folder)
