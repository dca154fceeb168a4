"""Rows of jobs and their events."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import orjson
import sqlalchemy as sa

from trainshed.domain.jobs.failure import Failure
from trainshed.domain.jobs.job import Job, JobEvent, JobEventKind
from trainshed.domain.jobs.states import TERMINAL_STATES, JobState
from trainshed.domain.jobs.workload import Workload, parse_workload, workload_body
from trainshed.errors import AlreadyExistsError, NotFoundError, WriteConflictError
from trainshed.node.crashpoints import crashpoint
from trainshed.store.database import Database, Transaction, is_duplicate, load_queries, storable
from trainshed.store.group_commit import GroupCommit
from trainshed.store.queue_index import JobKey, QueueIndex, QueueSnapshot
from trainshed.store.rows import ReadRows, parse_row, read_page, read_rows

QUERY = load_queries("jobs")
MAX_PARSED_WORKLOADS = 16_384  #: kept in memory; a list of all jobs finds them there
MAX_KEPT_CHARACTERS = 4096  #: of a stored workload; a longer one is parsed at each read, which bounds the memory


class JobStore:
    """Rows of jobs. Each write is one transaction, which holds a job together with the events of its transition.

    What it knows of the queue is right as long as all writes go through one store.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._group_commit = GroupCommit(database)
        self._queue_index = QueueIndex(database)

    def add(self, job: Job, events: Iterable[JobEvent], also: Callable[[Transaction], object] = lambda tx: None) -> Job:
        """Store a new job, and what `also` writes, in one transaction. Concurrent calls share a commit.

        Raises `AlreadyExistsError` if its project ever had a job with this id.
        """
        row, history, added = _values(job), _event_values(job, events), job

        try:
            with self._queue_index.change() as put_in_index:

                def insert(tx: Transaction) -> None:
                    nonlocal added
                    tx.run(QUERY["insert_job"], row)
                    tx.run_many(QUERY["insert_event"], history)
                    [stored] = tx.rows(QUERY["order_of"], {"project": job.project, "id": job.id})
                    added = replace(job, order_us=stored["order_us"])
                    also(tx)
                    put_in_index(added)
                    crashpoint("job.create.before_commit")

                self._group_commit.run(insert)
        except sa.exc.IntegrityError as exc:
            if not is_duplicate(exc):
                raise
            raise AlreadyExistsError("A job with this id already exists.", field="job.job_id") from exc
        crashpoint("job.create.after_commit")
        return added

    def is_active(self, project: str, job_id: str) -> bool:
        """Whether the job exists and has not ended."""
        try:
            return self.get(project, job_id).state not in TERMINAL_STATES
        except NotFoundError:
            return False

    def get(self, project: str, job_id: str) -> Job:
        with self._database.read() as tx:
            return job_of(tx, project, job_id)

    def find(self, project: str, job_id: str) -> Job | None:
        """The job. Returns None if it does not exist, or if its row is unreadable, which is logged once."""
        with self._database.read() as tx:
            rows = tx.rows(QUERY["get_job"], {"project": project, "id": job_id})
        return next(iter(read_rows(rows, job_from_row).values), None)

    def keys(self) -> set[tuple[str, str]]:
        """Project and id of all jobs."""
        with self._database.read() as tx:
            return {(row["project"], row["id"]) for row in tx.rows(QUERY["job_keys"])}

    def live_of_user(self, user: str) -> list[JobKey]:
        """Project and id of all jobs of a user that have not ended, without trials. The newest come first."""
        with self._database.read() as tx:
            return [(row["project"], row["id"]) for row in tx.rows(QUERY["live_of_user"], {"user": user})]

    def record(self, job: Job, events: Iterable[JobEvent] = ()) -> Job:
        """Write a changed job. Raises `WriteConflictError` if the row changed since it was read."""
        with self._queue_index.change() as put_in_index, self._database.write() as tx:
            if tx.run(QUERY["update_job"], _values(job)) == 0:
                raise WriteConflictError(f"Job {job.id} was changed by someone else; read it again.")
            write_events(tx, job, events)
            put_in_index(job)
        return replace(job, generation=job.generation + 1)

    def tell(self, job: Job, *events: JobEvent) -> None:
        """Add events to a job's history without changing the job.

        Events of one job are numbered in the order in which they become visible. A reader that continues from a number
        misses none.
        """
        with self._database.write() as tx:
            lock_and_tell(tx, job, events)

    def page(self, project: str, *, before: tuple[int, str], limit: int) -> Sequence[Job]:
        """Up to `limit` readable jobs older than `before` (its order_us and id), newest first."""
        values = {"project": project, "before_us": before[0], "before_id": before[1]}
        with self._database.read() as tx:
            return read_page(tx, QUERY["list_jobs"], values, job_from_row, limit=limit).values

    def active(self) -> Sequence[Job]:
        """All jobs that may have processes, of every project. Unreadable ones are left out."""
        return self.active_rows().values

    def active_rows(self) -> ReadRows[Job]:
        """All jobs that may have processes, and the rows of those that are unreadable."""
        with self._database.read() as tx:
            return read_rows(tx.rows(QUERY["active_jobs"]), job_from_row)

    def runtime_in_use(self, runtime: str) -> bool:
        """Whether a job that may have processes uses a runtime."""
        active = self.active_rows()
        return any(job.runtime == runtime for job in active.values) or any(
            row["runtime"] == runtime for row in active.unreadable
        )

    def queued(self, engine: str) -> QueueSnapshot:
        """The queued jobs of an engine, also those whose rows are unreadable. Reads no row."""
        return self._queue_index.snapshot(engine)

    def queue_version(self, engine: str) -> int:
        """The version that `queued` would have now. Reads no row."""
        return self._queue_index.version(engine)

    def pass_over(self, engine: str, keys: Iterable[JobKey], *, time_us: int) -> None:
        """Record that queued jobs of an engine were passed over, unless that is recorded already."""
        passed_over = dict.fromkeys(keys, time_us)
        if not passed_over:
            return
        with self._database.write() as tx:
            tx.run_many(
                QUERY["pass_over"],
                [{"project": project, "id": job_id, "time_us": time_us} for project, job_id in passed_over],
            )
        self._queue_index.mark_passed_over(engine, passed_over)

    def last_trial(self, project: str, job_id: str) -> int:
        """The highest number of a trial of a tuning job. Returns 0 if there is none."""
        with self._database.read() as tx:
            [row] = tx.rows(QUERY["last_trial"], {"project": project, "parent": job_id})
        return int(row["last"])

    def events(self, project: str, job_id: str) -> Sequence[JobEvent]:
        with self._database.read() as tx:
            rows = tx.rows(QUERY["events_of"], {"project": project, "job": job_id})
        return [
            JobEvent(
                kind=JobEventKind(row["kind"]),
                message=row["message"],
                time_us=row["time_us"],
                severity=row["severity"],
                subject=row["subject"],
                seq=row["seq"],
            )
            for row in rows
        ]

    def event_spans(self, project: str) -> Mapping[str, tuple[int, int]]:
        """Times of the first and last event of each job of a project, by job id."""
        with self._database.read() as tx:
            rows = tx.rows(QUERY["event_spans"], {"project": project})
        return {row["job"]: (row["first_us"], row["last_us"]) for row in rows}


