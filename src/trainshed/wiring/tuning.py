"""Builds the parts that run tuning jobs."""

from __future__ import annotations

from dataclasses import dataclass

from trainshed.control.jobs.controller import JobController
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


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningPlane:
    """The parts that run tuning jobs."""

    control: TuningController
    folders: TrialFolders
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
        folders=folders,
        jobs=TuningJobs(core.jobs, trials, control),
        steering=SearchSteering(core.jobs, trials, control),
        searches=SearchTables(core.jobs, trials, StudyStore(core.database), control),
    )
