"""The job that runs a trial: the tuning job's own input with the trial's values and folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from trainshed.domain.jobs import gang
from trainshed.domain.jobs.job import Job
from trainshed.domain.jobs.states import JobState
from trainshed.domain.jobs.training import Training
from trainshed.domain.names import trial_job_id
from trainshed.domain.tuning.trial_input import with_values


def trial_job(parent: Job, number: int, texts: Mapping[str, str], *, now_us: int) -> Job:
    """Return the job of a trial, as it is queued. `texts` are the values of its hyperparameters."""
    training = Training.parse(_trial_input(parent.training.input, number, texts))
    return replace(
        parent,
        id=trial_job_id(parent.id, number),
        parent=parent.id,
        trial=number,
        workload=training,
        state=JobState.QUEUED,
        attempt=0,
        created_us=now_us,
        started_us=None,
        ended_us=None,
        failure=None,
        generation=1,
        replicas=len(gang.gang(training)),
        order_us=0,
    )


def _trial_input(training_input: Mapping[str, Any], number: int, texts: Mapping[str, str]) -> dict[str, Any]:
    changed = with_values(training_input, texts)
    if training_input.get("jobDir"):
        changed["jobDir"] = f"{training_input['jobDir'].rstrip('/')}/{number}"
    return changed
