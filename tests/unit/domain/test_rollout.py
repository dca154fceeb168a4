"""Plans of rollouts, their conditions, and what a rollout does next: for all evidence that decides."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from trainshed.domain.models.rollout import Rollout, RolloutState, parse_rollout, read_rollout_request
from trainshed.domain.models.rollout_condition import StageMeasurement, read_condition
from trainshed.domain.models.rollout_rules import Advance, Evidence, Promote, RollBack, StayInStage, next_action
from trainshed.errors import InvalidArgumentError

MINUTE_US = 60_000_000
GOOD = StageMeasurement(requests=1000, errors=1, p50_ms=2, p95_ms=5, p99_ms=10)


def rollout(**plan: Any) -> Rollout:
    asked = {"version": "v2", "steps": [1, 50, 100], "stepSeconds": 60, "abortIf": ["error_rate>0.5%", "p99>1.5x"]}
    version, made = read_rollout_request(asked | plan)
    return Rollout(number=1, version=version, baseline="v1", plan=made, stage_us=0, created_us=0)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({}, "no version"),
        ({"version": "v2", "steps": [10, 10]}, "each above"),
        ({"version": "v2", "steps": []}, "1 to 20"),
        ({"version": "v2", "steps": [0, 100]}, "from 1 to 100"),
        ({"version": "v2", "steps": [101]}, "from 1 to 100"),
        ({"version": "v2", "shadowSeconds": -1}, "shadowSeconds"),
        ({"version": "v2", "shadowPercent": 0}, "shadowPercent"),
        ({"version": "v2", "stepSeconds": 1e9}, "a week"),
        ({"version": "v2", "minRequests": 0}, "minRequests"),
        ({"version": "v2", "abortIf": ["errors>1%"]}, "is not a condition"),
        ({"version": "v2", "abortIf": ["p99>5%"]}, "must end with x or ms or s"),
        ({"version": "v2", "abortIf": ["p99>0.5x"]}, "1x or more"),
        ({"version": "v2", "abortIf": ["error_rate>100%"]}, "below 100 %"),
        ({"version": "v2", "abortIf": ["changed>1%"]}, "needs shadow traffic"),
        ({"version": "v2", "steps": [100], "abortIf": ["p99>2x"]}, "gets no request"),
        ({"version": "v2", "abortIf": ["p99>2x"] * 11}, "10 are allowed"),
        ({"version": "v2", "more": 1}, "more"),
    ],
)
def test_a_bad_plan_is_refused_with_what_is_wrong(body: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidArgumentError, match=words):
        read_rollout_request(body)


def test_a_stored_rollout_is_read_as_it_was() -> None:
    told = rollout(shadowSeconds=5, abortIf=["p99 > 1.5x", "p95>20ms"]).told("Started.", now_us=7)
    moved = replace(told.advanced("Enough.", GOOD, now_us=9), state=RolloutState.STOPPED, ended_us=11)
    assert parse_rollout(moved.stored()) == moved


def test_stages_and_splits() -> None:
    first = rollout(shadowSeconds=5, shadowPercent=30)
    splits = []
    for stage in range(4):
        splits.append(replace(first, stage=stage).split)
    assert splits == [{}, {"v1": 99, "v2": 1}, {"v1": 50, "v2": 50}, {"v2": 100}]
    assert first.ended(RolloutState.STOPPED, "Enough.", now_us=1).split == {}


@pytest.mark.parametrize(
    ("text", "new", "breached"),
    [
        ("error_rate>0.5%", StageMeasurement(requests=10, errors=1), False),  # 1 of at least 200 is 0.5 %
        ("error_rate>0.5%", StageMeasurement(requests=10, errors=2), True),
        ("error_rate>0.5%", StageMeasurement(requests=1000, errors=5), False),
        ("error_rate>0.5%", StageMeasurement(requests=1000, errors=6), True),
        ("error_rate>2x", StageMeasurement(requests=1000, errors=2), False),
        ("error_rate>2x", StageMeasurement(requests=1000, errors=3), True),
        ("error_rate>2x", StageMeasurement(requests=199, errors=199), False),
        ("p99>1.5x", StageMeasurement(requests=199, p99_ms=999), False),
        ("p99>1.5x", StageMeasurement(requests=200, p99_ms=15), False),
        ("p99>1.5x", StageMeasurement(requests=200, p99_ms=15.1), True),
        ("p95>20ms", StageMeasurement(requests=200, p95_ms=20.1), True),
        ("p50>0.02s", StageMeasurement(requests=200, p50_ms=20), False),
        ("changed>1%", StageMeasurement(requests=500, compared=100, changed=2), False),
        ("changed>1%", StageMeasurement(requests=500, compared=100, changed=3), True),
    ],
)
def test_conditions(text: str, new: StageMeasurement, breached: bool) -> None:
    found = read_condition(text, "abortIf").breach(new, GOOD, 200)
    assert bool(found) is breached
    assert not breached or found.startswith(f"{text}: ")


def action_of(asked: Rollout, *, minutes: float = 2, **evidence: Any) -> Any:
    return next_action(asked, Evidence(**({"new": GOOD, "baseline": GOOD} | evidence)), now_us=int(minutes * MINUTE_US))


def test_a_stage_ends_after_its_time_with_enough_requests() -> None:
    first = rollout()
    assert action_of(first) == Advance(reason=action_of(first).reason, reference=GOOD)
    assert isinstance(action_of(replace(first, stage=2)), Promote)
    assert "30 s of this stage are left" in action_of(first, minutes=0.5).reason
    few = action_of(first, new=StageMeasurement(requests=37))
    assert few == StayInStage(reason="Too little traffic to judge: 37 of 200 requests to version v2 in this stage.")
    alone = action_of(first, baseline=StageMeasurement(requests=3))
    assert isinstance(alone, StayInStage)
    assert "3 of 200 requests to version v1" in alone.reason


def test_the_last_step_is_compared_with_what_the_baseline_did_before() -> None:
    last = replace(rollout(), stage=2, reference=GOOD)
    nothing = StageMeasurement()
    assert isinstance(action_of(last, baseline=nothing), Promote)
    slow = replace(GOOD, p99_ms=16)
    found = action_of(last, baseline=nothing, new=slow)
    assert isinstance(found, RollBack)
    assert "its p99 is 16.0 ms, and that of the present default version 10.0 ms" in found.reason


def test_answers_are_compared_in_shadow_traffic_alone() -> None:
    asked = rollout(shadowSeconds=30, abortIf=["changed>1%"])
    wrong = replace(GOOD, compared=1000, changed=500)
    assert isinstance(action_of(asked, new=wrong), RollBack)
    assert isinstance(action_of(replace(asked, stage=1), new=wrong), Advance)
    assert "0 of 200 answers were compared" in action_of(asked).reason


@pytest.mark.parametrize("gone", ["new_serves", "baseline_serves"])
def test_a_version_that_is_gone_ends_a_rollout(gone: str) -> None:
    assert isinstance(action_of(rollout(), **{gone: False}), RollBack)
