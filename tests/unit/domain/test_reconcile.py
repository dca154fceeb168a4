"""Every state with every observation: a job never hangs, never goes back, and never leaves an end."""

from __future__ import annotations

import itertools

import pytest

from trainshed.domain.jobs.failure import Failure, FailureCause
from trainshed.domain.jobs.job import Job, JobEventKind
from trainshed.domain.jobs.reconcile import (
    AttemptPhase,
    CancelAttempt,
    NoAction,
    ObservedAttempt,
    StartAttempt,
    Transition,
    reconcile,
)
from trainshed.domain.jobs.states import TERMINAL_STATES, TRANSITIONS, JobState
from trainshed.domain.jobs.training import Training
from trainshed.errors import FailedPreconditionError

NOW = 1_000_000_000
WHY = Failure(cause=FailureCause.REPLICA_EXITED, replica="master-replica-0", exit_code=1)
ACTIVE = set(JobState) - TERMINAL_STATES - {JobState.QUEUED}  # those that may hold processes


def job(state: JobState) -> Job:
    return Job(
        project="p-one",
        id="j",
        workload=Training.parse({}),
        state=state,
        created_us=1,
        started_us=5 if state in TERMINAL_STATES else None,
    )


def observations() -> list[ObservedAttempt]:
    ended = [
        ObservedAttempt(phase=AttemptPhase.ENDED, outcome=end, started_us=10, ended_us=20, failure=WHY)
        for end in sorted(TERMINAL_STATES)
    ]
    return [*(ObservedAttempt(phase=phase) for phase in AttemptPhase if phase is not AttemptPhase.ENDED), *ended]


@pytest.mark.parametrize(("state", "seen"), list(itertools.product(sorted(ACTIVE), observations())))
def test_every_active_state_has_a_step_that_leads_to_an_end(state: JobState, seen: ObservedAttempt) -> None:
    action = reconcile(job(state), seen, now_us=NOW)
    gone = seen.phase in (AttemptPhase.ENDED, AttemptPhase.LOST)
    if gone:
        assert isinstance(action, Transition)
        assert action.job.ended
        assert action.events[-1].kind is JobEventKind.ENDED
    if isinstance(action, Transition):
        assert action.job.state in TRANSITIONS[state]
    if isinstance(action, NoAction):
        assert seen.phase in (AttemptPhase.PREPARING, AttemptPhase.RUNNING)


@pytest.mark.parametrize(
    ("state", "seen", "wanted"),
    [
        (JobState.PREPARING, ObservedAttempt(phase=AttemptPhase.ABSENT), StartAttempt),
        (JobState.PREPARING, ObservedAttempt(phase=AttemptPhase.PREPARING), NoAction),
        (JobState.PREPARING, ObservedAttempt(phase=AttemptPhase.RUNNING), Transition),
        (JobState.RUNNING, ObservedAttempt(phase=AttemptPhase.RUNNING), NoAction),
        (JobState.CANCELLING, ObservedAttempt(phase=AttemptPhase.PREPARING), CancelAttempt),
        (JobState.CANCELLING, ObservedAttempt(phase=AttemptPhase.RUNNING), CancelAttempt),
        (JobState.CANCELLING, ObservedAttempt(phase=AttemptPhase.ABSENT), Transition),
    ],
)
def test_the_step_is_the_one_that_is_due(state: JobState, seen: ObservedAttempt, wanted: type) -> None:
    assert isinstance(reconcile(job(state), seen, now_us=NOW), wanted)


def test_a_job_that_ended_before_it_was_seen_running_keeps_its_start_time() -> None:
    seen = ObservedAttempt(phase=AttemptPhase.ENDED, outcome=JobState.SUCCEEDED, started_us=10, ended_us=20)
    action = reconcile(job(JobState.PREPARING), seen, now_us=NOW)
    assert isinstance(action, Transition)
    assert (action.job.state, action.job.started_us, action.job.ended_us) == (JobState.SUCCEEDED, 10, 20)


def test_a_lost_supervisor_fails_the_job_and_says_so() -> None:
    action = reconcile(job(JobState.RUNNING), ObservedAttempt(phase=AttemptPhase.LOST), now_us=NOW)
    assert isinstance(action, Transition)
    assert (action.job.state, action.job.failure) == (JobState.FAILED, Failure(cause=FailureCause.SUPERVISOR_LOST))
    assert [event.kind for event in action.events] == [JobEventKind.FAILED, JobEventKind.ENDED]


def test_a_cancelled_job_ends_cancelled_even_if_it_finished_first() -> None:
    seen = ObservedAttempt(phase=AttemptPhase.ENDED, outcome=JobState.SUCCEEDED, started_us=10, ended_us=20)
    action = reconcile(job(JobState.CANCELLING), seen, now_us=NOW)
    assert isinstance(action, Transition)
    assert action.job.state is JobState.CANCELLED


@pytest.mark.parametrize(("end", "other"), list(itertools.product(sorted(TERMINAL_STATES), sorted(JobState))))
def test_an_end_is_final(end: JobState, other: JobState) -> None:
    with pytest.raises(FailedPreconditionError, match="can't become"):
        job(end).to(other, now_us=NOW)


def test_a_clock_that_stepped_back_gives_no_negative_duration() -> None:
    running = job(JobState.PREPARING).to(JobState.RUNNING, now_us=NOW)
    ended = running.to(JobState.SUCCEEDED, now_us=NOW - 3_600_000_000)
    assert ended.ended_us == ended.started_us == NOW
