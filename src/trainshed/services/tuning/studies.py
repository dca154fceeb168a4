"""Studies and their trials: create, read, measure, complete, stop and delete."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from trainshed.domain.times import now_us
from trainshed.domain.tuning.study import (
    MAX_TRIALS,
    RUNNING,
    Measurement,
    Study,
    StudyConfig,
    StudyKey,
    StudyTrial,
    TrialState,
    optimal_trials,
)
from trainshed.domain.tuning.study_request import (
    measurement,
    read_added,
    read_completion,
    read_study,
    read_trial,
    study_id,
    trial_values,
)
from trainshed.errors import FailedPreconditionError, InvalidArgumentError, NotFoundError, ResourceExhaustedError
from trainshed.store.database import retry_on_conflict
from trainshed.store.tuning.studies import StudyStore


class Studies:
    """The studies of all projects. Thread-safe."""

    def __init__(self, store: StudyStore) -> None:
        self._store = store

    def create(self, project: str, location: str, study: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Create a study. Raises `AlreadyExistsError` if its id is taken."""
        key = StudyKey(project=project, location=location, id=study_id(study))
        return self._store.add(Study(key=key, config=read_study(body), created_us=now_us())).body()

    def get(self, key: StudyKey) -> dict[str, Any]:
        return self._store.get(key).body()

    def all(self, project: str, location: str) -> list[dict[str, Any]]:
        """Return all studies of a location, newest first."""
        return [study.body() for study in self._store.all(project, location)]

    def delete(self, key: StudyKey) -> None:
        """Delete a study with all of its trials."""
        self._store.delete(key)

    def operation(self, project: str, location: str, operation_id: str) -> dict[str, Any]:
        """Return an operation of a study. It is done."""
        return self._store.operation(project, location, operation_id)

    # -- trials

    def trials(self, key: StudyKey) -> list[dict[str, Any]]:
        """Return all trials in the order of their numbers."""
        study, trials = self._store.with_trials(key, measurements=True)
        return [trial.body(study) for trial in trials]

    def optimal_trials(self, key: StudyKey) -> list[dict[str, Any]]:
        """Return the trials that are not worse than another one in all metrics."""
        study, trials = self._store.with_trials(key, measurements=True)
        return [trial.body(study) for trial in optimal_trials(study.config, trials)]

    def trial(self, key: StudyKey, number: str) -> dict[str, Any]:
        study, trial = self._store.trial(key, _number(key, number))
        return trial.body(study)

    def create_trial(self, key: StudyKey, body: Mapping[str, Any]) -> dict[str, Any]:
        """Create a trial of the user's: the result of one that has ended, or else the next suggestion."""
        sent = read_trial(body)

        def attempt() -> dict[str, Any]:
            study, trials = self._store.with_trials(key)
            if len(trials) >= MAX_TRIALS:
                raise ResourceExhaustedError(f"The study has {len(trials)} trials; {MAX_TRIALS} are allowed.")
            point = study.config.space.read_point(trial_values(sent), "trial.parameters")
            trial = StudyTrial(number=study.last_trial + 1, point=point, state=TrialState.REQUESTED)
            if sent.get("state") == TrialState.COMPLETED:
                trial = _imported(study.config, trial, sent)
            self._store.change(study, state=study.state, new=[trial])
            return trial.body(study)

        return retry_on_conflict(attempt)

    def delete_trial(self, key: StudyKey, number: str) -> None:
        self._store.get(key)
        self._store.delete_trial(key, _number(key, number))

    def add_measurement(self, key: StudyKey, number: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Add a measurement to a trial that runs. One at the same step and time is replaced."""
        added = read_added(body)

        def attempt() -> dict[str, Any]:
            study, trial = self._running(key, number, "measured")
            self._store.measure(key, trial, added)
            others = [each for each in trial.measurements if _place(each) != _place(added)]
            measured = replace(trial, measurements=tuple(sorted([*others, added], key=_place)))
            return measured.body(study)

        return retry_on_conflict(attempt)

    def complete(self, key: StudyKey, number: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Complete a trial that runs, with a final measurement, with its last one, or as infeasible."""
        final, infeasible, reason = read_completion(body)

        def attempt() -> dict[str, Any]:
            study, trial = self._running(key, number, "completed")
            last = final or (trial.measurements[-1] if trial.measurements else None)
            if not infeasible:
                last = _complete_measurement(study.config, last, "final_measurement")
            completed = replace(
                trial.completed(last, now_us=now_us()),
                infeasible=infeasible,
                infeasible_reason=reason if infeasible else "",
            )
            self._store.record(key, completed)
            return completed.body(study)

        return retry_on_conflict(attempt)

    def stop(self, key: StudyKey, number: str) -> dict[str, Any]:
        """Ask the client of a trial to stop it. Does nothing if the trial is to be stopped already, or has ended."""

        def attempt() -> dict[str, Any]:
            study, trial = self._store.trial(key, _number(key, number))
            if trial.state in (TrialState.ACTIVE, TrialState.REQUESTED):
                trial = replace(trial, state=TrialState.STOPPING)
                self._store.record(key, trial)
            return trial.body(study)

        return retry_on_conflict(attempt)

    def _running(self, key: StudyKey, number: str, verb: str) -> tuple[Study, StudyTrial]:
        study, trial = self._store.trial(key, _number(key, number))
        if trial.state not in RUNNING:
            raise FailedPreconditionError(
                f"Trial {trial.number} is {trial.state} and can't be {verb}. Only ACTIVE and STOPPING ones can."
            )
        return study, trial


def _number(key: StudyKey, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise NotFoundError(f"There is no trial {text[:80]} in study {key.name}.")
    return int(text)


def _place(each: Measurement) -> tuple[int, int]:
    return each.step, each.elapsed_us


def _imported(config: StudyConfig, trial: StudyTrial, sent: Mapping[str, Any]) -> StudyTrial:
    """A trial of the user's that has ended."""
    infeasible = bool(sent.get("trialInfeasible"))
    final = None
    if "finalMeasurement" in sent:
        final = measurement(sent["finalMeasurement"], "trial.final_measurement")
    if not infeasible:
        final = _complete_measurement(config, final, "trial.final_measurement")
    now = now_us()
    started = replace(trial.started(str(sent.get("clientId", "")), now_us=now), infeasible=infeasible)
    reason = str(sent.get("infeasibleReason", "")) if infeasible else ""
    return replace(started.completed(final, now_us=now), infeasible_reason=reason)


def _complete_measurement(config: StudyConfig, final: Measurement | None, field: str) -> Measurement:
    """Return the final measurement. Raises `InvalidArgumentError` if there is none, or one without all metrics."""
    if final is None:
        raise InvalidArgumentError(
            "The trial has no measurement. Send a finalMeasurement, or trialInfeasible if it has no value.",
            field=field,
        )
    missing = [metric.name for metric in config.metrics if metric.name not in final.metrics]
    if missing:
        raise InvalidArgumentError(
            f"The final measurement has no value of {missing[0]!r}, a metric of the study. Send it, or "
            f"trialInfeasible if there is none.",
            field=f"{field}.metrics",
        )
    return final
