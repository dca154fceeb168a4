"""Tuning jobs: their trials as the API shows them, the stop of one trial, and searches that go on in a new job."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trainshed.domain.jobs.failure_text import diagnose
from trainshed.domain.jobs.job import Job, JobEvent, JobEventKind
from trainshed.domain.jobs.states import JobState
from trainshed.domain.jobs.training import Training
from trainshed.domain.times import now_us, rfc3339
from trainshed.domain.tuning.hyperparameters import MAX_TRIALS, Tuning, inherit
from trainshed.domain.tuning.trial import Trial, TrialMeasurement, TrialOutcome, best_first
from trainshed.errors import FailedPreconditionError, NotFoundError
from trainshed.services.ports import TuningControl
from trainshed.store.jobs import JobStore
from trainshed.store.tuning.trials import TrialStore

_RESUME_FIELD = "hyperparameters.resume_previous_job_id"


class TuningJobs:
    """The trials of tuning jobs. Thread-safe."""

    def __init__(
        self, jobs: JobStore, trials: TrialStore, control: TuningControl, *, clock: Callable[[], int] = now_us
    ) -> None:
        self._jobs = jobs
        self._trials = trials
        self._control = control
        self._clock = clock

    def wake(self) -> None:
        """Start the next pass of the tuning controller: a tuning job was created or is to be cancelled."""
        self._control.wake()

    def output(self, job: Job) -> dict[str, Any]:
        """Return the trainingOutput of a job. It is empty if the job tunes nothing."""
        if job.tuning is None:
            return {}
        trials = self._trials.of(job.project, job.id)
        return {
            "completedTrialCount": str(sum(trial.succeeded for trial in trials)),
            "trials": [_output_body(trial, job.tuning) for trial in best_first(trials, job.tuning)],
            "consumedMLUnits": round(sum(_replica_hours(trial.job, self._clock()) for trial in trials), 2),
            "isHyperparameterTuningJob": True,
            "hyperparameterMetricTag": job.tuning.tag,
        }

    def resumed(self, project: str, training: Training) -> Training:
        """Return a training with what it takes from the tuning job that it names, if it names one.

        Raises `FailedPreconditionError` if that is no tuning job of this project, or has not ended.
        """
        if training.tuning is None or not training.tuning.resume:
            return training
        earlier = self._jobs.find(project, training.tuning.resume)
        if earlier is None or earlier.tuning is None:
            raise FailedPreconditionError(
                f"There is no tuning job {training.tuning.resume} in project {project} to go on with.",
                field=_RESUME_FIELD,
            )
        if not earlier.ended:
            raise FailedPreconditionError(
                f"Job {earlier.id} is {earlier.state}. Its search can be continued when it has ended.",
                field=_RESUME_FIELD,
            )
        if (last := self._jobs.last_trial(project, earlier.id)) + training.tuning.max_trials > MAX_TRIALS:
            raise FailedPreconditionError(
                f"A search has {MAX_TRIALS} trials at most, and this one has {last} already.", field=_RESUME_FIELD
            )
        own = training.input["hyperparameters"]
        merged = inherit(own, earlier.training.input["hyperparameters"])
        return Training.parse({**training.input, "hyperparameters": merged})

    def trials(self, project: str, job_id: str) -> dict[str, Any]:
        """Return all trials of a tuning job, by number, with what is known of each."""
        job, tuning = self._tuning_job(project, job_id)
        trials, now = self._trials.of(project, job_id), self._trials.steering.of(project, job_id).applied(tuning)
        best = next((trial for trial in best_first(trials, tuning) if trial.final), None)
        return {
            "job": job.id,
            "state": job.state.value,
            "goal": tuning.goal.value,
            "metric": tuning.tag,
            "maxTrials": now.max_trials,
            "maxParallelTrials": now.max_parallel,
            "best": best.number if best else None,
            "trials": [self._body(trial, tuning) for trial in trials],
        }

    def stop(self, project: str, job_id: str, number: int, *, user: str) -> dict[str, Any]:
        """Stop a trial, and keep what it has. Returns immediately. Idempotent.

        Raises `NotFoundError` if there is no such trial, and `FailedPreconditionError` if it has ended.
        """
        job, tuning = self._tuning_job(project, job_id)
        trial = next((each for each in self._trials.of(project, job_id) if each.number == number), None)
        if trial is None:
            raise NotFoundError(f"Job {job_id} has no trial {number}.")
        if trial.job.ended:
            raise FailedPreconditionError(f"Trial {number} of job {job_id} has ended ({trial.state}).")
        if not trial.stopped:
            reason = f"Stopped by {user}." if user else "Stopped by a user."
            self._trials.set_stopped(trial, reason)
            message = f"Trial {number} is being stopped. {reason}"
            self._jobs.tell(job, JobEvent(kind=JobEventKind.TRIAL, message=message, time_us=self._clock()))
        self._control.wake()
        return self._body(trial, tuning)

    def _tuning_job(self, project: str, job_id: str) -> tuple[Job, Tuning]:
        job = self._jobs.get(project, job_id)
        if job.tuning is None:
            raise FailedPreconditionError(f"Job {job_id} has no hyperparameters, and so no trials.")
        return job, job.tuning

    def _body(self, trial: Trial, tuning: Tuning) -> dict[str, Any]:
        outcome = trial.outcome or self._control.current(trial.job) or TrialOutcome()
        return {
            "trial": trial.number,
            "state": trial.state.value,
            "hyperparameters": tuning.space.texts(trial.point),
            "attempt": trial.job.attempt,
            "startTime": rfc3339(trial.job.started_us) if trial.job.started_us else None,
            "endTime": rfc3339(trial.job.ended_us) if trial.job.ended_us else None,
            "finalMetric": _point(trial.final),
            "lastMetric": _point(outcome.measurements[-1] if outcome.measurements else None),
            "source": outcome.source,
            "stoppedEarly": trial.stopped_early,
            "reason": trial.stopped or failure_summary(trial),
            "folder": trial.folder.value,
            "measurements": [_point(each) for each in outcome.measurements],
        }


def _output_body(trial: Trial, tuning: Tuning) -> dict[str, Any]:
    """Return a trial as HyperparameterOutput of the API."""
    body: dict[str, Any] = {"trialId": str(trial.number), "hyperparameters": tuning.space.texts(trial.point)}
    if trial.final is not None:
        body["finalMetric"] = {"trainingStep": str(trial.final.step), "objectiveValue": trial.final.value}
    if trial.job.started_us:
        body["startTime"] = rfc3339(trial.job.started_us)
    if trial.job.ended_us:
        body["endTime"] = rfc3339(trial.job.ended_us)
    body["state"] = trial.state.value
    return body | ({"isTrialStoppedEarly": True} if trial.stopped_early else {})


def _point(measurement: TrialMeasurement | None) -> dict[str, Any] | None:
    if measurement is None:
        return None
    return {"time": rfc3339(measurement.time_us), "step": measurement.step, "value": measurement.value}


def failure_summary(trial: Trial) -> str:
    """Why a trial failed, in a sentence. Empty if it did not."""
    if trial.job.failure is None or trial.job.state is not JobState.FAILED:
        return ""
    return diagnose(trial.job.failure, runtime=trial.job.runtime).summary


def _replica_hours(job: Job, now: int) -> float:
    if job.started_us is None:
        return 0.0
    return job.replicas * ((job.ended_us or now) - job.started_us) / 3.6e9
