"""What a rollout does next: a function of its row, of what was measured in its stage, and of the time."""

from __future__ import annotations

from dataclasses import dataclass

from trainshed.domain.models.rollout import Rollout
from trainshed.domain.models.rollout_condition import NOTHING, StageMeasurement


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What is known of the present stage: requests to both versions in it, and whether they serve."""

    new: StageMeasurement = NOTHING
    baseline: StageMeasurement = NOTHING
    new_serves: bool = True
    baseline_serves: bool = True  #: and is still the default


@dataclass(frozen=True, slots=True, kw_only=True)
class StayInStage:
    """Nothing to do yet."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Advance:
    """Begin the next stage."""

    reason: str
    reference: StageMeasurement


@dataclass(frozen=True, slots=True, kw_only=True)
class Promote:
    """Make the new version the default."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RollBack:
    """Send all requests to the baseline."""

    reason: str


Action = StayInStage | Advance | Promote | RollBack


def next_action(rollout: Rollout, evidence: Evidence, *, now_us: int) -> Action:
    """Return the next action for a rollout that is running."""
    stage, plan = rollout.current, rollout.plan
    if not evidence.baseline_serves:
        return RollBack(reason=f"Version {rollout.baseline} is not the default any more, so there is nothing to go by.")
    if not evidence.new_serves:
        return RollBack(reason=f"Version {rollout.version} is not READY any more.")
    enough = evidence.baseline.requests >= plan.min_requests
    reference = evidence.baseline if enough else rollout.reference
    for condition in plan.conditions:
        if condition.shadow_only and not stage.shadow:
            continue
        if breach := condition.breach(evidence.new, reference, plan.min_requests):
            return RollBack(reason=f"{breach} It got {stage}, and {evidence.new.requests} requests in this stage.")
    if missing := _missing(rollout, evidence, reference):
        return StayInStage(reason=missing)
    left_s = stage.seconds - (now_us - rollout.stage_us) / 1_000_000
    if left_s > 0:
        return StayInStage(reason=f"{left_s:.0f} s of this stage are left.")
    reason = (
        f"{evidence.new.requests} requests to version {rollout.version} in this stage, {evidence.new.errors} failed; "
        f"its p99 is {evidence.new.p99_ms:.1f} ms"
        + (f", and {evidence.new.changed} of {evidence.new.compared} answers changed." if stage.shadow else ".")
    )
    if rollout.stage + 1 < len(plan.stages):
        return Advance(reason=reason, reference=reference)
    return Promote(reason=reason)


def _missing(rollout: Rollout, evidence: Evidence, reference: StageMeasurement) -> str:
    """What is missing to judge the stage, as a sentence; "" if nothing is."""
    minimum = rollout.plan.min_requests
    if evidence.new.requests < minimum:
        return (
            f"Too little traffic to judge: {evidence.new.requests} of {minimum} requests to version {rollout.version} "
            f"in this stage."
        )
    if reference.requests < minimum and any(condition.relative for condition in rollout.plan.conditions):
        return (
            f"Too little traffic to judge: {evidence.baseline.requests} of {minimum} requests to version "
            f"{rollout.baseline} in this stage, with which version {rollout.version} is compared."
        )
    compares = rollout.current.shadow and any(condition.shadow_only for condition in rollout.plan.conditions)
    if compares and evidence.new.compared < minimum:
        return f"Too little traffic to judge: {evidence.new.compared} of {minimum} answers were compared in this stage."
    return ""
