"""The times of a job, whatever the clock does between its transitions."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from trainshed.domain.jobs.job import Job
from trainshed.domain.jobs.states import TERMINAL_STATES, TRANSITIONS, JobState
from trainshed.domain.jobs.training import Training

TIMES = st.integers(1, 10)


@given(created=TIMES, data=st.data())
def test_a_job_ends_after_its_start_and_starts_after_its_creation(created: int, data: st.DataObject) -> None:
    job = Job(project="p", id="j", workload=Training.parse({}), created_us=created)
    while job.state not in TERMINAL_STATES:
        state = data.draw(st.sampled_from(sorted(TRANSITIONS[job.state])))
        observed = data.draw(st.none() | TIMES) if state is not JobState.PREPARING else None
        job = job.to(state, now_us=data.draw(TIMES), started_us=observed)
        assert job.started_us is None or job.started_us >= job.created_us
    assert job.ended_us is not None
    assert job.ended_us >= (job.started_us or job.created_us)
