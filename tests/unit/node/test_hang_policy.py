"""Which replicas hang, and for which one the others wait."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from trainshed.node.supervisor import hang_policy
from trainshed.node.supervisor.hang_policy import (
    BEHIND,
    GAP_MAX_S,
    IDLE,
    OTHER_STACK,
    QUIET_FIRST,
    STOPPED,
    STOPPED_AFTER_S,
    Activity,
    Hang,
    Observation,
    find_hangs,
    find_suspect,
    may_restart,
    observed,
    quiet_after_s,
)

NEVER = float("inf")
TIMEOUT_S = 600.0
NOW = 10_000.0


def _gang(*types: str) -> list[dict[str, Any]]:
    indices = {kind: itertools.count() for kind in types}
    return [
        {"name": f"{kind}-replica-{index}", "type": kind, "index": index, "primary": kind == "master", "env": {}}
        for kind, index in ((kind, next(indices[kind])) for kind in types)
    ]


ALONE = _gang("master")
SERVERS = _gang("master", "worker", "worker", "ps", "evaluator")
GROUP = _gang("master", "worker", "worker", "evaluator")
GANGS = (ALONE, SERVERS, GROUP, _gang("master", "evaluator"), _gang("master", "ps"))
MASTER, FIRST, SECOND = "master-replica-0", "worker-replica-0", "worker-replica-1"
PS, EVALUATOR = "ps-replica-0", "evaluator-replica-0"


def _activity(idle_s: float, *, stopped_s: float | None = None, step: int | None = None) -> Activity:
    since_s = NEVER if stopped_s is None else NOW - stopped_s
    return Activity(1, NOW, NOW - idle_s, since_s, (NOW, 0.0), step)


def _run(*observations: tuple[float, Observation], timeout_s: float = TIMEOUT_S) -> Activity:
    activity: Activity | None = None
    for now_s, each in observations:
        activity = observed(activity, each, now_s, timeout_s)
    assert activity is not None
    return activity


def _each_second(seconds: int, *, cores: float, start_s: float = 0.0, **options: Any) -> Activity:
    """The activity after some seconds of an even use of CPU."""
    values = {"stopped": False, "output_s": 0.0, "step": None, **options}
    return _run(
        *((start_s + tick, Observation(1, round(cores * tick, 2), **values)) for tick in range(seconds + 1)),
        timeout_s=TIMEOUT_S,
    )


# -- activity


@pytest.mark.parametrize("cores", [0.0, 0.001, 0.005])
def test_threads_that_wait_are_no_activity(cores: float) -> None:
    assert _each_second(700, cores=cores).active_s == 0.0


@pytest.mark.parametrize("cores", [0.02, 0.1, 1.0, 64.0])
def test_cpu_time_is_activity(cores: float) -> None:
    assert 700 - _each_second(700, cores=cores).active_s < quiet_after_s(TIMEOUT_S)


def test_a_short_burst_now_and_then_is_no_activity() -> None:
    burst = (Observation(1, 0.1 * (tick // 60), False, 0.0, None) for tick in range(700))
    assert _run(*enumerate(burst)).active_s == 0.0


def test_output_is_activity_at_its_time() -> None:
    before = Observation(1, 5.0, False, 0.0, None)
    assert _run((0.0, before), (1.0, Observation(1, 5.0, False, 0.4, 3)), (2.0, before)).active_s == 0.4


def test_processes_that_take_their_cpu_time_with_them_were_active() -> None:
    assert (
        _run((0.0, Observation(1, 50.0, False, 0.0, None)), (1.0, Observation(1, 20.0, False, 0.0, None))).active_s == 1
    )


def test_another_process_begins_anew() -> None:
    quiet = ((float(tick), Observation(1, 5.0, tick > 5, 0.0, 4)) for tick in range(20))
    after = _run(*quiet, (20.0, Observation(2, 0.0, False, 0.0, None)))
    assert (after.active_s, after.stopped_s, after.step) == (20.0, NEVER, None)


def test_nothing_is_known_of_a_gap() -> None:
    quiet = Observation(1, 5.0, False, 0.0, None)
    assert _run((0.0, quiet), (GAP_MAX_S, quiet)).active_s == 0.0
    assert _run((0.0, quiet), (GAP_MAX_S + 1, quiet)).active_s == GAP_MAX_S + 1
    stopped = Observation(1, 5.0, True, 0.0, None)
    assert _run((0.0, stopped), (3600.0, stopped)).stopped_s == 3600.0


def test_it_is_stopped_since_it_was_first_observed_so() -> None:
    ticks = [(float(tick), Observation(1, 5.0, tick >= 3, 0.0, None)) for tick in range(10)]
    assert _run(*ticks).stopped_s == 3.0


def test_one_that_is_continued_is_active() -> None:
    ticks = [(float(tick), Observation(1, 5.0, 3 <= tick < 900, 0.0, None)) for tick in range(901)]
    after = _run(*ticks)
    assert (after.active_s, after.stopped_s) == (900.0, NEVER)


# -- hangs


@pytest.mark.parametrize("replicas", GANGS)
@pytest.mark.parametrize("idle_s", [0.0, 59.0, 61.0, 599.0])
def test_nobody_hangs_before_the_timeout(replicas: list[dict[str, Any]], idle_s: float) -> None:
    activities = {each["name"]: _activity(idle_s) for each in replicas}
    assert find_hangs(replicas, activities, TIMEOUT_S, NOW) == {}


@pytest.mark.parametrize("replicas", GANGS)
def test_all_but_those_that_wait_by_nature_hang_when_all_are_idle(replicas: list[dict[str, Any]]) -> None:
    activities = {each["name"]: _activity(600.0) for each in replicas}
    hangs = find_hangs(replicas, activities, TIMEOUT_S, NOW)
    assert set(hangs) == {each["name"] for each in replicas if each["type"] not in ("ps", "evaluator")}
    assert {(hang.kind, hang.since_s, hang.working) for hang in hangs.values()} == {(IDLE, NOW - 600.0, ())}


@pytest.mark.parametrize("replicas", GANGS)
def test_each_that_is_stopped_hangs_whatever_it_is(replicas: list[dict[str, Any]]) -> None:
    for each in replicas:
        activities = {other["name"]: _activity(1.0) for other in replicas}
        activities[each["name"]] = _activity(STOPPED_AFTER_S, stopped_s=STOPPED_AFTER_S - 1)
        assert find_hangs(replicas, activities, TIMEOUT_S, NOW) == {}
        activities[each["name"]] = _activity(STOPPED_AFTER_S, stopped_s=STOPPED_AFTER_S)
        [hang] = find_hangs(replicas, activities, TIMEOUT_S, NOW).values()
        assert (hang.name, hang.kind, hang.since_s) == (each["name"], STOPPED, NOW - STOPPED_AFTER_S)


def test_a_short_timeout_is_that_of_stopped_processes_too() -> None:
    assert STOPPED_AFTER_S <= 29.0, "noticed within 30 s, with a second for the observation"
    assert find_hangs(ALONE, {MASTER: _activity(2.0, stopped_s=2.0)}, 2.0, NOW)[MASTER].kind == STOPPED


def test_a_timeout_of_0_finds_none() -> None:
    assert find_hangs(ALONE, {MASTER: _activity(1e6, stopped_s=1e6)}, 0.0, NOW) == {}


@pytest.mark.parametrize("replicas", [SERVERS, GROUP])
def test_who_may_wait_for_an_active_one_is_reported_with_its_name(replicas: list[dict[str, Any]]) -> None:
    activities = {MASTER: _activity(3.0), FIRST: _activity(700.0), SECOND: _activity(200.0), PS: _activity(700.0)}
    [hang] = find_hangs(replicas, activities, TIMEOUT_S, NOW).values()
    assert (hang.name, hang.kind, hang.working) == (FIRST, IDLE, (MASTER,))


def test_a_group_hangs_as_one() -> None:
    activities = {MASTER: _activity(595.0), FIRST: _activity(600.0), SECOND: _activity(90.0)}
    assert set(find_hangs(GROUP, activities, TIMEOUT_S, NOW)) == {MASTER, FIRST, SECOND}
    assert set(find_hangs(SERVERS, activities, TIMEOUT_S, NOW)) == {FIRST}


def test_replicas_that_do_not_run_do_not_hang_and_hold_up_nobody() -> None:
    assert set(find_hangs(GROUP, {FIRST: _activity(600.0)}, TIMEOUT_S, NOW)) == {FIRST}


def test_a_stopped_one_is_not_active() -> None:
    activities = {MASTER: _activity(700.0), FIRST: _activity(1.0, stopped_s=3.0)}
    hangs = find_hangs(GROUP, activities, TIMEOUT_S, NOW)
    assert set(hangs) == {MASTER}
    assert hangs[MASTER].working == ()


# -- restarts


@pytest.mark.parametrize("kind", [IDLE, STOPPED])
@pytest.mark.parametrize("replicas", GANGS)
def test_one_that_can_wait_for_nobody_may_restart(replicas: list[dict[str, Any]], kind: str) -> None:
    assert all(may_restart(replicas, Hang(each["name"], kind, 0.0)) for each in replicas)


def test_one_that_may_wait_does_not_restart_unless_the_others_do_not_depend_on_it() -> None:
    assert may_restart(SERVERS, Hang(FIRST, IDLE, 0.0, (SECOND,)))
    assert not may_restart(SERVERS, Hang(MASTER, IDLE, 0.0, (FIRST,)))
    assert not may_restart(GROUP, Hang(FIRST, IDLE, 0.0, (MASTER,)))
    assert not may_restart(GROUP, Hang(MASTER, IDLE, 0.0, (FIRST,)))


# -- the one that everybody waits for


def _suspect(
    activities: dict[str, Activity],
    places: dict[str, int] | None = None,
    replicas: list[dict[str, Any]] = GROUP,
) -> tuple[str, str]:
    hangs = find_hangs(replicas, activities, TIMEOUT_S, NOW)
    assert set(activities) == set(hangs)
    stacks = {
        name: [{"name": "MainThread", "frames": [["task.py", line, "step"]]}] for name, line in (places or {}).items()
    }
    return find_suspect(replicas, hangs, activities, stacks)


def _idle(*idle_s: float, steps: tuple[int | None, ...] = (None, None, None)) -> dict[str, Activity]:
    return {
        name: _activity(seconds, step=step)
        for name, seconds, step in zip((MASTER, FIRST, SECOND), idle_s, steps, strict=False)
    }


def test_a_stopped_one_is_named_before_all_others() -> None:
    activities = _idle(600.0, 600.0, 900.0, steps=(3, 9, 9))
    activities[FIRST] = _activity(600.0, stopped_s=590.0, step=9)
    assert _suspect(activities, {MASTER: 1, FIRST: 1, SECOND: 2}) == (FIRST, STOPPED)


def test_of_two_stopped_ones_the_first_is_named() -> None:
    activities = _idle(600.0, 600.0, 600.0)
    activities[FIRST] = _activity(600.0, stopped_s=100.0)
    activities[SECOND] = _activity(600.0, stopped_s=101.0)
    assert _suspect(activities) == (SECOND, STOPPED)


def test_the_one_whose_step_is_behind() -> None:
    activities = _idle(600.0, 900.0, 600.0, steps=(8, 8, 7))
    assert _suspect(activities, {MASTER: 1, FIRST: 2, SECOND: 1}) == (SECOND, BEHIND)


@pytest.mark.parametrize("steps", [(7, 7, 8), (None, 7, 8), (7, None, None), (7, 7, 7)])
def test_steps_that_name_none(steps: tuple[int | None, ...]) -> None:
    assert _suspect(_idle(600.0, 600.0, 600.0, steps=steps)) == ("", "")


def test_the_one_whose_stack_differs_from_all_others() -> None:
    assert _suspect(_idle(600.0, 600.0, 600.0), {MASTER: 1, FIRST: 2, SECOND: 1}) == (FIRST, OTHER_STACK)


@pytest.mark.parametrize(
    "places",
    [
        {MASTER: 1, FIRST: 1, SECOND: 1},
        {MASTER: 1, FIRST: 2, SECOND: 3},
        {MASTER: 1, FIRST: 2},  # one is not known
        {},
    ],
)
def test_stacks_that_name_none(places: dict[str, int]) -> None:
    assert _suspect(_idle(600.0, 600.0, 600.0), places) == ("", "")


def test_of_two_stacks_none_is_the_other_one() -> None:
    assert _suspect(_idle(600.0, 600.0), {MASTER: 1, FIRST: 2}) == ("", "")


def test_the_one_that_was_quiet_first() -> None:
    assert _suspect(_idle(600.0, 604.0, 601.0)) == (FIRST, QUIET_FIRST)
    assert _suspect(_idle(600.0, 602.0, 601.0)) == ("", ""), "within the precision of the observations"


def test_where_replicas_are_independent_none_waits_for_another() -> None:
    assert _suspect(_idle(600.0, 900.0, 600.0), replicas=SERVERS) == ("", "")
    assert _suspect({MASTER: _activity(900.0)}, replicas=ALONE) == ("", "")


def test_the_words_are_different() -> None:
    words = {STOPPED, IDLE, BEHIND, OTHER_STACK, QUIET_FIRST}
    assert len(words) == 5
    assert hang_policy.quiet_after_s(4.0) == 2.0