def job_from_row(row: Mapping[str, Any]) -> Job:
    """The job of a row. Raises `DataLossError` if it can't be parsed."""
    return parse_row(row, _parse_job, name=f"job {row['id']} of project {row['project']}")


def _parse_job(row: Mapping[str, Any]) -> Job:
    values = dict(row)
    values |= {
        "workload": _workload(values.pop("body")),
        "labels": orjson.loads(row["labels"]),
        "state": JobState(row["state"]),
        "failure": Failure.parse(json.loads(row["failure"])) if row["failure"] else None,
        "user": values.pop("user_name"),
    }
    return Job(**values)


def _workload(text: str) -> Workload:
    """The typed form of a stored workload. It never changes and is immutable, so one value serves every read."""
    return _parsed(text) if len(text) <= MAX_KEPT_CHARACTERS else _parse(text)


def _parse(text: str) -> Workload:
    return parse_workload(orjson.loads(text))


_parsed = lru_cache(MAX_PARSED_WORKLOADS)(_parse)


def _values(job: Job) -> dict[str, Any]:
    return {
        "project": job.project,
        "id": job.id,
        "body": orjson.dumps(workload_body(job.workload)).decode(),
        "labels": orjson.dumps(job.labels).decode(),
        "state": job.state.value,
        "priority": job.priority,
        "attempt": job.attempt,
        "runtime": job.runtime,
        "engine": job.engine,
        "created_us": job.created_us,
        "started_us": job.started_us,
        "ended_us": job.ended_us,
        "failure": json.dumps(job.failure.body()) if job.failure else None,
        "generation": job.generation,
        "user_name": job.user,
        "replicas": job.replicas,
        "passed_over_us": job.passed_over_us,
        "parent": job.parent,
        "trial": job.trial,
    }


def job_of(tx: Transaction, project: str, job_id: str) -> Job:
    """Return a job. Raises `NotFoundError` if it does not exist."""
    rows = tx.rows(QUERY["get_job"], {"project": project, "id": job_id})
    if not rows:
        raise NotFoundError(f"There is no job {job_id} in project {project}.")
    return job_from_row(rows[0])


def lock_and_tell(tx: Transaction, job: Job, events: Iterable[JobEvent]) -> None:
    """Add events to the history of a job whose row the transaction does not hold yet."""
    tx.lock(QUERY["lock_job"], {"project": job.project, "id": job.id})
    write_events(tx, job, events)


def write_events(tx: Transaction, job: Job, events: Iterable[JobEvent]) -> None:
    """Add events to a job's history. The transaction holds the job's row."""
    tx.run_many(QUERY["insert_event"], _event_values(job, events))


def _event_values(job: Job, events: Iterable[JobEvent]) -> list[dict[str, Any]]:
    return [
        {
            "project": job.project,
            "job": job.id,
            "time_us": event.time_us,
            "kind": event.kind.value,
            "subject": storable(event.subject),
            "severity": event.severity,
            "message": storable(event.message),
        }
        for event in events
    ]
