"""Trials that are read again and again, on SQLite and on PostgreSQL alike: only changed rows are parsed anew."""

from __future__ import annotations

from dataclasses import replace

from trainshed.domain.jobs.job import JobEvent, JobEventKind
from trainshed.domain.jobs.states import JobState
from trainshed.domain.tuning.trial import FolderState, Trial, TrialMeasurement, TrialOutcome
from trainshed.domain.tuning.trial_job import trial_job
from trainshed.store.database import Database
from trainshed.store.jobs import JobStore
from trainshed.store.tuning.trial_cache import TrialCache
from trainshed.store.tuning.trials import TrialStore
from trainshed.testing.workloads.searches import write_search


def test_what_has_not_changed_is_the_same_object_and_each_change_is_seen(database: Database) -> None:
    jobs = JobStore(database)
    store = TrialStore(database, jobs)
    job = write_search(database, "shed", "s", trials=5)
    before = store.of("shed", "s")
    assert [trial.number for trial in before] == [1, 2, 3, 4, 5]
    assert [one is other for one, other in zip(before, store.of("shed", "s"), strict=True)] == [True] * 5

    event = JobEvent(kind=JobEventKind.TRIAL, message="gone", time_us=1)
    store.mark_folders(job, before[1:2], event)
    sixth = store.add(trial_job(job, 6, {}, now_us=1), {}, ())
    now = store.of("shed", "s")
    assert [one is other for one, other in zip(before, now, strict=False)] == [True, False, True, True, True]
    assert (now[1].folder, now[5].state) == (FolderState.REMOVING, JobState.QUEUED)

    jobs.record(replace(sixth, state=JobState.RUNNING, started_us=2), ())
    assert store.of("shed", "s")[5].state == JobState.RUNNING
    store.set_stopped(now[5], "enough")
    assert store.of("shed", "s")[5].stopped == "enough"
    outcome = TrialOutcome(measurements=(TrialMeasurement(1, 1, 0.5),), source="hypertune")
    store.set_outcome(now[5], outcome)
    assert store.of("shed", "s")[5].outcome == outcome
    assert [trial.number for trial in TrialStore(database, jobs).of("shed", "s")] == [1, 2, 3, 4, 5, 6]


def test_a_search_beyond_the_limit_is_read_each_time_and_the_oldest_one_goes(database: Database) -> None:
    for name in ("one", "two"):
        write_search(database, "shed", name, trials=4)
    cache = TrialCache(max_points=60)

    def read(name: str) -> list[Trial]:
        with database.read() as tx:
            return cache.of(tx, "shed", name)

    first = read("one")
    assert all(one is other for one, other in zip(read("one"), first, strict=True))
    read("two")
    again = read("one")
    assert again == first
    assert not any(one is other for one, other in zip(again, first, strict=True)), "there is room for one of them"
