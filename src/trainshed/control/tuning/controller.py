"""The tuning controller: compares tuning jobs with their trials, decides with `plan`, starts, stops and ends them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace

from trainshed.background import BackgroundLoop, PassFailures
from trainshed.control.tuning.metrics import TrialReader
from trainshed.control.tuning.search import next_request
from trainshed.domain.jobs.failure import Failure, FailureCause
from trainshed.domain.jobs.failure_text import diagnose
from trainshed.domain.jobs.job import Job, JobEvent, JobEventKind
from trainshed.domain.jobs.reconcile import cancelled, end_events
from trainshed.domain.jobs.states import JobState
from trainshed.domain.times import now_us
from trainshed.domain.tuning.curves import early_stop
from trainshed.domain.tuning.hyperparameters import Tuning, trials_to_keep
from trainshed.domain.tuning.plan import (
    Become,
    CancelTrials,
    StartTrials,
    StopTrials,
    Wait,
    missing_metric_message,
    plan,
)
from trainshed.domain.tuning.search import SearchRequest, SearchResult
from trainshed.domain.tuning.space import Point
from trainshed.domain.tuning.steering import OwnPoint
from trainshed.domain.tuning.trial import Trial, TrialOutcome, removal_message, surplus_trials
from trainshed.domain.tuning.trial_job import trial_job
from trainshed.errors import CannotProceedError, WriteConflictError
from trainshed.node.crashpoints import crashpoint
from trainshed.store.jobs import JobStore
from trainshed.store.tuning.trials import TrialStore

LOG = logging.getLogger("trainshed.control.tuning.controller")

IDLE_INTERVAL_S = 5.0  #: between passes without a tuning job; a new one wakes the loop
ACTIVE_INTERVAL_S = 0.5  #: between passes while trials run: their metrics are read
MAX_ACTIONS = 8  #: for one job in one pass


class TuningController:
    """Runs tuning jobs. One thread owns the loop; `stop` and `join` end it. Trials keep running."""

    def __init__(
        self,
        jobs: JobStore,
        trials: TrialStore,
        reader: TrialReader,
        *,
        suggest: Callable[[SearchRequest], SearchResult],
        wake_jobs: Callable[[], None],
        wake_folders: Callable[[], None] = lambda: None,
        check: Callable[[], None] = lambda: None,
        clock: Callable[[], int] = now_us,
    ) -> None:
        """`suggest` finds the next points. `wake_jobs` wakes the job controller: a trial was queued or cancelled.

        `wake_folders` starts the removal of the folders that were marked. `check` runs before each pass, and raises
        `CannotProceedError` if this server may not act any more.
        """
        self._jobs = jobs
        self._trials = trials
        self._reader = reader
        self._suggest = suggest
        self._wake_jobs = wake_jobs
        self._wake_folders = wake_folders
        self._check = check
        self._clock = clock
        self._exhausted: set[tuple[str, str]] = set()  # tuning jobs whose spaces have no more points
        self._loop = BackgroundLoop("tuning-control", self._checked_step)

    def wake(self) -> None:
        """Start the next pass immediately. Thread-safe."""
        self._loop.wake()

    def current(self, job: Job) -> TrialOutcome | None:
        """Return what a trial that runs has reported so far. Returns None if nothing was read yet. Thread-safe."""
        return self._reader.current(job)

    def start(self) -> None:
        self._loop.start()

    def stop(self) -> None:
        self._loop.stop()

    def join(self) -> None:
        """Blocks until the loop ends. Call it after `stop`."""
        self._loop.join()

    def _checked_step(self) -> float:
        try:
            self._check()
        except CannotProceedError as exc:  # the job controller ends the server
            LOG.warning("tuning.refused reason=%s", exc)
            self._loop.stop()
            return 0.0
        return ACTIVE_INTERVAL_S if self.step() else IDLE_INTERVAL_S

    def step(self) -> bool:
        """Run one pass over all tuning jobs. Returns whether there are any.

        A job that fails is logged, and the next pass tries it again.
        """
        failures = PassFailures(LOG, "tuning.step_failed")
        for trial in self._trials.abandoned():
            self._cancel(trial)
        active = self._trials.active_jobs().values
        live: list[Job] = []
        for job in active:
            try:
                live += self._reconcile(job)
            except Exception as exc:  # noqa: BLE001 - logged with the job's name; others go on
                failures.add(job.name, exc)
        if not failures:
            self._reader.forget(live)
        self._exhausted &= {(job.project, job.id) for job in active}
        return bool(active)

    def _reconcile(self, job: Job) -> list[Job]:
        """Act for one tuning job until nothing is left to do now. Returns the jobs of trials that have not ended."""
        trials: Sequence[Trial] = ()
        for _ in range(MAX_ACTIONS):
            trials = self._read_outcomes(job, self._trials.of(job.project, job.id))
            self._mark_folders(job, trials)
            exhausted = (job.project, job.id) in self._exhausted
            steering = self._trials.steering.of(job.project, job.id)
            match plan(job, trials, exhausted=exhausted, now_us=self._clock(), steering=steering):
                case StartTrials(count=count):
                    self._start_trials(job, trials, count, steering.points)
                case StopTrials(reason=reason):
                    for trial in trials:
                        self._stop(trial, reason)
                    break
                case CancelTrials():
                    for trial in trials:
                        self._cancel(trial.job)
                    break
                case Become() as action:
                    changed = self._become(job, trials, action)
                    if changed is None or changed.ended:
                        break
                    job = changed
                case Wait():
                    self._watch(job, trials)
                    break
        return [trial.job for trial in trials if not trial.ended]

    def _become(self, job: Job, trials: Sequence[Trial], action: Become) -> Job | None:
        """Write the next state of a tuning job. Returns None on a write conflict: the next pass sees it."""
        now = self._clock()
        started = min((trial.job.started_us for trial in trials if trial.job.started_us), default=None)
        changed = job.to(action.state, now_us=now, started_us=started, failure=action.failure)
        events = end_events(changed, action.failure, now_us=now) if changed.ended else ()
        try:
            recorded = self._jobs.record(changed, events)
        except WriteConflictError:
            self._loop.wake()
            return None
        LOG.info("tuning.transitioned project=%s job=%s state=%s", job.project, job.id, changed.state)
        return recorded

    def _start_trials(self, job: Job, trials: Sequence[Trial], count: int, own: Sequence[OwnPoint]) -> None:
        """Create trials: of users' points first, then one suggestion for each.

        Asked again after a crash, a suggestion is the same one.
        """
        trials = list(trials)
        chain = self._trials.chain(job)
        for turn in range(count):
            request = next_request(job, trials, chain)
            if turn < len(own):
                trials.append(self._add_trial(job, request, own[turn].point, own[turn]))
                continue
            points = self._suggest(request).points
            if not points:
                self._exhausted.add((job.project, job.id))
                message = "All points of the search space were tried. No further trial starts."
                self._tell(job, message)
                return
            trials.append(self._add_trial(job, request, points[0]))
        self._wake_jobs()

    def _add_trial(self, job: Job, request: SearchRequest, point: Point, own: OwnPoint | None = None) -> Trial:
        texts, now = request.space.texts(point), self._clock()
        queued = trial_job(job, request.number, texts, now_us=now)
        message = f"Trial {request.number} is queued: {_values(texts)}."
        event = JobEvent(kind=JobEventKind.QUEUED, message=message, time_us=now)
        added = self._trials.add(queued, point, (event,), own=own)
        self._tell(job, message)
        LOG.info("tuning.trial_queued project=%s job=%s trial=%d", job.project, job.id, request.number)
        return Trial(number=request.number, point=point, job=added)

    def _read_outcomes(self, job: Job, trials: Sequence[Trial]) -> list[Trial]:
        """Return the trials with what those that have ended reported, which is written once."""
        tuning = _tuning(job)
        result = []
        for trial in trials:
            if trial.job.ended and trial.outcome is None:
                outcome = self._reader.final(trial.job, tuning.tag)
                self._trials.set_outcome(trial, outcome)
                trial = replace(trial, outcome=outcome)
                self._tell(job, ended_message(trial, tuning), severity="ERROR" if trial.failed else "INFO")
            result.append(trial)
        return result

    def _mark_folders(self, job: Job, trials: Sequence[Trial]) -> None:
        """Mark the folders that are not to stay. This happens before the job ends, so none is left afterwards."""
        keep = trials_to_keep(job.labels)
        if keep is None or not (surplus := surplus_trials(trials, _tuning(job), keep)):
            return
        self._trials.mark_folders(job, surplus, self._event(removal_message(surplus, keep)))
        crashpoint("tuning.folder.marked")
        self._wake_folders()

    def _watch(self, job: Job, trials: Sequence[Trial]) -> None:
        """Read the metrics of trials that run, and stop those that are to end before their time."""
        tuning = _tuning(job)
        current: dict[int, TrialOutcome] = {}
        for trial in trials:
            if trial.stopped:
                self._cancel(trial.job)
            elif trial.job.state is JobState.RUNNING:
                current[trial.number] = self._reader.update(trial.job, tuning.tag)
        if not tuning.early_stopping:
            return
        for trial in trials:
            if trial.number in current and (stop := early_stop(trial, current[trial.number], trials, tuning)):
                self._stop(trial, stop.reason)
                self._tell(job, f"Trial {trial.number} is stopped early. {stop.reason}")

    def _stop(self, trial: Trial, reason: str) -> None:
        """End a trial before its time. What it reported counts."""
        if not trial.job.ended:
            self._trials.set_stopped(trial, reason)
            self._cancel(trial.job)

    def _cancel(self, trial: Job) -> None:
        """Cancel the job of a trial, unless it has ended. A write conflict is for the next pass."""
        if trial.ended:
            return
        change = cancelled(trial, Failure(cause=FailureCause.CANCELLED), now_us=self._clock())
        if change is None:
            return
        try:
            self._jobs.record(*change)
        except WriteConflictError:
            self._loop.wake()
        self._wake_jobs()

    def _tell(self, job: Job, message: str, severity: str = "INFO") -> None:
        self._jobs.tell(job, self._event(message, severity))

    def _event(self, message: str, severity: str = "INFO") -> JobEvent:
        return JobEvent(kind=JobEventKind.TRIAL, message=message, time_us=self._clock(), severity=severity)


def _tuning(job: Job) -> Tuning:
    if job.tuning is None:
        raise TypeError(f"Job {job.id} is no tuning job.")
    return job.tuning


def _values(texts: dict[str, str]) -> str:
    return ", ".join(f"{name}={text}" for name, text in texts.items())


def ended_message(trial: Trial, tuning: Tuning) -> str:
    """Return how a trial ended, as a sentence."""
    subject = f"Trial {trial.number}"
    if trial.job.failure is not None and trial.failed:
        return f"{subject} failed. {diagnose(trial.job.failure, runtime=trial.job.runtime).summary}"
    if trial.outcome is not None and trial.outcome.diverged:
        return f"{subject} ended with a value of {tuning.tag!r} that is not finite. It has no final metric."
    if trial.final is not None:
        word = "was stopped" if trial.stopped_early else "ended"
        return (
            f"{subject} {word} with {tuning.tag} = {trial.final.value:.6g} at step {trial.final.step} "
            f"(from {trial.outcome.source if trial.outcome else ''})."
        )
    if trial.state is JobState.CANCELLED:
        return f"{subject} was cancelled."
    return missing_metric_message(tuning.tag, trial)
