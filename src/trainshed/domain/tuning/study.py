"""Studies, their trials and measurements, as the API shows them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from trainshed.domain.times import rfc3339
from trainshed.domain.tuning.search import Algorithm, Goal, MeasuredPoint, front
from trainshed.domain.tuning.space import ParameterKind, Point, Space

MAX_TRIALS = 1000  #: of a study


class StudyState(StrEnum):
    ACTIVE = "ACTIVE"
    COMPLETED = "COMPLETED"  #: the space is used up, or the study has MAX_TRIALS trials


class TrialState(StrEnum):
    REQUESTED = "REQUESTED"  #: given to no client yet
    ACTIVE = "ACTIVE"  #: suggested to a client
    STOPPING = "STOPPING"  #: to be stopped; its client may still report
    COMPLETED = "COMPLETED"  #: has a final measurement, or is infeasible


RUNNING = frozenset({TrialState.ACTIVE, TrialState.STOPPING})  #: what may be measured and completed


class StoppingRule(StrEnum):
    NONE = ""  #: nothing is stopped
    MEDIAN = "median"
    DECAY_CURVE = "decay curve"


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyMetric:
    name: str
    goal: Goal


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyConfig:
    """What is searched and for what. `body` is the API's form of it."""

    space: Space
    metrics: tuple[StudyMetric, ...]
    algorithm: Algorithm
    stopping: StoppingRule
    by_elapsed_time: bool  #: curves are compared at the same elapsed time, and else at the same step
    body: Mapping[str, Any]

    @property
    def goals(self) -> tuple[Goal, ...]:
        return tuple(metric.goal for metric in self.metrics)


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyKey:
    project: str
    location: str
    id: str

    @property
    def name(self) -> str:
        return f"projects/{self.project}/locations/{self.location}/studies/{self.id}"

    @property
    def trial_prefix(self) -> str:
        return f"{self.name}/trials/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """One study. Immutable."""

    key: StudyKey
    config: StudyConfig
    state: StudyState = StudyState.ACTIVE
    created_us: int
    last_trial: int = 0  #: the greatest number that a trial ever had

    def body(self) -> dict[str, Any]:
        return {
            "name": self.key.name,
            "studyConfig": self.config.body,
            "state": self.state,
            "createTime": rfc3339(self.created_us),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """Values of metrics at a step and an elapsed time."""

    step: int
    elapsed_us: int
    metrics: Mapping[str, float]

    def ordered(self, config: StudyConfig) -> Measurement:
        """This measurement with the metrics in the order of the study's."""
        first = {metric.name: self.metrics[metric.name] for metric in config.metrics if metric.name in self.metrics}
        return replace(self, metrics={**first, **self.metrics})

    def body(self) -> dict[str, Any]:
        seconds = f"{self.elapsed_us / 1e6:.6f}".rstrip("0").rstrip(".")
        return {
            "elapsedTime": f"{seconds}s",
            "stepCount": str(self.step),
            "metrics": [{"metric": name, "value": value} for name, value in self.metrics.items()],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyTrial:
    """One trial. Immutable: a change returns a new one."""

    number: int
    point: Point
    state: TrialState
    client: str = ""
    final: Measurement | None = None
    infeasible: bool = False
    infeasible_reason: str = ""
    started_us: int = 0  #: 0 before it is given to a client
    ended_us: int = 0
    generation: int = 1
    measurements: tuple[Measurement, ...] = field(default=(), compare=False)  #: by step and elapsed time

    def started(self, client: str, *, now_us: int) -> StudyTrial:
        return replace(self, state=TrialState.ACTIVE, client=client, started_us=now_us)

    def completed(self, final: Measurement | None, *, now_us: int) -> StudyTrial:
        return replace(self, state=TrialState.COMPLETED, final=final, ended_us=now_us)

    def body(self, study: Study) -> dict[str, Any]:
        body: dict[str, Any] = {
            "name": f"{study.key.trial_prefix}{self.number}",
            "state": self.state,
            "parameters": [
                {"parameter": parameter.name, _VALUE_FIELDS[parameter.kind]: _value(self.point[parameter.name])}
                for parameter in study.config.space.active(self.point)
            ],
        }
        if self.measurements:
            body["measurements"] = [each.ordered(study.config).body() for each in self.measurements]
        if self.final is not None:
            body["finalMeasurement"] = self.final.ordered(study.config).body()
        if self.started_us:
            body["startTime"] = rfc3339(self.started_us)
        if self.ended_us:
            body["endTime"] = rfc3339(self.ended_us)
        if self.client:
            body["clientId"] = self.client
        if self.infeasible:
            body |= {"trialInfeasible": True, "infeasibleReason": self.infeasible_reason}
        return body


_VALUE_FIELDS = {
    ParameterKind.DOUBLE: "floatValue",
    ParameterKind.DISCRETE: "floatValue",
    ParameterKind.INTEGER: "intValue",
    ParameterKind.CATEGORICAL: "stringValue",
}


def _value(value: object) -> object:
    return str(value) if isinstance(value, int) else value  # int64 is text in JSON


def objective_values(config: StudyConfig, trial: StudyTrial) -> tuple[float, ...] | None:
    """The final values of all metrics, in the order of the study's. Returns None if the trial is infeasible."""
    if trial.infeasible or trial.final is None:
        return None
    return tuple(trial.final.metrics[metric.name] for metric in config.metrics)


def measured_points(config: StudyConfig, trials: Sequence[StudyTrial]) -> tuple[MeasuredPoint, ...]:
    """The completed trials, as a search sees them."""
    return tuple(
        MeasuredPoint(point=trial.point, values=objective_values(config, trial))
        for trial in trials
        if trial.state is TrialState.COMPLETED
    )


def optimal_trials(config: StudyConfig, trials: Sequence[StudyTrial]) -> list[StudyTrial]:
    """The trials that no other one dominates: the best one, or those of the Pareto front. Equal ones all stay."""
    signs = [1 if goal is Goal.MAXIMIZE else -1 for goal in config.goals]
    scored = []
    for trial in trials:
        values = objective_values(config, trial)
        if trial.state is TrialState.COMPLETED and values is not None:
            scored.append((trial, tuple(sign * value for sign, value in zip(signs, values, strict=True))))
    return [scored[index][0] for index in sorted(front([scores for _, scores in scored]))]
