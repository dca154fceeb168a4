"""The learning curves of a tuning job's trials, as the rules of early stopping take them."""

from __future__ import annotations

from collections.abc import Sequence

from trainshed.domain.tuning.early_stopping import CurvePoint, Stop, should_stop
from trainshed.domain.tuning.hyperparameters import Tuning
from trainshed.domain.tuning.trial import Trial, TrialOutcome


def early_stop(trial: Trial, current: TrialOutcome, trials: Sequence[Trial], tuning: Tuning) -> Stop | None:
    """Return why to stop a trial that runs, or None. Trials that ran to their end are what it is compared with."""
    completed = [
        (other, other.outcome)
        for other in trials
        if other.succeeded and other.final is not None and other.outcome is not None and not other.stopped_early
    ]
    outcomes = [*(outcome for _, outcome in completed), current]
    by_step = all(_steps_increase(outcome) for outcome in outcomes)
    curves = [_curve(other, outcome, tuning, by_step=by_step) for other, outcome in completed]
    return should_stop(_curve(trial, current, tuning, by_step=by_step), curves, sign=tuning.sign)


def _steps_increase(outcome: TrialOutcome) -> bool:
    """Whether steps tell how far a trial was. Some trainers report step 0 always."""
    steps = [each.step for each in outcome.measurements]
    return len(steps) < 2 or steps[-1] > steps[0]


def _curve(trial: Trial, outcome: TrialOutcome, tuning: Tuning, *, by_step: bool) -> list[CurvePoint]:
    start_us = trial.job.started_us or trial.job.created_us
    return [
        CurvePoint(each.step if by_step else (each.time_us - start_us) / 1e6, tuning.sign * each.value)
        for each in outcome.measurements
    ]
