"""Removes what projects no longer keep: logs, attempts, folders of trials and request logs, after a number of days."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from trainshed.attempts.log_file import LOG_NAME
from trainshed.background import BackgroundLoop, PassFailures
from trainshed.buckets.backend import ObjectBackend
from trainshed.buckets.dirfd import NOT_FOUND_ERRNOS, open_directory, remove_tree
from trainshed.buckets.names import split_uri
from trainshed.domain.access.quotas import RETENTION, AppliedLimit, QuotaName
from trainshed.domain.jobs.job import Job, JobEvent, JobEventKind
from trainshed.domain.models.version import Version
from trainshed.domain.objects import ListQuery, Preconditions
from trainshed.domain.times import now_us
from trainshed.domain.tuning.trial import Trial, best_first, surplus_trials
from trainshed.errors import NotFoundError, PermissionDeniedError
from trainshed.store.jobs import JobStore
from trainshed.store.models import ModelStore
from trainshed.store.tuning.trials import TrialStore

LOG = logging.getLogger("trainshed.control.retention")

INTERVAL_S = 3600.0  #: between two passes
FIRST_DELAY_S = 60.0  #: after the start, when there is more urgent work
_DAY_US = 86_400_000_000
_REQUEST_LOG = re.compile(r"\d{4}-\d\d-\d\d/[^/]+\.jsonl")  #: below the folder of a model


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionStores:
    """The rows that say what is old, and what is still needed."""

    jobs: JobStore
    trials: TrialStore
    models: ModelStore
    projects: Callable[[], Iterable[str]]  #: all that have jobs or models
    limits: Callable[[str], Sequence[AppliedLimit]]  #: of a project
    owner: Callable[[str], str]  #: the project of a bucket; raises `NotFoundError`


class RetentionSweeper:
    """Removes what is older than a project keeps it. One thread owns the loop; `stop` and `join` end it.

    Only what belongs to jobs that have ended is touched, so nothing can need it again, and a pass that is cut short at
    any step is repeated by the next one. The best trial of a search keeps its folder and its attempts. So do trials
    that a version was deployed from. `check` raises if this server may not act any more.
    """

    def __init__(
        self,
        stores: RetentionStores,
        objects: ObjectBackend,
        attempts: Path,
        *,
        wake_folders: Callable[[], None] = lambda: None,
        check: Callable[[], None] = lambda: None,
        clock: Callable[[], int] = now_us,
    ) -> None:
        """`attempts` has a folder for each project and job. `wake_folders` is called when trials were marked."""
        self._stores = stores
        self._objects = objects
        self._attempts = attempts
        self._wake_folders = wake_folders
        self._check = check
        self._clock = clock
        self._is_first = True
        self._loop = BackgroundLoop("retention", self._step)
        self._sweeps: Mapping[QuotaName, Callable[[str, int], None]] = {
            QuotaName.LOG_DAYS: self._sweep_logs,
            QuotaName.ATTEMPT_DAYS: self._sweep_attempts,
            QuotaName.TRIAL_DAYS: self._sweep_trials,
            QuotaName.REQUEST_LOG_DAYS: self._sweep_request_logs,
        }

    def start(self) -> None:
        self._loop.start()

    def stop(self) -> None:
        self._loop.stop()

    def join(self) -> None:
        """Blocks until the loop ends. Call it after `stop`."""
        self._loop.join()

    def _step(self) -> float:
        if self._is_first:
            self._is_first = False
            return FIRST_DELAY_S
        self.sweep()
        return INTERVAL_S

    def sweep(self) -> None:
        """Remove all that is too old. What can't be removed is logged, and the next pass tries it again."""
        self._check()
        failures = PassFailures(LOG, "retention.failed")
        for project in self._stores.projects():
            for limit in self._stores.limits(project):
                if limit.name not in RETENTION or self._loop.stopping.is_set():
                    continue
                try:
                    self._sweeps[limit.name](project, limit.value)
                except Exception as exc:  # noqa: BLE001 - logged with the project's name; others go on
                    failures.add(f"{project}/{limit.name}", exc)

    def _before(self, days: int) -> int:
        return self._clock() - days * _DAY_US

    # -- attempts on this machine

    def _sweep_logs(self, project: str, days: int) -> None:
        for job in self._old_jobs(project, days):
            logs = [path for path in (self._attempts / project / job.id).glob(f"*/{LOG_NAME}") if path.is_file()]
            if logs:
                self._tell(job, f"Its output is removed: project {project} keeps it for {days} days (log-days).")
            for path in logs:
                path.unlink(missing_ok=True)
                LOG.info("retention.log_removed project=%s job=%s", project, job.id)

    def _sweep_attempts(self, project: str, days: int) -> None:
        best: dict[str, int] = {}  # the number of the best trial, by search
        for job in self._old_jobs(project, days):
            if job.trial and job.parent not in best:
                best[job.parent] = self._best_trial(project, job.parent)
            if job.trial and job.trial == best[job.parent]:
                continue
            self._tell(
                job,
                f"The files of its attempts are removed: project {project} keeps them for {days} days (attempt-days).",
            )
            with open_directory(self._attempts, (project,)) as folder:
                remove_tree(job.id, folder=folder)
            LOG.info("retention.attempts_removed project=%s job=%s", project, job.id)

    def _old_jobs(self, project: str, days: int) -> Iterable[Job]:
        """Yield the jobs that have folders and ended before. A trial counts as its search does."""
        before = self._before(days)
        try:
            folders = sorted(path.name for path in (self._attempts / project).iterdir() if path.is_dir())
        except OSError as exc:
            if exc.errno not in NOT_FOUND_ERRNOS:
                raise
            return
        for name in folders:
            job = self._stores.jobs.find(project, name)
            search = job if job is None or not job.parent else self._stores.jobs.find(project, job.parent)
            if job is None or search is None or not job.ended or not search.ended:
                continue
            if (search.ended_us or before) < before and not self._loop.stopping.is_set():
                yield job

    def _best_trial(self, project: str, job_id: str) -> int:
        """Return the number of the best trial of a search. 0 if none has a value."""
        search, trials = self._stores.jobs.find(project, job_id), self._stores.trials.of(project, job_id)
        if search is None or search.tuning is None or not any(trial.final for trial in trials):
            return 0
        return best_first(trials, search.tuning)[0].number

    def _tell(self, job: Job, message: str) -> None:
        """Write into the history of a job what becomes of it, once. Trials have none."""
        events = self._stores.jobs.events(job.project, job.id)
        if not job.parent and message not in [event.message for event in events[-4:]]:
            self._stores.jobs.tell(job, JobEvent(kind=JobEventKind.NOTE, message=message, time_us=self._clock()))

    # -- folders of trials

    def _sweep_trials(self, project: str, days: int) -> None:
        used = self._deployed(project)
        for search in self._stores.trials.ended_with_folders(project, before_us=self._before(days)):
            assert search.tuning is not None  # the query finds searches alone
            trials = self._stores.trials.of(project, search.id)
            keep = 1 if any(trial.final for trial in trials) else 0
            surplus = [each for each in surplus_trials(trials, search.tuning, keep) if not _is_used(each, used)]
            if not surplus:
                continue
            message = (
                f"The folders of {len(surplus)} trials are removed: project {project} keeps them for {days} days "
                f"(trial-days). The best trial keeps its own."
            )
            event = JobEvent(kind=JobEventKind.TRIAL, message=message, time_us=self._clock())
            self._stores.trials.mark_folders(search, surplus, event)
            LOG.info("retention.trials_marked project=%s job=%s count=%d", project, search.id, len(surplus))
            self._wake_folders()

    def _deployed(self, project: str) -> set[str]:
        """Return the URIs that versions of a project were created from."""
        return {str(version.body.get("deploymentUri", "")).rstrip("/") + "/" for _, version in self._versions(project)}

    def _versions(self, project: str) -> Iterable[tuple[str, Version]]:
        for model in self._stores.models.every():
            if model.project == project:
                yield from ((model.id, version) for version in self._stores.models.versions(project, model.id))

    # -- request logs

    def _sweep_request_logs(self, project: str, days: int) -> None:
        before = self._before(days)
        for bucket, prefix in sorted(self._request_logs(project)):
            if not self._is_of_project(bucket, project):
                continue
            removed = 0
            query = ListQuery(prefix=prefix, checksums=False)
            while not self._loop.stopping.is_set():
                page = self._objects.list(bucket, query)
                for item in page.items:
                    if item.updated_us < before and _REQUEST_LOG.fullmatch(item.name.removeprefix(prefix)):
                        with suppress(NotFoundError, PermissionDeniedError):  # gone, or held
                            self._objects.delete(bucket, item.name, Preconditions(), generation=item.generation)
                            removed += 1
                if not page.next:
                    break
                query = ListQuery(prefix=prefix, checksums=False, after=page.next)
            if removed:
                LOG.info("retention.request_logs_removed project=%s bucket=%s count=%d", project, bucket, removed)

    def _request_logs(self, project: str) -> set[tuple[str, str]]:
        """Return the buckets and prefixes in which versions of a project log requests."""
        found = set()
        for model, version in self._versions(project):
            if uri := str(version.body.get("requestLoggingConfig", {}).get("bigqueryTableName", "")):
                bucket, folder = split_uri(uri)
                found.add((bucket, f"{folder.rstrip('/')}/{model}/".lstrip("/")))
        return found

    def _is_of_project(self, bucket: str, project: str) -> bool:
        try:
            return self._stores.owner(bucket) == project
        except NotFoundError:
            return False


def _is_used(trial: Trial, deployed: set[str]) -> bool:
    """Whether a version was created from the folder of a trial, or from one in it."""
    folder = trial.job.training.job_dir.rstrip("/") + "/"
    return any(uri.startswith(folder) for uri in deployed)
