"""What is asked of the search for the next trial of a tuning job."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trainshed.domain.jobs.job import Job
from trainshed.domain.tuning.hyperparameters import Tuning
from trainshed.domain.tuning.search import MeasuredPoint, SearchRequest
from trainshed.domain.tuning.trial import Trial

Chain = Sequence[tuple[Job, Sequence[Trial]]]  #: tuning jobs whose search another one continues, with their trials


def next_request(job: Job, trials: Sequence[Trial], chain: Chain) -> SearchRequest:
    """Return the request for the next trial. The same trials give the same request."""
    tuning = job.tuning
    if tuning is None:
        raise TypeError(f"Job {job.id} is no tuning job.")
    last = max((trial.number for each in (trials, *(others for _, others in chain)) for trial in each), default=0)
    return SearchRequest(
        space=tuning.space,
        algorithm=tuning.algorithm,
        goals=(tuning.goal,),
        observations=(*_earlier(tuning, chain), *(_measured(trial) for trial in trials if trial.ended)),
        pending=tuple(trial.point for trial in trials if not trial.ended),
        seed=job.name,
        number=last + 1,
    )


def _measured(trial: Trial) -> MeasuredPoint:
    return MeasuredPoint(point=trial.point, values=(trial.final.value,) if trial.final else None)


def _earlier(tuning: Tuning, chain: Chain) -> Iterator[MeasuredPoint]:
    """Yield the trials of earlier jobs, as far as their points are in this space and their values are comparable."""
    for job, trials in reversed(chain):
        if job.tuning is None or (job.tuning.tag, job.tuning.goal) != (tuning.tag, tuning.goal):
            continue
        for trial in trials:
            if trial.ended and (point := tuning.space.adopt(trial.point)) is not None:
                yield MeasuredPoint(point=point, values=_measured(trial).values)
