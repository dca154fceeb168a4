"""Rows of trials: what the search of a tuning job knows of them. Their jobs are rows of `jobs`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import orjson

from trainshed.domain.jobs.job import Job, JobEvent, JobEventKind
from trainshed.domain.tuning.space import Point
from trainshed.domain.tuning.steering import OwnPoint, Steering, SteeringChange
from trainshed.domain.tuning.trial import FolderState, Trial, TrialOutcome
from trainshed.node.crashpoints import crashpoint
from trainshed.store.database import Database, Transaction, load_queries, storable
from trainshed.store.jobs import JobStore, job_from_row, job_of, lock_and_tell, write_events
from trainshed.store.rows import ReadRows, read_rows
from trainshed.store.tuning.steering import SteeringStore, delete_point, hold_search, read_steering, write_change
from trainshed.store.tuning.trial_cache import TrialCache, read_trials

QUERY = load_queries("trials")


class TrialStore:
    """Rows of trials. Each is written together with the job that runs it. Thread-safe."""

    def __init__(self, database: Database, jobs: JobStore) -> None:
        self.steering = SteeringStore(database)  #: what people changed about the searches
        self._database = database
        self._jobs = jobs
        self._cache = TrialCache()

    def add(self, job: Job, point: Point, events: Iterable[JobEvent], *, own: OwnPoint | None = None) -> Job:
        """Store a new trial and its job. Raises `AlreadyExistsError` if its parent ever had a trial of this number.

        `own` is the user's point that the trial tries. It waits no longer then.
        """
        values = {
            "project": job.project,
            "job": job.parent,
            "number": job.trial,
            "point": orjson.dumps(dict(point)).decode(),
        }

        def insert(tx: Transaction) -> None:
            tx.run(QUERY["insert_trial"], values)
            if own is not None:
                delete_point(tx, job.project, job.parent, own.number)

        return self._jobs.add(job, events, insert)

    def of(self, project: str, job_id: str) -> Sequence[Trial]:
        """The trials of a tuning job by number, each with its job. Those whose rows are unreadable are left out."""
        with self._database.read() as tx:
            return self._cache.of(tx, project, job_id)

    def steer(
        self,
        project: str,
        job_id: str,
        decide: Callable[[Job, Sequence[Trial], Steering], SteeringChange],
        *,
        now_us: int,
    ) -> Job:
        """Write the change that `decide` returns for a search as it is, with its event, in one transaction.

        The search can't end, and nobody else can steer it, in between. Raises `NotFoundError` without the job, and
        what `decide` raises; then nothing is written. Returns the job.
        """
        with self._database.write() as tx:
            hold_search(tx, project, job_id)
            job = job_of(tx, project, job_id)
            change = decide(job, read_trials(tx, project, job_id), read_steering(tx, project, job_id))
            write_change(tx, project, job_id, change)
            if change.message:
                write_events(tx, job, [JobEvent(kind=JobEventKind.TRIAL, message=change.message, time_us=now_us)])
            crashpoint("search.steer.before_commit")
        crashpoint("search.steer.after_commit")
        return job

    def chain(self, job: Job) -> list[tuple[Job, Sequence[Trial]]]:
        """Return the tuning jobs whose search this one continues, with their trials, the nearest first."""
        chain: list[tuple[Job, Sequence[Trial]]] = []
        earlier = job.tuning.resume if job.tuning else ""
        while earlier and (found := self._jobs.find(job.project, earlier)) is not None and found.tuning is not None:
            chain.append((found, self.of(found.project, found.id)))
            earlier = found.tuning.resume
        return chain

    def set_outcome(self, trial: Trial, outcome: TrialOutcome) -> None:
        """Write what a trial reported. The first one counts."""
        self._set("set_outcome", trial, outcome=orjson.dumps(outcome.body()).decode())

    def set_stopped(self, trial: Trial, reason: str) -> None:
        """Write why a trial is stopped. The first reason counts."""
        self._set("set_stopped", trial, stopped=storable(reason))

    def _set(self, query: str, trial: Trial, **values: str) -> None:
        key = {"project": trial.job.project, "job": trial.job.parent, "number": trial.number}
        with self._database.write() as tx:
            tx.run(QUERY[query], key | values)

    def mark_folders(self, job: Job, trials: Iterable[Trial], event: JobEvent) -> None:
        """Write that the folders of these trials are to be removed, and the event that says so, in one transaction.

        What is written stays: a folder that is removed in part is not kept.
        """
        changed = {"folder": FolderState.REMOVING, "before": FolderState.KEPT}
        rows = [{"project": job.project, "job": job.id, "number": trial.number, **changed} for trial in trials]
        with self._database.write() as tx:
            tx.run_many(QUERY["set_folder"], rows)
            lock_and_tell(tx, job, (event,))

    def ended_with_folders(self, project: str, *, before_us: int) -> Sequence[Job]:
        """The searches of a project that ended before and have trials whose folders are kept."""
        values = {"project": project, "before_us": before_us}
        with self._database.read() as tx:
            jobs = read_rows(tx.rows(QUERY["ended_with_folders"], values), job_from_row).values
        return [job for job in jobs if job.tuning is not None]

    def folders_to_remove(self) -> Sequence[Job]:
        """The jobs of trials whose folders are marked, also those of searches that have ended."""
        with self._database.read() as tx:
            return read_rows(tx.rows(QUERY["folders_to_remove"]), job_from_row).values

    def set_folder_removed(self, trial: Job) -> None:
        """Write that the marked folder of a trial is gone."""
        key = {"project": trial.project, "job": trial.parent, "number": trial.trial}
        with self._database.write() as tx:
            tx.run(QUERY["set_folder"], {**key, "folder": FolderState.REMOVED, "before": FolderState.REMOVING})

    def active_jobs(self) -> ReadRows[Job]:
        """All tuning jobs that have not ended."""
        with self._database.read() as tx:
            return read_rows(tx.rows(QUERY["active_tuning_jobs"]), job_from_row)

    def abandoned(self) -> Sequence[Job]:
        """Trials' jobs that have not ended although their tuning job has."""
        with self._database.read() as tx:
            return read_rows(tx.rows(QUERY["abandoned_trials"]), job_from_row).values
