"""A trial of a tuning job: its values, its measurements and how it ended."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple, Self

from trainshed.domain.jobs.job import Job
from trainshed.domain.jobs.states import JobState
from trainshed.domain.names import KEEP_TRIALS_LABEL
from trainshed.domain.tuning.hyperparameters import Tuning
from trainshed.domain.tuning.space import Point

MAX_MEASUREMENTS = 200  #: of a trial that are kept; the others are thinned out
MAX_TAGS = 50  #: that an outcome remembers, if the metric is not among them


class FolderState(StrEnum):
    """Of a trial's folder, below the job's `jobDir`."""

    KEPT = "KEPT"
    REMOVING = "REMOVING"  #: decided; part of it may be gone
    REMOVED = "REMOVED"


class TrialMeasurement(NamedTuple):
    """One value of the metric. It is finite."""

    time_us: int
    step: int
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialOutcome:
    """What a trial reported, read when it had ended."""

    measurements: tuple[TrialMeasurement, ...] = ()  #: oldest first
    source: str = ""  #: where they come from: hypertune, or a folder below the job's
    diverged: bool = False  #: the last value was NaN or infinite
    tags: tuple[str, ...] = ()  #: others that the trial reported, if it reported no value of the metric
    problem: str = ""  #: what is wrong with its files, if it reported no value of the metric

    @property
    def final(self) -> TrialMeasurement | None:
        """The last value. Returns None if there is none, or if it was not finite."""
        return self.measurements[-1] if self.measurements and not self.diverged else None

    @classmethod
    def parse(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            measurements=tuple(TrialMeasurement(*each) for each in value["measurements"]),
            source=value["source"],
            diverged=value["diverged"],
            tags=tuple(value["tags"]),
            problem=value.get("problem", ""),
        )

    def body(self) -> dict[str, Any]:
        """All of it as JSON, which `parse` reads."""
        return {
            "measurements": [list(each) for each in self.measurements],
            "source": self.source,
            "diverged": self.diverged,
            "tags": list(self.tags),
            "problem": self.problem,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A trial as the search knows it. `job` is the job that runs it."""

    number: int
    point: Point
    job: Job
    outcome: TrialOutcome | None = None  #: None until it was read after the end
    stopped: str = ""  #: why it was stopped before its end; empty if it was not
    folder: FolderState = FolderState.KEPT

    @property
    def ended(self) -> bool:
        """Whether it has ended and its measurements were read."""
        return self.job.ended and self.outcome is not None

    @property
    def final(self) -> TrialMeasurement | None:
        return self.outcome.final if self.outcome else None

    @property
    def stopped_early(self) -> bool:
        """Whether it was stopped and counts as a success: it has a value."""
        return bool(self.stopped) and self.job.state is JobState.CANCELLED and self.final is not None

    @property
    def state(self) -> JobState:
        """Its state for the API: that of its job, but for one that was stopped early."""
        return JobState.SUCCEEDED if self.stopped_early else self.job.state

    @property
    def succeeded(self) -> bool:
        return self.ended and self.state is JobState.SUCCEEDED

    @property
    def failed(self) -> bool:
        """Whether it ended by a fault of its own, not because somebody ended it."""
        return self.ended and self.state is JobState.FAILED


def best_first(trials: Sequence[Trial], tuning: Tuning) -> list[Trial]:
    """Order trials by their final value. Those without one come last, by number."""

    def order(trial: Trial) -> tuple[bool, float, int]:
        value = trial.final.value if trial.final else math.nan
        return trial.final is None, 0.0 if math.isnan(value) else tuning.sign * -value, trial.number

    return sorted(trials, key=order)


def surplus_trials(trials: Sequence[Trial], tuning: Tuning, keep: int) -> list[Trial]:
    """Return the trials whose folders are to be removed, by number: all that ended but the `keep` best.

    Before as many have a value, nobody knows which the best ones are, and none is removed.
    """
    ranked = best_first([trial for trial in trials if trial.ended], tuning)
    if sum(trial.final is not None for trial in ranked) < keep:
        return []
    surplus = [trial for trial in ranked[keep:] if trial.folder is FolderState.KEPT and trial.job.attempt]
    return sorted(surplus, key=lambda trial: trial.number)


def removal_message(trials: Sequence[Trial], keep: int) -> str:
    """The sentence for the job's log when folders of these trials are removed."""
    numbers = [str(trial.number) for trial in trials]
    subject = f"folder of trial {numbers[0]} is" if len(numbers) == 1 else f"folders of trials {_listed(numbers)} are"
    kept = "the best trial keeps its own" if keep == 1 else f"the {keep} best trials keep theirs"
    return f"The {subject} removed: {kept} ({KEEP_TRIALS_LABEL})."


def _listed(words: Sequence[str]) -> str:
    return f"{', '.join(words[:-1])} and {words[-1]}"


def thinned(measurements: Sequence[TrialMeasurement]) -> tuple[TrialMeasurement, ...]:
    """At most MAX_MEASUREMENTS of them, evenly spaced, the first and the last included."""
    count = len(measurements)
    if count <= MAX_MEASUREMENTS:
        return tuple(measurements)
    picked = sorted({round(index * (count - 1) / (MAX_MEASUREMENTS - 1)) for index in range(MAX_MEASUREMENTS)})
    return tuple(measurements[index] for index in picked)
