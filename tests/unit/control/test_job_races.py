"""Cancel, the end of an attempt and the loop race for a job: one of them wins, and an end never changes."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from trainshed.control.jobs.controller import JobController
from trainshed.control.jobs.engines import EngineRegistry, RegisteredEngine
from trainshed.domain.jobs.failure import Failure, FailureCause
from trainshed.domain.jobs.job import Job
from trainshed.domain.jobs.states import TERMINAL_STATES, TRANSITIONS, JobState
from trainshed.domain.jobs.training import Training
from trainshed.domain.times import now_us
from trainshed.engines.base import GangRequest
from trainshed.errors import FailedPreconditionError
from trainshed.services.jobs.jobs import Jobs
from trainshed.store.jobs import JobStore
from trainshed.testing.contracts.engines import FakeEngine
from trainshed.testing.eventually import eventually
from trainshed.testing.fakes.attempts import attempt_folder, attempt_spec
from trainshed.testing.fakes.databases import migrated_database

PROJECT = "races"
OUTCOMES = (JobState.SUCCEEDED, JobState.FAILED)


def reachable(state: JobState) -> set[JobState]:
    """The states that a job may be seen in after it was seen in this one."""
    found, waiting = {state}, [state]
    while waiting:
        for following in TRANSITIONS[waiting.pop()] - found:
            found.add(following)
            waiting.append(following)
    return found


class Shed:
    """A store, a controller and the service that cancels, over an engine in memory."""

    def __init__(self, folder: Path) -> None:
        self.database = migrated_database(folder / "state.db")
        self.store = JobStore(self.database)
        self.engine = FakeEngine(slots=2)
        table = {"local": RegisteredEngine(engine=self.engine, prepare=attempt_spec, supports=frozenset())}
        self.control = JobController(
            self.store, EngineRegistry(table, default="local"), gang=_gang, max_launches=2, poll_s=0.001
        )
        unused = cast(Any, None)  # a cancel needs none of them
        self.jobs = Jobs(self.store, self.control, unused, unused, unused)
        self._seen: dict[str, Job] = {}

    def close(self) -> None:
        self.control.stop()
        self.control.join()
        self.database.close()

    def create(self, name: str) -> None:
        job = Job(project=PROJECT, id=name, workload=Training.parse({}), engine="local", created_us=now_us())
        self.store.add(job, ())
        self.control.wake()

    def cancel(self, name: str) -> str:
        try:
            self.jobs.cancel(PROJECT, name, user="ann")
        except FailedPreconditionError:
            assert self.store.get(PROJECT, name).state in TERMINAL_STATES
            return "refused"
        return "accepted"

    def end(self, name: str, outcome: JobState) -> None:
        failure = Failure(cause=FailureCause.REPLICA_EXITED) if outcome is JobState.FAILED else None
        self.engine.finish(attempt_folder(self.store.get(PROJECT, name)), outcome=outcome, failure=failure)

    def check(self) -> None:
        """Compare every job with what was seen of it before."""
        for _, name in self.store.keys():  # noqa: SIM118 - it is no mapping
            job = self.store.get(PROJECT, name)
            before = self._seen.get(name, job)
            assert job.state in reachable(before.state), (before, job)
            assert job.generation >= before.generation
            if before.state in TERMINAL_STATES:
                assert job == before
            assert (job.ended_us is not None) == (job.state in TERMINAL_STATES)
            self._seen[name] = job
        launched = [(spec.job, spec.attempt) for spec in self.engine.launches]
        assert len(launched) == len(set(launched))


def _gang(job: Job) -> GangRequest:
    return GangRequest(
        project=job.project, job=job.id, attempt=job.attempt, folder=attempt_folder(job), machines={"master": ""}
    )


class Races(RuleBasedStateMachine):
    """Every order of creates, cancels, ends and passes of the loop."""

    names = Bundle("names")

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory()
        self.shed = Shed(Path(self._folder.name))
        self._count = 0

    def teardown(self) -> None:
        self.shed.close()
        self._folder.cleanup()

    @rule(target=names)
    def create(self) -> str:
        self._count += 1
        self.shed.create(f"job{self._count}")
        return f"job{self._count}"

    @rule()
    def one_pass(self) -> None:
        self.shed.control.step()

    @rule(name=names)
    def cancel(self, name: str) -> None:
        ended = self.shed.store.get(PROJECT, name).ended
        assert self.shed.cancel(name) == ("refused" if ended else "accepted")
        assert self.shed.store.get(PROJECT, name).state in {*TERMINAL_STATES, JobState.CANCELLING}

    @rule(name=names, outcome=st.sampled_from(OUTCOMES))
    def end(self, name: str, outcome: JobState) -> None:
        self.shed.end(name, outcome)

    @rule(name=names)
    def lose(self, name: str) -> None:
        with suppress(KeyError):
            self.shed.engine.lose(attempt_folder(self.shed.store.get(PROJECT, name)))

    @invariant()
    def holds(self) -> None:
        self.shed.check()


Races.TestCase.settings = settings(max_examples=25, stateful_step_count=20, deadline=None)
TestRaces = pytest.mark.fault("F13")(Races.TestCase)


@pytest.fixture
def shed(tmp_path: Path) -> Iterator[Shed]:
    made = Shed(tmp_path)
    yield made
    made.close()


@pytest.mark.fault("F13")
def test_threads_that_cancel_and_end_jobs_at_once_agree_on_one_end(shed: Shed) -> None:
    names = [f"job{number}" for number in range(12)]
    for name in names:
        shed.create(name)
    shed.control.start()
    over = threading.Event()

    def ended(name: str) -> bool:
        return shed.store.get(PROJECT, name).ended

    def watch() -> None:
        while not over.is_set():
            shed.check()

    def end(name: str) -> None:
        outcome = OUTCOMES[names.index(name) % 2]

        def try_to_end() -> bool:
            shed.end(name, outcome)
            return ended(name)

        eventually(try_to_end)

    def cancel(name: str) -> list[str]:
        eventually(lambda: shed.store.get(PROJECT, name).state is not JobState.QUEUED)
        return [shed.cancel(name) for _ in range(3)]

    with ThreadPoolExecutor(2 * len(names) + 1) as pool:
        watching = pool.submit(watch)
        try:
            ending = [pool.submit(end, name) for name in names]
            cancelling = [pool.submit(cancel, name) for name in names]
            for future in ending:
                future.result()
            answers = [future.result() for future in cancelling]
        finally:
            over.set()
        watching.result()
    shed.check()
    for name, said in zip(names, answers, strict=True):
        assert said == sorted(said), "a cancel that was refused is refused from then on"
        job = shed.store.get(PROJECT, name)
        assert said[0] == "refused" or job.state is JobState.CANCELLED
        assert [event.message for event in shed.store.events(PROJECT, name)].count("Job cancelled.") <= 1
