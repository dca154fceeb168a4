"""Trials as they were read last: of a search with many, only the rows that have changed since are read again."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from trainshed.domain.tuning.trial import FolderState, Trial, TrialOutcome
from trainshed.store.database import Transaction, load_queries
from trainshed.store.jobs import job_from_row
from trainshed.store.rows import read_rows

QUERY = load_queries("trials")
MAX_POINTS = 200_000  #: measurements of all trials that are kept, as many as the largest search has

#: what differs if the rows of a trial do. Each write of its job counts its generation up
Mark = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class _Kept:
    mark: Mark
    trial: Trial


class TrialCache:
    """The trials of the searches that were read last. Thread-safe."""

    def __init__(self, max_points: int = MAX_POINTS) -> None:
        self._max_points = max_points
        self._lock = threading.Lock()
        self._searches: OrderedDict[tuple[str, str], dict[int, _Kept]] = OrderedDict()
        self._points: dict[tuple[str, str], int] = {}

    def of(self, tx: Transaction, project: str, job_id: str) -> list[Trial]:
        """The trials of a tuning job, as `read_trials` reads them. Unchanged ones are the same objects as before.

        `tx` has written nothing: what is never committed must not be kept.
        """
        key = (project, job_id)
        marks = {row["number"]: tuple(row.values()) for row in tx.rows(QUERY["trial_marks"], _search(project, job_id))}
        with self._lock:
            kept = self._searches.get(key, {})
        changed = [number for number, mark in marks.items() if number not in kept or kept[number].mark != mark]
        if changed:
            found = read_trials(tx, project, job_id, first=min(changed), last=max(changed))
            wanted = set(changed)
            kept = {**kept, **{each.number: _Kept(marks[each.number], each) for each in found if each.number in wanted}}
        current = {
            number: kept[number] for number, mark in marks.items() if number in kept and kept[number].mark == mark
        }
        self._keep(key, current)
        return [each.trial for each in current.values()]

    def _keep(self, key: tuple[str, str], trials: dict[int, _Kept]) -> None:
        points = sum(len(each.trial.outcome.measurements) for each in trials.values() if each.trial.outcome)
        with self._lock:
            self._searches[key], self._points[key] = trials, len(trials) + points
            self._searches.move_to_end(key)
            while self._searches and sum(self._points.values()) > self._max_points:
                oldest, _ = self._searches.popitem(last=False)
                del self._points[oldest]


def read_trials(tx: Transaction, project: str, job_id: str, *, first: int = 0, last: int = 2**31 - 1) -> list[Trial]:
    """Read trials of a tuning job by number, each with its job. Those whose rows are unreadable are left out."""
    key = {**_search(project, job_id), "first": first, "last": last}
    trials, jobs = tx.rows(QUERY["trials_of"], key), tx.rows(QUERY["jobs_of"], key)
    by_number = {job.trial: job for job in read_rows(jobs, job_from_row).values}
    return [
        Trial(
            number=row["number"],
            point=orjson.loads(row["point"]),
            job=by_number[row["number"]],
            outcome=TrialOutcome.parse(orjson.loads(row["outcome"])) if row["outcome"] else None,
            stopped=row["stopped"],
            folder=FolderState(row["folder"]),
        )
        for row in trials
        if row["number"] in by_number
    ]


def _search(project: str, job_id: str) -> Mapping[str, str]:
    return {"project": project, "job": job_id}
