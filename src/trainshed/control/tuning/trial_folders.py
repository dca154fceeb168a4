"""Removes the folders of trials that the tuning controller marked, on a thread of its own: they may be large."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress

from trainshed.background import BackgroundLoop, PassFailures
from trainshed.buckets.backend import ObjectBackend
from trainshed.buckets.names import split_uri
from trainshed.domain.jobs.job import Job
from trainshed.domain.objects import ListQuery, Preconditions
from trainshed.errors import NotFoundError
from trainshed.node.crashpoints import crashpoint
from trainshed.store.tuning.trials import TrialStore

LOG = logging.getLogger("trainshed.control.tuning.trial_folders")

IDLE_INTERVAL_S = 5.0  #: between passes with nothing to do; a mark wakes the loop
RETRY_INTERVAL_S = 10.0  #: after a folder that could not be removed


class TrialFolders:
    """Removes marked folders. One thread owns the loop; `stop` and `join` end it.

    A pass that is cut short is repeated: what is gone is gone, and the mark stays until all of it is. `owner` returns
    the project of a bucket, or raises `NotFoundError`. `check` raises if this server may not act any more.
    """

    def __init__(
        self,
        trials: TrialStore,
        objects: ObjectBackend,
        *,
        owner: Callable[[str], str],
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self._trials = trials
        self._objects = objects
        self._owner = owner
        self._check = check
        self._loop = BackgroundLoop("trial-folders", self.step)

    def wake(self) -> None:
        """Start the next pass immediately. Thread-safe."""
        self._loop.wake()

    def start(self) -> None:
        self._loop.start()

    def stop(self) -> None:
        self._loop.stop()

    def join(self) -> None:
        """Blocks until the loop ends. Call it after `stop`."""
        self._loop.join()

    def step(self) -> float:
        """Remove all folders that are marked. Returns the seconds until the next pass.

        A folder that can't be removed is logged, and the next pass tries it again.
        """
        self._check()
        failures = PassFailures(LOG, "trial_folders.remove_failed")
        for trial in self._trials.folders_to_remove():
            if self._loop.stopping.is_set():
                break
            try:
                self._remove(trial)
            except Exception as exc:  # noqa: BLE001 - logged with the trial's name; others go on
                failures.add(trial.name, exc)
        return RETRY_INTERVAL_S if failures else IDLE_INTERVAL_S

    def _remove(self, trial: Job) -> None:
        bucket, folder = split_uri(trial.training.job_dir)
        if self._is_of_project(bucket, trial.project):
            self._empty(bucket, f"{folder}/")
        else:
            LOG.warning("trial_folders.bucket_gone project=%s job=%s bucket=%s", trial.project, trial.id, bucket)
        crashpoint("tuning.folder.emptied")
        self._trials.set_folder_removed(trial)
        LOG.info("trial_folders.removed project=%s job=%s", trial.project, trial.id)

    def _is_of_project(self, bucket: str, project: str) -> bool:
        """A bucket may have been deleted since the trial ran, and another project may have one of its name."""
        try:
            return self._owner(bucket) == project
        except NotFoundError:
            return False

    def _empty(self, bucket: str, prefix: str) -> None:
        query = ListQuery(prefix=prefix, checksums=False)
        while True:
            page = self._objects.list(bucket, query)
            for item in page.items:
                with suppress(NotFoundError):  # somebody else removed it
                    self._objects.delete(bucket, item.name, Preconditions())
            if not page.next:
                return
            query = ListQuery(prefix=prefix, checksums=False, after=page.next)
