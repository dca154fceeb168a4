"""Every state with every sighting: a job never hangs, never goes back, and never leaves an end."""

from __future__ import annotations

import itertools

import pytest

from trainshed.domain.jobs.job import ENDS, NEXT, Job, JobState
from trainshed.domain.jobs.reconcile import LOST_SUPERVISOR, Cancel, Launch, Move, Phase, Sighting, Wait, plan
from trainshed.errors import FailedPrecondition

NOW = 1_000_000_000
ACTIVE = set(JobState) - ENDS - {JobState.QUEUED}  # those that may hold processes


def job(state: JobState) -> Job:
    return Job(project="p-one", id="j", body={}, state=state, created_us=1, started_us=5 if state in ENDS else None)


def sightings() -> list[Sighting]:
    ended = [
        Sighting(phase=Phase.ENDED, outcome=end, started_us=10, ended_us=20, message="why") for end in sorted(ENDS)
    ]
    return [*(Sighting(phase=phase) for phase in Phase if phase is not Phase.ENDED), *ended]


@pytest.mark.parametrize(("state", "seen"), list(itertools.product(sorted(ACTIVE), sightings())))
def test_every_active_state_has_a_step_that_leads_to_an_end(state: JobState, seen: Sighting) -> None:
    action = plan(job(state), seen, now_us=NOW)
    gone = seen.phase in (Phase.ENDED, Phase.LOST)
    if gone:
        assert isinstance(action, Move)
        assert action.job.ended
        assert action.events[-1].text.startswith("Job ")
    if isinstance(action, Move):
        assert action.job.state in NEXT[state]
    if isinstance(action, Wait):
        assert seen.phase in (Phase.PREPARING, Phase.RUNNING)


@pytest.mark.parametrize(
    ("state", "seen", "wanted"),
    [
        (JobState.PREPARING, Sighting(phase=Phase.ABSENT), Launch),
        (JobState.PREPARING, Sighting(phase=Phase.PREPARING), Wait),
        (JobState.PREPARING, Sighting(phase=Phase.RUNNING), Move),
        (JobState.RUNNING, Sighting(phase=Phase.RUNNING), Wait),
        (JobState.CANCELLING, Sighting(phase=Phase.PREPARING), Cancel),
        (JobState.CANCELLING, Sighting(phase=Phase.RUNNING), Cancel),
        (JobState.CANCELLING, Sighting(phase=Phase.ABSENT), Move),
    ],
)
def test_the_step_is_the_one_that_is_due(state: JobState, seen: Sighting, wanted: type) -> None:
    assert isinstance(plan(job(state), seen, now_us=NOW), wanted)


def test_a_job_that_ended_before_it_was_seen_running_keeps_its_start_time() -> None:
    seen = Sighting(phase=Phase.ENDED, outcome=JobState.SUCCEEDED, started_us=10, ended_us=20)
    action = plan(job(JobState.PREPARING), seen, now_us=NOW)
    assert isinstance(action, Move)
    assert (action.job.state, action.job.started_us, action.job.ended_us) == (JobState.SUCCEEDED, 10, 20)


def test_a_lost_supervisor_fails_the_job_and_says_so() -> None:
    action = plan(job(JobState.RUNNING), Sighting(phase=Phase.LOST), now_us=NOW)
    assert isinstance(action, Move)
    assert (action.job.state, action.job.error) == (JobState.FAILED, LOST_SUPERVISOR)


def test_a_cancelled_job_ends_cancelled_even_if_it_finished_first() -> None:
    seen = Sighting(phase=Phase.ENDED, outcome=JobState.SUCCEEDED, started_us=10, ended_us=20)
    action = plan(job(JobState.CANCELLING), seen, now_us=NOW)
    assert isinstance(action, Move)
    assert action.job.state is JobState.CANCELLED


@pytest.mark.parametrize(("end", "other"), list(itertools.product(sorted(ENDS), sorted(JobState))))
def test_an_end_is_final(end: JobState, other: JobState) -> None:
    with pytest.raises(FailedPrecondition, match="can't become"):
        job(end).to(other, now_us=NOW)


def test_a_clock_that_stepped_back_gives_no_negative_duration() -> None:
    running = job(JobState.PREPARING).to(JobState.RUNNING, now_us=NOW)
    ended = running.to(JobState.SUCCEEDED, now_us=NOW - 3_600_000_000)
    assert ended.ended_us == ended.started_us == NOW
