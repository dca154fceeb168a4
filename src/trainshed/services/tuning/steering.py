"""Steering of a search while it runs: change its bounds, try a point of one's own, finish it with what it has."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from trainshed.domain.jobs.job import Job, JobEvent, JobEventKind
from trainshed.domain.jobs.states import JobState
from trainshed.domain.times import now_us
from trainshed.domain.tuning.hyperparameters import MAX_TRIALS, Tuning
from trainshed.domain.tuning.space import Point, point_key
from trainshed.domain.tuning.steering import Steering, read_own_point
from trainshed.domain.tuning.trial import Trial
from trainshed.errors import FailedPreconditionError, InvalidArgumentError
from trainshed.services.ports import TuningControl
from trainshed.store.jobs import JobStore
from trainshed.store.tuning.trials import TrialStore


class SearchSteering:
    """Writes rows and an event that names the user. The tuning controller acts on them. Thread-safe."""

    def __init__(
        self,
        jobs: JobStore,
        trials: TrialStore,
        control: TuningControl,
        *,
        clock: Callable[[], int] = now_us,
    ) -> None:
        self._jobs = jobs
        self._trials = trials
        self._steering = trials.steering
        self._control = control
        self._clock = clock

    def change(
        self, project: str, job_id: str, *, max_trials: int | None, max_parallel: int | None, user: str
    ) -> dict[str, Any]:
        """Change how many trials a search has, or how many run at a time. Idempotent.

        Trials that run beyond a smaller number go on. Raises `InvalidArgumentError` for a number out of range, and
        `FailedPreconditionError` if the search has ended.
        """
        job, tuning = self._running(project, job_id)
        if max_trials is None and max_parallel is None:
            raise InvalidArgumentError("Nothing is to be changed. Give `maxTrials` or `maxParallelTrials`.")
        before = self._steering.of(project, job_id).applied(tuning)
        if max_trials is not None:
            self._check_count(job, max_trials)
        if max_parallel is not None and not 1 <= max_parallel <= MAX_TRIALS:
            raise InvalidArgumentError(f"It is from 1 to {MAX_TRIALS}.", field="maxParallelTrials")
        self._steering.change(project, job_id, max_trials=max_trials, max_parallel=max_parallel)
        changes = (
            ("maxTrials", before.max_trials, max_trials),
            ("maxParallelTrials", before.max_parallel, max_parallel),
        )
        said = [f"{name} is {new}, it was {old}" for name, old, new in changes if new not in (None, old)]
        if said:
            self._tell(job, f"{'. '.join(said)}. Changed by {user or 'a user'}.")
        return self._answer(job, tuning)

    def try_point(self, project: str, job_id: str, values: Mapping[str, object], *, user: str) -> dict[str, Any]:
        """Make a point the next trial. If no trial is left for it, `maxTrials` grows by one.

        Raises `InvalidArgumentError` for a point outside of the space, and `FailedPreconditionError` for one that was
        tried, and if the search has ended.
        """
        job, tuning = self._running(project, job_id)
        point = read_own_point(tuning.space, values, "hyperparameters")
        trials, steering = self._trials.of(project, job_id), self._steering.of(project, job_id)
        _check_new(point, trials, steering)
        needed = len(trials) + len(steering.points) + 1
        if needed > steering.applied(tuning).max_trials:
            self._check_count(job, needed)
            self._steering.change(project, job_id, max_trials=needed)
        self._steering.add_point(project, job_id, point)
        shown = ", ".join(f"{name}={text}" for name, text in tuning.space.texts(point).items())
        self._tell(job, f"{shown} is tried next. Given by {user or 'a user'}.")
        return self._answer(job, tuning)

    def finish(self, project: str, job_id: str, *, user: str) -> dict[str, Any]:
        """Stop all trials of a search and keep what they reported. Idempotent. Returns immediately.

        Raises `FailedPreconditionError` if the search has ended.
        """
        job, tuning = self._running(project, job_id)
        if not self._steering.of(project, job_id).finish:
            reason = f"The search was finished by {user or 'a user'}."
            self._steering.change(project, job_id, finish=reason)
            self._tell(job, f"{reason} No further trial starts, and those that run are stopped.")
        self._control.wake()
        return self._answer(job, tuning)

    def _running(self, project: str, job_id: str) -> tuple[Job, Tuning]:
        job = self._jobs.get(project, job_id)
        if job.tuning is None:
            raise FailedPreconditionError(f"Job {job_id} has no hyperparameters, and so no search.")
        if job.ended or job.state is JobState.CANCELLING:
            raise FailedPreconditionError(
                f"The search of job {job_id} has ended ({job.state}). Go on with it in a new job: "
                f"`trainshed tuning continue {job_id}`."
            )
        return job, job.tuning

    def _check_count(self, job: Job, max_trials: int) -> None:
        known = len(self._trials.of(job.project, job.id))
        earlier = max(0, self._jobs.last_trial(job.project, job.id) - known)
        if not 1 <= max_trials <= MAX_TRIALS - earlier:
            raise InvalidArgumentError(f"It is from 1 to {MAX_TRIALS - earlier}.", field="maxTrials")

    def _tell(self, job: Job, message: str) -> None:
        self._jobs.tell(job, JobEvent(kind=JobEventKind.TRIAL, message=message, time_us=self._clock()))
        self._control.wake()

    def _answer(self, job: Job, tuning: Tuning) -> dict[str, Any]:
        steering = self._steering.of(job.project, job.id)
        now = steering.applied(tuning)
        return {
            "job": job.id,
            "state": job.state.value,
            "maxTrials": now.max_trials,
            "maxParallelTrials": now.max_parallel,
            "finishing": bool(steering.finish),
            "points": [tuning.space.texts(each.point) for each in steering.points],
        }


def _check_new(point: Point, trials: Sequence[Trial], steering: Steering) -> None:
    key = point_key(point)
    if tried := next((trial for trial in trials if point_key(trial.point) == key), None):
        raise FailedPreconditionError(f"Trial {tried.number} has these values already ({tried.state}).")
    if any(point_key(each.point) == key for each in steering.points):
        raise FailedPreconditionError("These values wait for their trial already.")
