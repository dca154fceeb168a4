"""Searches as people look at them: one table for a tuning job or a study, and the list of studies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from trainshed.domain.jobs.job import Job
from trainshed.domain.page_tokens import bad_page_token, decode_page_token, encode_page_token
from trainshed.domain.times import rfc3339
from trainshed.domain.tuning.hyperparameters import Tuning
from trainshed.domain.tuning.search import Goal
from trainshed.domain.tuning.search_table import (
    MAX_CURVE_POINTS,
    CurveValue,
    TrialRow,
    column_body,
    columns_of,
    curves_body,
    optimal_numbers,
)
from trainshed.domain.tuning.space import ParameterSpec
from trainshed.domain.tuning.study import (
    MAX_TRIALS,
    Measurement,
    Study,
    StudyConfig,
    StudyKey,
    StudyState,
    StudyTrial,
    TrialState,
    objective_values,
)
from trainshed.domain.tuning.trial import Trial, TrialOutcome
from trainshed.errors import FailedPreconditionError, InvalidArgumentError
from trainshed.services.jobs.tuning import failure_summary
from trainshed.services.paging import START
from trainshed.services.ports import TuningControl
from trainshed.store.jobs import JobStore
from trainshed.store.tuning.studies import StudyStore
from trainshed.store.tuning.trials import TrialStore

DEFAULT_STUDIES = 20
MAX_STUDIES = 50
DEFAULT_POINTS = MAX_CURVE_POINTS


class SearchTables:
    """Thread-safe."""

    def __init__(self, jobs: JobStore, trials: TrialStore, studies: StudyStore, control: TuningControl) -> None:
        self._jobs = jobs
        self._trials = trials
        self._studies = studies
        self._control = control

    def of_job(self, project: str, job_id: str, *, points: int = DEFAULT_POINTS) -> dict[str, Any]:
        """Return a tuning job's search with all trials of the jobs that it continues."""
        job, tuning, chain = self._chain(project, job_id)
        now = self._trials.steering.of(project, job_id).applied(tuning)
        rows = [row for owner, trials in reversed(chain) for row in self._rows(owner, trials, tuning)]
        return {
            "name": job.id,
            "location": "",
            "state": job.state.value,
            "ended": job.ended,
            "jobs": [owner.id for owner, _ in reversed(chain)],
            "maxTrials": now.max_trials,
            "maxParallelTrials": now.max_parallel,
            "earlyStopping": tuning.early_stopping,
            "algorithm": tuning.algorithm.value,
            "createTime": rfc3339(job.created_us),
            "metrics": [{"name": tuning.tag, "goal": tuning.goal.value}],
            **_trials_body(rows, (tuning.sign,), columns_of(tuning.space), points),
        }

    def version_of_job(self, project: str, job_id: str, *, points: int = DEFAULT_POINTS) -> str:
        """Return a text that differs whenever `of_job` does, in a fraction of its time."""
        _, _, chain = self._chain(project, job_id)
        trials = [self._trial_version(trial) for _, trials in chain for trial in trials]
        owners = [(owner.id, owner.generation) for owner, _ in chain]
        return repr((points, owners, self._trials.steering.of(project, job_id), trials))

    def _trial_version(self, trial: Trial) -> tuple[object, ...]:
        read = (trial.number, trial.job.generation, trial.stopped, trial.outcome is not None)
        current = None if trial.outcome else self._control.current(trial.job)
        if current is None:
            return read
        return (*read, len(current.measurements), current.measurements[-1:], current.source)

    def _chain(self, project: str, job_id: str) -> tuple[Job, Tuning, list[tuple[Job, Sequence[Trial]]]]:
        """Return a tuning job, what it searches for, and the jobs of its search with their trials, itself first."""
        job = self._jobs.get(project, job_id)
        if job.tuning is None:
            raise FailedPreconditionError(f"Job {job_id} has no hyperparameters, and so no trials.")
        return job, job.tuning, [(job, self._trials.of(project, job_id)), *self._trials.chain(job)]

    def of_study(self, key: StudyKey, *, points: int = DEFAULT_POINTS) -> dict[str, Any]:
        """Return a study with its trials."""
        study, trials = self._studies.with_trials(key, measurements=True)
        rows = [_study_row(study.config, trial) for trial in trials]
        return {
            "name": key.id,
            "location": key.location,
            "state": study.state.value,
            "ended": study.state is not StudyState.ACTIVE,
            "jobs": [],
            "maxTrials": MAX_TRIALS,
            "maxParallelTrials": None,
            "earlyStopping": bool(study.config.stopping),
            "algorithm": study.config.algorithm.value,
            "createTime": rfc3339(study.created_us),
            "metrics": [{"name": metric.name, "goal": metric.goal.value} for metric in study.config.metrics],
            **_trials_body(rows, _signs(study.config), columns_of(study.config.space), points),
        }

    def studies(self, project: str, *, page_size: int = DEFAULT_STUDIES, page_token: str = "") -> dict[str, Any]:
        """Return a page of the studies of all locations, newest first, with their counts and best values."""
        if not 1 <= page_size <= MAX_STUDIES:
            raise InvalidArgumentError(f"`pageSize` is a number of studies from 1 to {MAX_STUDIES}.", field="pageSize")
        before = START
        if page_token:
            match decode_page_token(page_token):
                case [int(created_us), str(place)] if 0 <= created_us < 2**63:
                    before = created_us, place
                case _:
                    raise bad_page_token()
        found = self._studies.page(project, before=before, limit=page_size + 1)
        page = found[:page_size]
        body: dict[str, Any] = {"studies": [self._listed(study) for study in page]}
        if len(found) > len(page):
            key = page[-1].key
            body["nextPageToken"] = encode_page_token((page[-1].created_us, f"{key.location}/{key.id}"))
        return body

    def _listed(self, study: Study) -> dict[str, Any]:
        _, trials = self._studies.with_trials(study.key)
        completed = [trial for trial in trials if trial.state is TrialState.COMPLETED]
        best = None
        if len(study.config.metrics) == 1:
            [sign] = _signs(study.config)
            values = [values[0] for trial in completed if (values := objective_values(study.config, trial))]
            best = max(values, key=lambda value: sign * value, default=None)
        return {
            "study": study.key.id,
            "location": study.key.location,
            "state": study.state.value,
            "createTime": rfc3339(study.created_us),
            "metrics": [{"name": metric.name, "goal": metric.goal.value} for metric in study.config.metrics],
            "parameters": len(columns_of(study.config.space)),
            "trials": len(trials),
            "completed": len(completed),
            "best": best,
        }

    def _rows(self, job: Job, trials: Sequence[Trial], tuning: Tuning) -> Iterator[TrialRow]:
        """Yield the trials of a job. Values of an earlier job that searched for something else do not count."""
        own = job.tuning is not None and (job.tuning.tag, job.tuning.goal) == (tuning.tag, tuning.goal)
        for trial in trials:
            outcome = (trial.outcome or self._control.current(trial.job) or TrialOutcome()) if own else TrialOutcome()
            start_us = trial.job.started_us or trial.job.created_us
            curve = [
                CurveValue(each.step, (each.time_us - start_us) / 1e6, each.value) for each in outcome.measurements
            ]
            yield TrialRow(
                number=trial.number,
                job=job.id,
                state=trial.state.value,
                point=trial.point,
                values=[trial.final.value if own and trial.final else None],
                last_values=[curve[-1].value if curve else None],
                started_us=trial.job.started_us,
                ended_us=trial.job.ended_us,
                stopped_early=trial.stopped_early,
                reason=trial.stopped or failure_summary(trial),
                client="",
                curve=curve,
            )


