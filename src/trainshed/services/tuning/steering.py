"""Steering of a search while it runs: change its bounds, try a point of one's own, finish it with what it has."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from trainshed.domain.jobs.job import Job
from trainshed.domain.jobs.states import JobState
from trainshed.domain.times import now_us
from trainshed.domain.tuning.hyperparameters import MAX_TRIALS, Tuning
from trainshed.domain.tuning.space import Point, point_key
from trainshed.domain.tuning.steering import Steering, SteeringChange, read_own_point
from trainshed.domain.tuning.trial import Trial
from trainshed.errors import FailedPreconditionError, InvalidArgumentError
from trainshed.services.ports import TuningControl
from trainshed.store.jobs import JobStore
from trainshed.store.tuning.trials import TrialStore


class SearchSteering:
    """Writes rows and an event that names the user, in one transaction. Thread-safe.

    The tuning controller acts on them.
    """

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
        self._control = control
        self._clock = clock

    def change(
        self, project: str, job_id: str, *, max_trials: int | None, max_parallel: int | None, user: str
    ) -> dict[str, Any]:
        """Change how many trials a search has, or how many run at a time. Idempotent.

        Trials that run beyond a smaller number go on. Raises `InvalidArgumentError` for a number out of range, and
        `FailedPreconditionError` if the search has ended.
        """
        if max_trials is None and max_parallel is None:
            raise InvalidArgumentError("Nothing is to be changed. Give `maxTrials` or `maxParallelTrials`.")
        if max_parallel is not None and not 1 <= max_parallel <= MAX_TRIALS:
            raise InvalidArgumentError(f"It is from 1 to {MAX_TRIALS}.", field="maxParallelTrials")

        def decide(job: Job, trials: Sequence[Trial], steering: Steering) -> SteeringChange:
            before = steering.applied(_running(job))
            if max_trials is not None:
                self._check_count(job, trials, max_trials)
            changes = (
                ("maxTrials", before.max_trials, max_trials),
                ("maxParallelTrials", before.max_parallel, max_parallel),
            )
            said = [f"{name} is {new}, it was {old}" for name, old, new in changes if new not in (None, old)]
            message = f"{'. '.join(said)}. Changed by {user or 'a user'}." if said else ""
            return SteeringChange(max_trials=max_trials, max_parallel=max_parallel, message=message)

        return self._steer(project, job_id, decide)

    def try_point(self, project: str, job_id: str, values: Mapping[str, object], *, user: str) -> dict[str, Any]:
        """Make a point the next trial. If no trial is left for it, `maxTrials` grows by one.

        Raises `InvalidArgumentError` for a point outside of the space, and `FailedPreconditionError` for one that was
        tried, and if the search has ended.
        """

        def decide(job: Job, trials: Sequence[Trial], steering: Steering) -> SteeringChange:
            tuning = _running(job)
            point = read_own_point(tuning.space, values, "hyperparameters")
            _check_new(point, trials, steering)
            needed = len(trials) + len(steering.points) + 1
            grows = needed > steering.applied(tuning).max_trials
            if grows:
                self._check_count(job, trials, needed)
            shown = ", ".join(f"{name}={text}" for name, text in tuning.space.texts(point).items())
            message = f"{shown} is tried next. Given by {user or 'a user'}."
            return SteeringChange(max_trials=needed if grows else None, point=point, message=message)

        return self._steer(project, job_id, decide)

    def finish(self, project: str, job_id: str, *, user: str) -> dict[str, Any]:
        """Stop all trials of a search and keep what they reported. Idempotent. Returns immediately.

        Raises `FailedPreconditionError` if the search has ended.
        """

        def decide(job: Job, trials: Sequence[Trial], steering: Steering) -> SteeringChange:
            _running(job)
            if steering.finish:
                return SteeringChange()
            reason = f"The search was finished by {user or 'a user'}."
            message = f"{reason} No further trial starts, and those that run are stopped."
            return SteeringChange(finish=reason, message=message)

        return self._steer(project, job_id, decide)

    def _steer(
        self, project: str, job_id: str, decide: Callable[[Job, Sequence[Trial], Steering], SteeringChange]
    ) -> dict[str, Any]:
        job = self._trials.steer(project, job_id, decide, now_us=self._clock())
        self._control.wake()
        tuning, steering = _running(job), self._trials.steering.of(project, job_id)
        now = steering.applied(tuning)
        return {
            "job": job.id,
            "state": job.state.value,
            "maxTrials": now.max_trials,
            "maxParallelTrials": now.max_parallel,
            "finishing": bool(steering.finish),
            "points": [tuning.space.texts(each.point) for each in steering.points],
        }

    def _check_count(self, job: Job, trials: Sequence[Trial], max_trials: int) -> None:
        earlier = max(0, self._jobs.last_trial(job.project, job.id) - len(trials))
        if not 1 <= max_trials <= MAX_TRIALS - earlier:
            raise InvalidArgumentError(f"It is from 1 to {MAX_TRIALS - earlier}.", field="maxTrials")


def _running(job: Job) -> Tuning:
    """Return what a job searches for. Raises `FailedPreconditionError` if it does not search, or not any more."""
    if job.tuning is None:
        raise FailedPreconditionError(f"Job {job.id} has no hyperparameters, and so no search.")
    if job.ended or job.state is JobState.CANCELLING:
        raise FailedPreconditionError(
            f"The search of job {job.id} has ended ({job.state}). Go on with it in a new job: "
            f"`trainshed tuning continue {job.id}`."
        )
    return job.tuning


def _check_new(point: Point, trials: Sequence[Trial], steering: Steering) -> None:
    key = point_key(point)
    if tried := next((trial for trial in trials if point_key(trial.point) == key), None):
        raise FailedPreconditionError(f"Trial {tried.number} has these values already ({tried.state}).")
    if any(point_key(each.point) == key for each in steering.points):
        raise FailedPreconditionError("These values wait for their trial already.")
