"""The next action for a tuning job, as a pure function of the job and its trials."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from trainshed.domain.jobs.failure import Failure, FailureCause
from trainshed.domain.jobs.failure_text import diagnose
from trainshed.domain.jobs.job import Job
from trainshed.domain.jobs.states import JobState
from trainshed.domain.tuning.hyperparameters import Tuning
from trainshed.domain.tuning.steering import Steering
from trainshed.domain.tuning.trial import Trial

FAILURES_BEFORE_SUCCESS = 5  #: a bug in every trial ends the job early
_MAX_TAGS_SHOWN = 10


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing to do until a trial changes."""


@dataclass(frozen=True, slots=True)
class StartTrials:
    """Create this many trials."""

    count: int


@dataclass(frozen=True, slots=True)
class StopTrials:
    """Stop the trials that run, and keep what they reported."""

    reason: str


@dataclass(frozen=True, slots=True)
class CancelTrials:
    """End all trials that have not ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Become:
    """Write the tuning job in another state."""

    state: JobState
    failure: Failure | None = None


Action = Wait | StartTrials | StopTrials | CancelTrials | Become
_UNCHANGED = Steering()


def plan(job: Job, trials: Sequence[Trial], *, exhausted: bool, now_us: int, steering: Steering = _UNCHANGED) -> Action:
    """The next action for a tuning job that has not ended. A pure function.

    `exhausted`: the space has no point that was not tried. `steering`: what people changed since it was submitted.
    """
    if job.tuning is None:
        raise TypeError(f"Job {job.id} is no tuning job.")
    tuning = steering.applied(job.tuning)
    live = [trial for trial in trials if not trial.ended]
    verdict = _verdict(job, tuning, trials, now_us=now_us)
    if verdict is not None:
        return CancelTrials() if any(not trial.job.ended for trial in live) else Wait() if live else verdict
    if (follow := _followed_state(job, trials)) is not job.state:
        return Become(state=follow)
    if steering.finish and any(not trial.stopped for trial in live):
        return StopTrials(steering.finish)
    exhausted = exhausted and not steering.points
    complete = steering.finish or exhausted or len(trials) >= tuning.max_trials
    if not complete:
        missing = min(tuning.max_parallel - len(live), tuning.max_trials - len(trials))
        return StartTrials(missing) if missing > 0 else Wait()
    return Wait() if live else _end(trials, finished=bool(steering.finish))


def _followed_state(job: Job, trials: Sequence[Trial]) -> JobState:
    """The state that follows from the trials, one legal transition at a time."""
    if job.state is JobState.QUEUED and any(trial.job.attempt for trial in trials):
        return JobState.PREPARING
    if job.state is JobState.PREPARING and any(trial.job.started_us or trial.job.ended for trial in trials):
        return JobState.RUNNING
    return job.state


def _verdict(job: Job, tuning: Tuning, trials: Sequence[Trial], *, now_us: int) -> Become | None:
    """How the job ends before all its trials have run. It stays the same while trials are cancelled for it."""
    if job.state is JobState.CANCELLING:
        return Become(state=JobState.CANCELLED)
    ended = sorted(
        (trial for trial in trials if trial.ended), key=lambda trial: (trial.job.ended_us or 0, trial.number)
    )
    failure = _metric_missing(tuning, ended) or _too_many_failures(tuning, ended)
    if failure is not None:
        return Become(state=JobState.FAILED, failure=failure)
    limit_s = job.training.max_running_s
    if job.started_us is not None and now_us - job.started_us > limit_s * 1e6:
        return Become(
            state=JobState.CANCELLED, failure=Failure(cause=FailureCause.TIME_LIMIT, facts={"limit_s": limit_s})
        )
    return None


def _metric_missing(tuning: Tuning, ended: Sequence[Trial]) -> Failure | None:
    """The first trial that succeeds must have a value of the metric, unless some trial may fail."""
    first = next((trial for trial in ended if trial.succeeded), None)
    if (
        tuning.max_failed
        or first is None
        or first.outcome is None
        or first.outcome.measurements
        or first.outcome.diverged
    ):
        return None
    return Failure(cause=FailureCause.METRIC_MISSING, message=missing_metric_message(tuning.tag, first))


def missing_metric_message(tag: str, trial: Trial) -> str:
    """Why a trial that succeeded has no value, with what it did report."""
    tags = trial.outcome.tags if trial.outcome else ()
    opening = f"Trial {trial.number} ended without a value of {tag!r}, the hyperparameterMetricTag of this job."
    if trial.outcome and trial.outcome.problem:
        opening = f"{opening} {trial.outcome.problem}"
        if not tags:
            return opening
    if not tags:
        return (
            f"{opening} It reported no metric at all. Write scalar summaries below --job-dir, or call "
            f"hypertune.HyperTune().report_hyperparameter_tuning_metric()."
        )
    shown = ", ".join(repr(each) for each in tags[:_MAX_TAGS_SHOWN])
    more = f" and {len(tags) - _MAX_TAGS_SHOWN} more" if len(tags) > _MAX_TAGS_SHOWN else ""
    nearest = nearest_tag(tag, tags)
    return f"{opening} It reported {shown}{more}. The nearest is {nearest!r}: set hyperparameterMetricTag to it."


def nearest_tag(tag: str, tags: Sequence[str]) -> str:
    """The tag that is most like another one; one that ends with it, if there is one."""
    ends = [each for each in tags if each.lower().endswith(tag.lower().rpartition("/")[2])]
    return ends[0] if ends else get_close_matches(tag, tags, n=1, cutoff=0.0)[0]


def _too_many_failures(tuning: Tuning, ended: Sequence[Trial]) -> Failure | None:
    """Failed trials fail the job: `max_failed` of them, or 5 before the first success, or more than half of all."""
    missed = [trial for trial in ended if tuning.max_failed and trial.succeeded and trial.final is None]
    failed = [trial for trial in ended if trial.failed] + missed
    if tuning.max_failed:
        return _trials_failed(failed) if len(failed) >= tuning.max_failed else None
    first_success = next((number for number, trial in enumerate(ended) if trial.succeeded), len(ended))
    before = [trial for trial in ended[:first_success] if trial.failed]
    if len(before) >= FAILURES_BEFORE_SUCCESS:
        return _trials_failed(failed)
    return _trials_failed(failed) if len(failed) * 2 > tuning.max_trials else None


def _trials_failed(failed: Sequence[Trial]) -> Failure:
    """The failure of the job: the commonest cause of its trials, with one of them as an example."""
    causes = {trial.number: _cause(trial) for trial in failed}
    [(cause, count)] = Counter(causes.values()).most_common(1)
    example = next(number for number, each in causes.items() if each == cause)
    number = "A trial failed" if len(failed) == 1 else f"{len(failed)} trials failed"
    common = "" if len(failed) == 1 else f" {count} of them alike, such as trial {example}."
    return Failure(cause=FailureCause.TRIALS_FAILED, message=f"{number}.{common} {cause}")


def _cause(trial: Trial) -> str:
    if trial.job.failure is None:
        return "It ended without a value of the metric."
    diagnosis = diagnose(trial.job.failure, runtime=trial.job.runtime)
    return " ".join(part for part in (diagnosis.summary, diagnosis.remedy) if part)


def _end(trials: Sequence[Trial], *, finished: bool) -> Become:
    """All trials have ended: the job succeeded if one of them did. One that was finished without any is cancelled."""
    if any(trial.succeeded for trial in trials):
        return Become(state=JobState.SUCCEEDED)
    failed = [trial for trial in trials if trial.failed]
    if finished:
        return Become(state=JobState.CANCELLED, failure=Failure(cause=FailureCause.CANCELLED))
    if failed:
        return Become(state=JobState.FAILED, failure=_trials_failed(failed))
    cancelled = Failure(cause=FailureCause.TRIALS_FAILED, message="All trials were stopped before they had a value.")
    return Become(state=JobState.FAILED, failure=cancelled)