def _trials_body(
    rows: Sequence[TrialRow], signs: Sequence[int], columns: Sequence[ParameterSpec], points: int
) -> dict[str, Any]:
    if not 0 <= points <= MAX_CURVE_POINTS:
        raise InvalidArgumentError(f"`points` is a number from 0 to {MAX_CURVE_POINTS}.", field="points")
    return {
        "optimal": optimal_numbers(rows, signs),
        "parameters": [column_body(column) for column in columns],
        "trials": [row.body(columns) for row in rows],
        **curves_body(rows, points),
    }


def _signs(config: StudyConfig) -> tuple[int, ...]:
    return tuple(1 if goal is Goal.MAXIMIZE else -1 for goal in config.goals)


def _study_row(config: StudyConfig, trial: StudyTrial) -> TrialRow:
    finals = objective_values(config, trial) if trial.state is TrialState.COMPLETED else None
    last = trial.measurements[-1] if trial.measurements else trial.final
    first = config.metrics[0].name
    return TrialRow(
        number=trial.number,
        job="",
        state=trial.state.value,
        point=trial.point,
        values=finals or [None] * len(config.metrics),
        last_values=[last.metrics.get(metric.name) if last else None for metric in config.metrics],
        started_us=trial.started_us or None,
        ended_us=trial.ended_us or None,
        stopped_early=False,
        reason=trial.infeasible_reason or ("It was reported as infeasible." if trial.infeasible else ""),
        client=trial.client,
        curve=list(_curve(trial.measurements, first)),
    )


def _curve(measurements: Sequence[Measurement], metric: str) -> Iterator[CurveValue]:
    for each in measurements:
        if metric in each.metrics:
            yield CurveValue(step=each.step, seconds=each.elapsed_us / 1e6, value=each.metrics[metric])
