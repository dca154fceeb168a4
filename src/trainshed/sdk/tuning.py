"""Searches of tuning jobs: their trials, steering while they run, and what follows them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import trainshed.sdk.display as display
from trainshed.client.context import ClientContext, native_job_path
from trainshed.client.trial_format import COLUMNS, best_first, trial_row
from trainshed.client.tuning import search_of
from trainshed.domain.jobs.states import TERMINAL_STATES
from trainshed.errors import InvalidArgumentError
from trainshed.sdk.space import ParameterRange, algorithm_word, hyperparameter

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTrial:
    """A trial of a tuning job, as it was when it was read."""

    number: int
    state: str  #: as that of a job
    values: Mapping[str, str]  #: of the hyperparameters, as the trainer gets them
    value: float | None  #: of the metric: the final one, or the last one so far
    step: int | None
    stopped_early: bool
    reason: str  #: why it was stopped or failed; empty otherwise
    raw: Mapping[str, Any] = field(repr=False)  #: as the server sent it, with all measurements

    @classmethod
    def read(cls, raw: Mapping[str, Any]) -> Self:
        """Read it from the server's JSON."""
        metric = raw["finalMetric"] or (None if raw["state"] in TERMINAL_STATES else raw["lastMetric"])
        return cls(
            number=raw["trial"],
            state=raw["state"],
            values=raw["hyperparameters"],
            value=metric["value"] if metric else None,
            step=metric["step"] if metric else None,
            stopped_early=raw["stoppedEarly"],
            reason=raw["reason"],
            raw=raw,
        )

    def __getitem__(self, parameter: str) -> str:
        return self.values[parameter]


class JobTrials(list[JobTrial]):
    """The trials of a tuning job, the best first. `.frame()` is a pandas frame."""

    @classmethod
    def read(cls, search: Mapping[str, Any]) -> Self:
        """Read them from the server's JSON."""
        return cls(map(JobTrial.read, best_first(search)))

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each trial: number, state, value, step, and the hyperparameters, numbers as numbers."""
        return [
            {"trial": each.number, "state": each.state, "value": each.value, "step": each.step}
            | {name: _number(text) for name, text in each.values.items()}
            for each in self
        ]

    def frame(self) -> pandas.DataFrame:
        """Return the rows as a pandas frame. Raises `CannotProceedError` without pandas."""
        return display.frame(self.rows())

    def _repr_html_(self) -> str:
        return display.table([trial_row(each.raw) for each in self], COLUMNS)


class TuningSearch:
    """The search of one tuning job: `job.search`. It stores only a name: each call goes to the server."""

    def __init__(self, context: ClientContext, job: str) -> None:
        self._context = context
        self.job = job

    def describe(self) -> dict[str, Any]:
        """Return the search as in the API: its metric, its bounds, its trials with their measurements."""
        return search_of(self._context, self.job)

    def change(self, *, max_trials: int | None = None, parallel: int | None = None) -> None:
        """Change how many trials it has, or how many run at a time. Trials that run go on."""
        body = {"maxTrials": max_trials, "maxParallelTrials": parallel}
        self._post(":changeSearch", {name: value for name, value in body.items() if value is not None})

    def add_trials(self, count: int) -> None:
        """Give it more trials than it has now."""
        self.change(max_trials=self.describe()["maxTrials"] + count)

    def try_next(self, values: Mapping[str, object]) -> None:
        """Make a point of your own the next trial. Raises `InvalidArgumentError` if it is not in the space."""
        self._post(":tryPoint", {"hyperparameters": dict(values)})

    def stop_trial(self, number: int) -> None:
        """Stop a trial, and keep what it has reported."""
        self._post(f"/trials/{number}:stop", {})

    def finish(self) -> None:
        """Stop all trials, and keep what they have reported. The job SUCCEEDED then, if a trial has a value."""
        self._post(":finishSearch", {})

    def _post(self, rest: str, body: Mapping[str, Any]) -> None:
        self._context.client.call("POST", f"{native_job_path(self._context, self.job)}{rest}", body=dict(body))

    def __repr__(self) -> str:
        return f"<TuningSearch of job {self.job}>"


def hyperparameters(
    space: Mapping[str, ParameterRange], *, maximize: str | None, minimize: str | None, **bounds: Any
) -> dict[str, Any]:
    """Return the hyperparameters of a job. `bounds` are other fields by the API's names; None leaves one out.

    Raises `InvalidArgumentError` unless there is one metric, and for a parameter that can't be read.
    """
    if (maximize is None) == (minimize is None):
        raise InvalidArgumentError("Name the metric: give either maximize or minimize, such as maximize='accuracy'.")
    return {
        "goal": "MINIMIZE" if maximize is None else "MAXIMIZE",
        "hyperparameterMetricTag": maximize or minimize,
        "params": [hyperparameter(name, values) for name, values in space.items()],
        **{name: value for name, value in bounds.items() if value is not None},
    }


def bounds(
    *, trials: int, parallel: int, early_stopping: bool, max_failed: int | None, algorithm: str
) -> dict[str, Any]:
    """Return the fields that say how far a search goes, by the API's names."""
    return {
        "maxTrials": trials,
        "maxParallelTrials": parallel,
        "enableTrialEarlyStopping": early_stopping,
        "maxFailedTrials": max_failed,
        "algorithm": algorithm_word(algorithm),
    }


def _number(text: str) -> str | float | int:
    for read in (int, float):
        try:
            return read(text)
        except ValueError:
            continue
    return text
