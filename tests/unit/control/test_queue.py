"""The order of the queue as the controller follows it: turns, gangs that are passed over, kept slots, restarts."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import sqlalchemy as sa

from trainshed.control.jobs.controller import JobController
from trainshed.control.jobs.engines import EngineRegistry, RegisteredEngine
from trainshed.control.jobs.queue import MAX_EXACT, JobQueue
from trainshed.control.jobs.usage_ledger import WRITE_INTERVAL_S, UsageLedger
from trainshed.domain.jobs.job import Job
from trainshed.domain.jobs.queue_order import LOOKAHEAD_S, QueuePolicy
from trainshed.domain.jobs.states import JobState
from trainshed.domain.jobs.training import Training
from trainshed.engines.base import GangRequest
from trainshed.errors import UnavailableError
from trainshed.store.database import Database
from trainshed.store.jobs import JobStore
from trainshed.store.slot_usage import SlotUsageStore
from trainshed.testing.contracts.engines import FakeEngine
from trainshed.testing.fakes.attempts import attempt_folder, attempt_spec

INSERT = sa.text(
    "insert into jobs (project, id, body, labels, state, priority, attempt, runtime, engine, created_us, order_us, "
    "generation) values ('p', :id, '{\"trainingInput\":{}}', '{}', 'QUEUED', 1, 0, '', 'local', 1, :n, 1)"
)
POLICY = QueuePolicy(half_life_s=3600.0, max_passed_over_s=600.0)


def gang(job: Job) -> GangRequest:
    machines = {f"replica-{number}": "" for number in range(job.replicas)}
    return GangRequest(
        project=job.project, job=job.id, attempt=job.attempt, folder=attempt_folder(job), machines=machines
    )


class Inline:
    """A pool that does the work when it is submitted."""

    def submit(self, work: Callable[..., object], *args: object) -> None:
        work(*args)

    def shutdown(self, **_options: bool) -> None:
        """Nothing waits."""


@dataclass
class Machine:
    """A controller on an engine in memory, with a clock that the test sets. A job runs as long as the test said."""

    database: Database
    slots: int = 8
    kept: int = 0
    now_s: float = 1_000_000.0
    uniform_slots: bool = True
    running: dict[str, tuple[Job, float]] = field(default_factory=dict)  #: with the start of each
    ended: list[tuple[Job, float, float]] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.store = JobStore(self.database)
        self.engine = FakeEngine(slots=self.slots, kept=self.kept)
        self.restart()

    def restart(self) -> None:
        self.store = JobStore(self.database)
        ledger = UsageLedger(POLICY, SlotUsageStore(self.database), clock=self.clock)
        self.queue = JobQueue(self.store, POLICY, ledger, clock=self.clock)
        registered = RegisteredEngine(
            engine=self.engine,
            prepare=attempt_spec,
            supports=frozenset({"training job"}),
            uniform_slots=self.uniform_slots,
        )
        registry = EngineRegistry({"local": registered}, default="local")
        self.control = JobController(
            self.store, registry, gang=gang, max_launches=1, poll_s=0.01, queue=self.queue, clock=self.clock
        )
        self.control._pool = Inline()  # type: ignore[assignment]

    def clock(self) -> int:
        return round(self.now_s * 1e6)

    def add(self, name: str, *, seconds: float = 60.0, project: str = "p", **values: Any) -> None:
        self.now_s += 1e-6  # no two are of the same age
        workload = Training.parse({})
        job = Job(project=project, id=name, workload=workload, created_us=self.clock(), **values)
        self.store.add(job, ())
        self.seconds[name] = seconds

    def step(self) -> None:
        """Admit what can be admitted, and see it run."""
        self.control.step()
        self.control.step()
        running = {job.id: job for job in self.store.active()}
        for name, job in running.items():
            self.running.setdefault(name, (job, self.now_s))
        sizes = [job.replicas for job, _ in self.running.values()]
        assert sum(sizes) <= max(self.slots, *sizes, 0) + self.kept

    def run_until(self, time_s: float) -> None:
        """Let jobs end when their time is over, until a time."""
        self.step()
        while self.running:
            name = min(self.running, key=lambda name: self.running[name][1] + self.seconds[name])
            end_s = self.running[name][1] + self.seconds[name]
            if end_s > time_s:
                break
            self.now_s = end_s
            self.end(name)
            self.step()
        self.now_s = max(self.now_s, time_s)
        self.step()

    def end(self, name: str) -> None:
        job, start_s = self.running.pop(name)
        self.engine.finish(attempt_folder(job))
        self.ended.append((job, start_s, self.now_s))

    def states(self, *names: str, project: str = "p") -> list[str]:
        return [self.store.get(project, name).state.value for name in names]

    @property
    def order(self) -> list[str]:
        return [each.id for each in self.queue.order("local")]


@pytest.mark.fault("F14")
def test_a_gang_that_does_not_fit_is_passed_over_for_ten_minutes_and_then_nothing_overtakes_it(
    database: Database,
) -> None:
    machine = Machine(database)
    begin_s = machine.now_s
    machine.add("long", seconds=900.0, replicas=4)
    machine.add("whole", seconds=60.0, replicas=8)
    for number in range(400):
        machine.add(f"small{number}", seconds=7.0)
    machine.run_until(begin_s + 592.0)
    assert machine.states("long", "whole") == ["RUNNING", "QUEUED"]
    assert len(machine.ended) > 200, "small jobs use the slots meanwhile"
    machine.add("urgent", priority=1000, seconds=10.0)
    machine.run_until(begin_s + 601.0)
    assert machine.states("urgent") == ["RUNNING"]
    machine.add("too_late", priority=1000, seconds=10.0)
    assert machine.order[0] == "whole"
    machine.run_until(begin_s + 899.0)
    assert machine.states("long", "whole", "too_late") == ["RUNNING", "QUEUED", "QUEUED"]
    assert set(machine.running) == {"long"}, "what became free was kept for it"
    machine.run_until(begin_s + 901.0)
    assert set(machine.running) == {"whole"}
    machine.run_until(begin_s + 975.0)
    assert machine.states("whole", "too_late") == ["SUCCEEDED", "SUCCEEDED"]


def test_how_long_a_gang_was_passed_over_survives_a_restart(database: Database) -> None:
    machine = Machine(database)
    machine.add("long", seconds=10_000.0, replicas=2)
    machine.add("whole", replicas=8)
    machine.add("small", seconds=10_000.0)
    machine.step()
    assert machine.states("whole", "small") == ["QUEUED", "RUNNING"]
    machine.restart()
    machine.now_s += 601.0
    machine.add("next", priority=5)
    machine.step()
    assert machine.order == ["whole", "next"]
    assert machine.states("next") == ["QUEUED"]


def test_a_gang_waits_for_nobody_while_nobody_overtakes_it(database: Database) -> None:
    machine = Machine(database)
    machine.add("first", seconds=5000.0, replicas=8)
    machine.add("second", replicas=8)
    machine.run_until(machine.now_s + 1000.0)
    assert machine.store.get("p", "second").passed_over_us is None
    machine.add("urgent", priority=1, replicas=8)
    machine.step()
    assert machine.order == ["urgent", "second"]


@pytest.mark.parametrize("replicas", [2, 8, 31])
def test_a_slot_is_kept_for_jobs_of_one_replica_beside_any_gang(database: Database, replicas: int) -> None:
    machine = Machine(database, slots=8, kept=1)
    begin_s = machine.now_s
    for number in range(9):
        machine.add(f"gang{number}", seconds=10_000.0, replicas=replicas, priority=7)
    machine.add("basic0", seconds=10.0)
    machine.add("basic1", seconds=10.0)
    machine.run_until(begin_s + 700.0)
    assert machine.states("basic0", "basic1", "gang8") == ["SUCCEEDED", "SUCCEEDED", "QUEUED"]
    assert machine.order[0].startswith("gang"), "it was passed over"
    machine.add("basic2", seconds=10.0)
    machine.run_until(begin_s + 720.0)
    assert machine.states("basic2") == ["SUCCEEDED"]


def test_a_gang_of_the_whole_machine_starts_beside_a_job_in_the_kept_slot(database: Database) -> None:
    machine = Machine(database, slots=8, kept=1)
    machine.add("basic", seconds=10_000.0)
    machine.add("standard_1", replicas=8)
    machine.step()
    assert machine.states("basic", "standard_1") == ["RUNNING", "RUNNING"]


def test_the_queue_and_the_usage_survive_a_restart(database: Database) -> None:
    machine = Machine(database, slots=2)
    machine.add("used", project="greedy", user="ann", seconds=1000.0, replicas=2)
    machine.run_until(machine.now_s + 1001.0)
    for project in ("greedy", "modest"):
        machine.add(f"of_{project}", project=project, user="ann")
        machine.add(f"also_of_{project}", project=project, user="bob")
    before = machine.queue.ledger.usage().users
    assert before["greedy", "ann"] == pytest.approx(2000.0, rel=0.1)
    machine.control.stop()
    machine.control.join()
    machine.restart()
    assert machine.queue.ledger.usage().users["greedy", "ann"] == pytest.approx(before["greedy", "ann"], rel=0.01)
    assert machine.order == ["of_modest", "also_of_modest", "also_of_greedy", "of_greedy"]


def test_what_ran_while_no_server_did_counts(database: Database) -> None:
    machine = Machine(database)
    machine.add("long", user="ann", seconds=10_000.0, replicas=4)
    machine.run_until(machine.now_s + WRITE_INTERVAL_S + 1)
    machine.restart()
    machine.now_s += 100.0
    machine.step()
    used = machine.queue.ledger.usage().users["p", "ann"]
    assert used == pytest.approx(4 * (WRITE_INTERVAL_S + 101.0) + 4 * LOOKAHEAD_S, rel=0.05)


def test_usage_that_decayed_leaves_no_row(database: Database) -> None:
    machine = Machine(database)
    machine.add("short", user="ann", seconds=100.0)
    machine.run_until(machine.now_s + 200.0)
    rows = SlotUsageStore(database)
    assert set(rows.all()) == {("p", "ann")}
    machine.now_s += 20 * POLICY.half_life_s
    machine.step()
    assert rows.all() == {}
    assert machine.queue.ledger.usage().users == {}


def test_usage_that_could_not_be_written_is_written_later(database: Database) -> None:
    class Refusing(SlotUsageStore):
        refuses = True

        def write(self, *args: Any) -> None:
            if self.refuses:
                raise UnavailableError("The database is busy.")
            super().write(*args)

    now_us = 0
    rows = Refusing(database)
    ledger = UsageLedger(POLICY, rows, clock=lambda: now_us)
    ledger.accrue({("p", "ann"): 3})
    now_us = 50_000_000
    ledger.accrue({})
    ledger.write()
    assert rows.all() == {}
    rows.refuses = False
    ledger.write()
    assert rows.all()["p", "ann"].slot_seconds == pytest.approx(150.0, rel=0.02)


def test_a_long_queue_is_not_ordered_anew_for_each_job_that_comes(database: Database) -> None:
    machine = Machine(database, slots=1)
    with database.write() as tx:
        tx.run_many(INSERT, [{"id": f"j{number:05}", "n": number} for number in range(MAX_EXACT + 1)])
    first = machine.queue.order("local")
    machine.add("late")
    machine.add("urgent", priority=9)
    late, urgent = machine.store.get("p", "late"), machine.store.get("p", "urgent")
    assert machine.queue.order("local") is first
    assert machine.queue.positions([late, urgent]) == {("p", "late"): MAX_EXACT + 2, ("p", "urgent"): 1}
    machine.now_s += 1.1
    assert machine.queue.positions([late, urgent]) == {("p", "late"): MAX_EXACT + 3, ("p", "urgent"): 1}


def test_a_job_that_starts_counts_before_the_next_pass(database: Database) -> None:
    machine = Machine(database, slots=1)
    for number, project in enumerate(("p", "p", "q")):
        machine.add(f"j{number}", project=project)
    machine.control.step()
    assert machine.order == ["j2", "j1"]
    assert dict(machine.control.next_of("p", limit=5)) == {"j1": 2}


@pytest.mark.parametrize(
    ("slots", "jobs", "variety"),
    [(8, 2, 0), pytest.param(24, 6, 1, marks=pytest.mark.soak)],  # the first covers the path
)
def test_200_users_in_20_projects_get_equal_shares(database: Database, slots: int, jobs: int, variety: int) -> None:
    """All submit at once. Half of the projects submit more, jobs of some are longer, and some are gangs."""
    chance = random.Random(5)
    machine = Machine(database, slots=slots, kept=slots // 8)
    for user in range(200):
        project = user % 20
        for number in range(jobs + project % 2):
            machine.add(
                f"u{user}_{number}",
                project=f"p{project}",
                user=f"user{user}",
                seconds=chance.uniform(20, 60) * (1 + variety * (project % 3) / 4),
                replicas=chance.choice([1, 1, 1, 2, 1 + variety]) if project % 4 else 1,
            )
    total = len(machine.seconds)
    begin_s = machine.now_s
    queued_until: dict[str, float] = {}
    while len(machine.ended) < total:
        machine.run_until(machine.now_s + 10.0)
        for queued in machine.queue.order("local"):
            queued_until[queued.project] = machine.now_s
    assert len(queued_until) == 20
    end_s = min(queued_until.values())
    slot_seconds: defaultdict[str, float] = defaultdict(float)
    per_user: Counter[str] = Counter()
    for job, start_s, stop_s in machine.ended:
        slot_seconds[job.project] += job.replicas * max(0.0, min(stop_s, end_s) - start_s)
        per_user[job.user] += 1
    mean = sum(slot_seconds.values()) / 20
    assert end_s - begin_s > 300.0, "all 20 wait for long enough to tell"
    assert {
        project: round(each / mean, 3) for project, each in slot_seconds.items() if abs(each / mean - 1) > 0.1
    } == {}
    assert len(per_user) == 200, "nobody starved"
    assert {machine.store.get(job.project, job.id).state for job, *_ in machine.ended} == {JobState.SUCCEEDED}
