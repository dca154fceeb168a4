"""Suggestions and stopping checks: operations that are done when they are answered."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from trainshed.domain.operations import response
from trainshed.domain.times import now_us, rfc3339
from trainshed.domain.tuning.early_stopping import Curve, CurvePoint, gain_rule, median_rule
from trainshed.domain.tuning.search import Goal, SearchRequest
from trainshed.domain.tuning.space import Point
from trainshed.domain.tuning.study import (
    MAX_TRIALS,
    RUNNING,
    StoppingRule,
    Study,
    StudyKey,
    StudyState,
    StudyTrial,
    TrialState,
    measured_points,
)
from trainshed.domain.tuning.study_request import read_suggest
from trainshed.errors import FailedPreconditionError, NotFoundError, ResourceExhaustedError
from trainshed.services.ports import Suggester
from trainshed.services.tuning.asks import Answer, Ask, StudyQueues
from trainshed.store.database import retry_on_conflict
from trainshed.store.tuning.studies import StudyStore


class Suggestions:
    """Gives trials to clients, and says which ones should stop. Thread-safe: no two clients get one trial.

    Clients of one study that ask while a suggestion is computed wait, and are answered together: one fit of the model
    and one transaction serve all of them.
    """

    def __init__(self, store: StudyStore, suggester: Suggester) -> None:
        self._store = store
        self._suggester = suggester
        self._queues = StudyQueues()

    def suggest(self, key: StudyKey, body: Mapping[str, Any]) -> dict[str, Any]:
        """Give trials to a client: those it has, then those that users requested, then new ones.

        Raises `ResourceExhaustedError` if the space is used up or the study is full.
        """
        count, client = read_suggest(body)
        return self._queues.of(key).answer(
            Ask(client=client, count=count),
            lambda asks: retry_on_conflict(lambda: self._suggest(key, asks)),
        )

    def _suggest(self, key: StudyKey, asks: Sequence[Ask]) -> list[Answer]:
        """Return an operation for each client, or an error if there is no trial for it."""
        started_us = now_us()
        study, trials = self._store.with_trials(key)
        given, changed = _given(asks, trials, now_us=started_us)
        wanted = [ask.count - len(own) for ask, own in zip(asks, given, strict=True)]
        points, state = self._points(study, trials, sum(wanted))
        new: list[StudyTrial] = []
        for ask, own, count in zip(asks, given, wanted, strict=True):
            for point in points[len(new) : len(new) + count]:
                trial = StudyTrial(number=study.last_trial + 1 + len(new), point=point, state=TrialState.REQUESTED)
                own.append(trial.started(ask.client, now_us=now_us()))
                new.append(own[-1])
        operations = [
            _suggestion(study, state, ask, own, started_us) for ask, own in zip(asks, given, strict=True) if own
        ]
        if operations or state is not study.state:
            self._store.change(study, state=state, new=new, changed=changed, operations=operations, now_us=started_us)
        following = iter(operations)
        return [next(following) if own else ResourceExhaustedError(_used_up(study, trials)) for own in given]

    def _points(self, study: Study, trials: list[StudyTrial], wanted: int) -> tuple[Sequence[Point], StudyState]:
        """Return new points, as many as wanted if there are as many left, and the state of the study with them."""
        wanted = min(wanted, MAX_TRIALS - len(trials))
        if wanted <= 0:
            return (), StudyState.COMPLETED if len(trials) >= MAX_TRIALS else study.state
        request = SearchRequest(
            space=study.config.space,
            algorithm=study.config.algorithm,
            goals=study.config.goals,
            observations=measured_points(study.config, trials),
            pending=tuple(trial.point for trial in trials if trial.state is not TrialState.COMPLETED),
            count=wanted,
            seed=study.key.name,
            number=study.last_trial + 1,
        )
        result = self._suggester.suggest(request)
        full = result.exhausted or len(trials) + len(result.points) >= MAX_TRIALS
        return result.points, StudyState.COMPLETED if full else StudyState.ACTIVE

    def check_early_stopping(self, key: StudyKey, number: str) -> dict[str, Any]:
        """Say whether a trial should stop. Its client decides, and calls `stop` then."""
        started_us = now_us()
        study, trials = self._store.with_trials(key, measurements=True)
        trial = next((each for each in trials if str(each.number) == number), None)
        if trial is None:
            raise NotFoundError(f"There is no trial {number[:80]} in study {key.name}.")
        if trial.state not in RUNNING:
            raise FailedPreconditionError(f"Trial {trial.number} is {trial.state}. Only a trial that runs can stop.")
        stop = trial.state is TrialState.STOPPING or _stops_early(study, trial, trials)
        metadata = {"study": key.name, "trial": f"{key.trial_prefix}{number}"}
        operation = _operation(key, "CheckTrialEarlyStoppingState", metadata, {"shouldStop": stop}, started_us)
        self._store.add_operation(key, operation, now_us=started_us)
        return operation


def _given(
    asks: Sequence[Ask], trials: Sequence[StudyTrial], *, now_us: int
) -> tuple[list[list[StudyTrial]], list[StudyTrial]]:
    """Return the trials there are for each client: those it has, then requested ones. The latter also by themselves."""
    requested = [trial for trial in trials if trial.state is TrialState.REQUESTED]
    given: list[list[StudyTrial]] = []
    changed: list[StudyTrial] = []
    for ask in asks:
        own = [trial for trial in trials if trial.state is TrialState.ACTIVE and trial.client == ask.client]
        own = own[: ask.count]
        missing = ask.count - len(own)
        started = [trial.started(ask.client, now_us=now_us) for trial in requested[:missing]]
        requested = requested[missing:]
        changed += started
        given.append([*own, *started])
    return given, changed


def _suggestion(
    study: Study, state: StudyState, ask: Ask, trials: Sequence[StudyTrial], started_us: int
) -> dict[str, Any]:
    metadata = {"study": study.key.name, "clientId": ask.client, "suggestionCount": ask.count}
    result = {"trials": [trial.body(study) for trial in trials], "studyState": state}
    return _operation(study.key, "SuggestTrials", metadata, result, started_us)


def _stops_early(study: Study, trial: StudyTrial, trials: list[StudyTrial]) -> bool:
    """Return what the study's stopping rule says of a trial. Only the first metric counts."""
    if study.config.stopping is StoppingRule.NONE:
        return False
    completed = [each for each in trials if each.state is TrialState.COMPLETED and not each.infeasible]
    curves = [curve for curve in (_curve(study, each) for each in completed) if curve]
    own = _curve(study, trial)
    if study.config.stopping is StoppingRule.MEDIAN or not curves:
        return median_rule(own, curves) is not None
    metric, sign = study.config.metrics[0].name, _direction(study)
    best = max(sign * each.final.metrics[metric] for each in completed if each.final is not None)
    return gain_rule(own, curves, best=best) is not None


