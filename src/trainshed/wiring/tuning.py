"""Builds the parts that run tuning jobs, and the loops that look after what is stored."""

from __future__ import annotations

from dataclasses import dataclass

from trainshed.control.jobs.controller import JobController
from trainshed.control.jobs.storage_watch import StorageWatch
from trainshed.control.retention import RetentionStores, RetentionSweeper
from trainshed.control.tuning.controller import TuningController
from trainshed.control.tuning.metrics import TrialReader
from trainshed.control.tuning.trial_folders import TrialFolders
from trainshed.services.jobs.progress import ProgressService
from trainshed.services.jobs.tuning import TuningJobs
from trainshed.services.tuning.search_tables import SearchTables
from trainshed.services.tuning.steering import SearchSteering
from trainshed.store.tuning.studies import StudyStore
from trainshed.store.tuning.trials import TrialStore
from trainshed.wiring.core import Core

Sweeper = TrialFolders | RetentionSweeper | StorageWatch  #: a loop that looks after what is stored


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningPlane:
    """The parts that run tuning jobs."""

    control: TuningController
    sweepers: tuple[Sweeper, ...]
    jobs: TuningJobs
    searches: SearchTables
    steering: SearchSteering


def build_tuning_plane(core: Core, jobs: JobController, progress: ProgressService) -> TuningPlane:
    trials = TrialStore(core.database, core.jobs)
    folders = TrialFolders(trials, core.backend, owner=core.buckets.owner, check=core.database.check_fence)
    control = TuningController(
        core.jobs,
        trials,
        TrialReader(core.home.jobs, progress.event_folders),
        suggest=core.searcher.suggest,
        wake_jobs=jobs.wake,
        wake_folders=folders.wake,
        check=core.database.check_fence,
    )
    jobs.on_trial_change(control.wake)
    return TuningPlane(
        control=control,
        sweepers=(
            folders,
            _build_retention(core, trials, folders),
            StorageWatch(core.jobs, core.stored, wake=jobs.wake, check=core.database.check_fence),
        ),
        jobs=TuningJobs(core.jobs, trials, control),
        steering=SearchSteering(core.jobs, trials, control),
        searches=SearchTables(core.jobs, trials, StudyStore(core.database), control),
    )


def _build_retention(core: Core, trials: TrialStore, folders: TrialFolders) -> RetentionSweeper:
    stores = RetentionStores(
        jobs=core.jobs,
        trials=trials,
        models=core.models,
        projects=core.quotas.projects,
        limits=core.quotas.applied,
        owner=core.buckets.owner,
    )
    return RetentionSweeper(
        stores, core.backend, core.home.jobs, wake_folders=folders.wake, check=core.database.check_fence
    )
