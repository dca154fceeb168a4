"""Suggestions and stopping checks: operations that are done when they are answered."""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from trainshed.domain.operations import response
from trainshed.domain.times import now_us, rfc3339
from trainshed.domain.tuning.early_stopping import Curve, CurvePoint, gain_rule, median_rule
from trainshed.domain.tuning.search import Goal, SearchRequest, SearchResult
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
from trainshed.store.database import retry_on_conflict
from trainshed.store.tuning.studies import StudyStore

_MAX_LOCKS = 1024  #: of studies, the latest ones


class Suggestions:
    """Gives trials to clients, and says which ones should stop. Thread-safe: no two clients get one trial."""

    def __init__(self, store: StudyStore, suggester: Suggester) -> None:
        self._store = store
        self._suggester = suggester
        self._locks = _StudyLocks()

    def suggest(self, key: StudyKey, body: Mapping[str, Any]) -> dict[str, Any]:
        """Give trials to a client: those it has, then those that users requested, then new ones.

        Raises `ResourceExhaustedError` if the space is used up or the study is full.
        """
        count, client = read_suggest(body)
        with self._locks.of(key):
            return retry_on_conflict(lambda: self._suggest(key, client, count))

    def _suggest(self, key: StudyKey, client: str, count: int) -> dict[str, Any]:
        started_us = now_us()
        study, trials = self._store.with_trials(key)
        mine = [trial for trial in trials if trial.state is TrialState.ACTIVE and trial.client == client][:count]
        requested = [trial for trial in trials if trial.state is TrialState.REQUESTED][: count - len(mine)]
        changed = [trial.started(client, now_us=started_us) for trial in requested]
        new, state = self._new_trials(study, trials, client, count - len(mine) - len(changed))
        given = [*mine, *changed, *new]
        if not given:
            if state is not study.state:
                self._store.change(study, state=state)
            raise ResourceExhaustedError(_used_up(study, trials))
        metadata = {"study": key.name, "clientId": client, "suggestionCount": count}
        result = {"trials": [trial.body(study) for trial in given], "studyState": state}
        operation = _operation(key, "SuggestTrials", metadata, result, started_us)
        self._store.change(study, state=state, new=new, changed=changed, operation=operation, now_us=started_us)
        return operation

    def _new_trials(
        self, study: Study, trials: list[StudyTrial], client: str, wanted: int
    ) -> tuple[list[StudyTrial], StudyState]:
        """Return new trials, as many as wanted if there are as many left, and the state of the study with them."""
        wanted = min(wanted, MAX_TRIALS - len(trials))
        if wanted <= 0:
            return [], StudyState.COMPLETED if len(trials) >= MAX_TRIALS else study.state
        result = self._points(study, trials, wanted)
        started_us = now_us()
        new = [
            StudyTrial(number=study.last_trial + 1 + index, point=point, state=TrialState.REQUESTED).started(
                client, now_us=started_us
            )
            for index, point in enumerate(result.points)
        ]
        full = result.exhausted or len(trials) + len(new) >= MAX_TRIALS
        return new, StudyState.COMPLETED if full else StudyState.ACTIVE

    def _points(self, study: Study, trials: list[StudyTrial], count: int) -> SearchResult:
        request = SearchRequest(
            space=study.config.space,
            algorithm=study.config.algorithm,
            goals=study.config.goals,
            observations=measured_points(study.config, trials),
            pending=tuple(trial.point for trial in trials if trial.state is not TrialState.COMPLETED),
            count=count,
            seed=study.key.name,
            number=study.last_trial + 1,
        )
        return self._suggester.suggest(request)

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


class _StudyLocks:
    """A lock for each study. Thread-safe."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._locks: OrderedDict[StudyKey, threading.Lock] = OrderedDict()

    @contextmanager
    def of(self, key: StudyKey) -> Iterator[None]:
        """Hold the lock of a study. Rows are guarded too, so a lock that was forgotten costs a retry at most."""
        with self._guard:
            lock = self._locks.pop(key, None) or threading.Lock()
            self._locks[key] = lock
            if len(self._locks) > _MAX_LOCKS:
                self._locks.popitem(last=False)
        with lock:
            yield