def _direction(study: Study) -> int:
    return 1 if study.config.metrics[0].goal is Goal.MAXIMIZE else -1


def _curve(study: Study, trial: StudyTrial) -> Curve:
    metric, sign = study.config.metrics[0].name, _direction(study)
    return [
        CurvePoint(each.elapsed_us if study.config.by_elapsed_time else each.step, sign * each.metrics[metric])
        for each in trial.measurements
        if metric in each.metrics
    ]


def _used_up(study: Study, trials: list[StudyTrial]) -> str:
    if len(trials) >= MAX_TRIALS:
        return f"Study {study.key.id} has {MAX_TRIALS} trials, the most that a study can have."
    return f"All points of study {study.key.id} were suggested; its space has {study.config.space.size}."


def _operation(
    key: StudyKey, verb: str, metadata: Mapping[str, Any], result: Mapping[str, Any], started_us: int
) -> dict[str, Any]:
    """An operation that is done."""
    times = {"startTime": rfc3339(started_us), "endTime": rfc3339(now_us())}
    prefix = f"projects/{key.project}/locations/{key.location}/operations"
    return {
        "name": f"{prefix}/{secrets.randbits(62)}",
        "metadata": response(f"{verb}Metadata", {**metadata, "createTime": rfc3339(started_us)}),
        "done": True,
        "response": response(f"{verb}Response", {**result, **times}),
    }
