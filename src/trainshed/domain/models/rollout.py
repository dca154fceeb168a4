"""A rollout: a new version gets shadow traffic, then more and more requests, and becomes the default or does not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise
from typing import Any

from trainshed.domain import json_fields as f
from trainshed.domain import names
from trainshed.domain.models.rollout_condition import NOTHING, Condition, StageMeasurement, read_condition
from trainshed.domain.times import rfc3339
from trainshed.errors import InvalidArgumentError

DEFAULT_STEPS = (1, 10, 50, 100)
DEFAULT_STEP_S = 300.0
DEFAULT_MIN_REQUESTS = 200  #: so that a p99 is not that of one request
MAX_MIN_REQUESTS = 1_000_000
MAX_STEPS = 20
MAX_STAGE_S = 7 * 24 * 3600.0
MAX_CONDITIONS = 10
MAX_KEPT = 20  #: rollouts of a model that are kept after their end


class RolloutState(StrEnum):
    """What a rollout has become."""

    RUNNING = "RUNNING"
    PROMOTED = "PROMOTED"  #: its version is the default
    ROLLED_BACK = "ROLLED_BACK"  #: by a condition, or because a version does not serve any more
    STOPPED = "STOPPED"  #: by a person


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutStage:
    """One part of a rollout. It ends after `seconds`, if there were enough requests to judge it."""

    shadow: bool
    percent: int
    seconds: float

    def __str__(self) -> str:
        return f"shadow traffic of {self.percent} %" if self.shadow else f"{self.percent} % of the requests"


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutPlan:
    """What a rollout is asked to do."""

    stages: tuple[RolloutStage, ...]
    conditions: tuple[Condition, ...] = ()
    min_requests: int = DEFAULT_MIN_REQUESTS


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutEvent:
    """Something that a rollout did, and why."""

    time_us: int
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """One rollout of a model. Immutable: each change returns a new one."""

    number: int  #: 1 and on, for each model
    version: str  #: the new one
    baseline: str  #: the default version when it started
    plan: RolloutPlan
    state: RolloutState = RolloutState.RUNNING
    stage: int = 0  #: the index of the present stage, or of the one in which it ended
    stage_us: int  #: when the stage began
    created_us: int
    ended_us: int = 0
    reference: StageMeasurement = NOTHING  #: of the baseline, in the last stage in which it had enough requests
    events: tuple[RolloutEvent, ...] = ()

    @property
    def current(self) -> RolloutStage:
        return self.plan.stages[self.stage]

    @property
    def running(self) -> bool:
        return self.state is RolloutState.RUNNING

    @property
    def split(self) -> dict[str, int]:
        """The percents of the requests by version in the present stage. Empty: the baseline gets all."""
        if self.current.shadow or not self.running:
            return {}
        percents = {self.baseline: 100 - self.current.percent, self.version: self.current.percent}
        return {name: percent for name, percent in percents.items() if percent}

    def advanced(self, reason: str, reference: StageMeasurement, *, now_us: int) -> Rollout:
        """This rollout in its next stage."""
        moved = replace(self, stage=self.stage + 1, stage_us=now_us, reference=reference)
        return moved.told(f"{reason} Next: {moved.current}.", now_us=now_us)

    def ended(self, state: RolloutState, reason: str, *, now_us: int) -> Rollout:
        return replace(self, state=state, ended_us=now_us).told(reason, now_us=now_us)

    def told(self, message: str, *, now_us: int) -> Rollout:
        return replace(self, events=(*self.events, RolloutEvent(time_us=now_us, message=message)))

    def stored(self) -> dict[str, Any]:
        """This rollout as JSON for its row. `parse_rollout` reads it."""
        return {
            "number": self.number,
            "version": self.version,
            "baseline": self.baseline,
            "stages": [[stage.shadow, stage.percent, stage.seconds] for stage in self.plan.stages],
            "conditions": [condition.text for condition in self.plan.conditions],
            "minRequests": self.plan.min_requests,
            "state": self.state.value,
            "stage": self.stage,
            "stageUs": self.stage_us,
            "createdUs": self.created_us,
            "endedUs": self.ended_us,
            "reference": self.reference.body(),
            "events": [[event.time_us, event.message] for event in self.events],
        }

    def body(self) -> dict[str, Any]:
        """This rollout as the API shows it, without what is measured now."""
        return {
            "id": str(self.number),
            "version": self.version,
            "baseline": self.baseline,
            "state": self.state.value,
            "stages": [
                {"kind": "SHADOW" if stage.shadow else "SPLIT", "percent": stage.percent, "seconds": stage.seconds}
                for stage in self.plan.stages
            ],
            "stage": self.stage,
            "stageTime": rfc3339(self.stage_us),
            "abortIf": [condition.text for condition in self.plan.conditions],
            "minRequests": self.plan.min_requests,
            "createTime": rfc3339(self.created_us),
            "endTime": rfc3339(self.ended_us) if self.ended_us else None,
            "reason": self.events[-1].message if self.events else "",
            "events": [{"time": rfc3339(event.time_us), "message": event.message} for event in self.events],
        }


def parse_rollout(stored: Mapping[str, Any]) -> Rollout:
    """Read what `Rollout.stored` wrote."""
    stages = tuple(RolloutStage(shadow=shadow, percent=percent, seconds=s) for shadow, percent, s in stored["stages"])
    conditions = tuple(read_condition(text, "") for text in stored["conditions"])
    return Rollout(
        number=stored["number"],
        version=stored["version"],
        baseline=stored["baseline"],
        plan=RolloutPlan(stages=stages, conditions=conditions, min_requests=stored["minRequests"]),
        state=RolloutState(stored["state"]),
        stage=stored["stage"],
        stage_us=stored["stageUs"],
        created_us=stored["createdUs"],
        ended_us=stored["endedUs"],
        reference=StageMeasurement.parse(stored["reference"]),
        events=tuple(RolloutEvent(time_us=time_us, message=message) for time_us, message in stored["events"]),
    )


_REQUEST = f.message(
    {
        "version": f.string,
        "shadowSeconds": f.double,
        "shadowPercent": f.int32,
        "steps": f.repeated(f.int32),
        "stepSeconds": f.double,
        "abortIf": f.repeated(f.string),
        "minRequests": f.int32,
    }
)


def read_rollout_request(body: Mapping[str, Any]) -> tuple[str, RolloutPlan]:
    """The version and the plan of a request. Raises `InvalidArgumentError`, which names the field."""
    fields = _REQUEST(body, "")
    if not fields.get("version"):
        raise InvalidArgumentError("The rollout has no version. Name the one to roll out, such as v2.", field="version")
    stages = _stages(fields)
    texts = fields.get("abortIf", [])
    if len(texts) > MAX_CONDITIONS:
        raise InvalidArgumentError(f"{len(texts)} conditions are given; {MAX_CONDITIONS} are allowed.", field="abortIf")
    conditions = tuple(read_condition(text, "abortIf") for text in texts)
    _check_measurable(conditions, stages)
    minimum = fields.get("minRequests", DEFAULT_MIN_REQUESTS)
    if not 1 <= minimum <= MAX_MIN_REQUESTS:
        raise InvalidArgumentError(
            f"minRequests must be a whole number from 1 to {MAX_MIN_REQUESTS:,}.", field="minRequests"
        )
    plan = RolloutPlan(stages=stages, conditions=conditions, min_requests=minimum)
    return names.version_name(fields["version"]), plan


def _stages(fields: Mapping[str, Any]) -> tuple[RolloutStage, ...]:
    shadow_s = _seconds(fields, "shadowSeconds", 0.0)
    percent = fields.get("shadowPercent", 100)
    if not 1 <= percent <= 100:
        raise InvalidArgumentError("shadowPercent must be a whole percentage from 1 to 100.", field="shadowPercent")
    steps: Sequence[int] = fields.get("steps", DEFAULT_STEPS)
    rising = all(before < after for before, after in pairwise(steps))
    if not 1 <= len(steps) <= MAX_STEPS or not rising or steps[0] < 1 or steps[-1] > 100:
        raise InvalidArgumentError(
            f"steps must be 1 to {MAX_STEPS} whole percentages from 1 to 100, each above the one before, such as 1, "
            f"10, 50, 100.",
            field="steps",
        )
    step_s = _seconds(fields, "stepSeconds", DEFAULT_STEP_S)
    shadow = (RolloutStage(shadow=True, percent=percent, seconds=shadow_s),) if shadow_s else ()
    return (*shadow, *(RolloutStage(shadow=False, percent=step, seconds=step_s) for step in steps))


def _seconds(fields: Mapping[str, Any], name: str, default: float) -> float:
    seconds: float = fields.get(name, default)
    if not 0 <= seconds <= MAX_STAGE_S:
        raise InvalidArgumentError(f"{name} must be from 0 to {MAX_STAGE_S:g}, a week.", field=name)
    return seconds


def _check_measurable(conditions: Sequence[Condition], stages: Sequence[RolloutStage]) -> None:
    """Refuse conditions that no stage could measure."""
    for condition in conditions:
        if condition.shadow_only and not any(stage.shadow for stage in stages):
            raise InvalidArgumentError(
                f"[{condition.text}] needs shadow traffic, because only there both versions answer the same request. "
                f"Add it with shadowSeconds (--shadow), or leave the condition out.",
                field="abortIf",
            )
        if condition.relative and not any(stage.shadow or stage.percent < 100 for stage in stages):
            raise InvalidArgumentError(
                f"[{condition.text}] compares with the present default version, which gets no request in any of the "
                f"stages. Add a step below 100, or shadow traffic.",
                field="abortIf",
            )
