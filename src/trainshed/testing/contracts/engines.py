"""What every engine must do, as a class of tests, and an engine in memory for tests of what stands on one."""

from __future__ import annotations

import itertools
import signal
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from trainshed.domain.jobs.job import JobState
from trainshed.domain.jobs.reconcile import AttemptPhase, ObservedAttempt, Slots
from trainshed.engines.base import AttemptSpec, Engine, GangRequest, Outage, Pending, Reserved
from trainshed.errors import EngineUnavailableError

_ABSENT = ObservedAttempt(phase=AttemptPhase.ABSENT)
_SETTLE_S = 90.0
T = TypeVar("T")


class FakeEngine:
    """Runs nothing: an attempt runs from its launch until a test says how it ended. `down` makes it fail as a whole.

    It has `slots` for replicas, and keeps itself whom it gave them to.
    """

    def __init__(self, *, slots: int = 64) -> None:
        self.slots = slots
        self.down = False
        self.absent: Outage | None = None
        self.rooms: dict[Path, bool] = {}  #: whom room was asked for, and whether they have it
        self.launches: list[AttemptSpec] = []  #: those that started something
        self.kills: list[tuple[Path, str, int]] = []  #: attempt, replica and signal; the replica is started again
        self._seen: dict[Path, ObservedAttempt] = {}
        self._clock_us = itertools.count(1)
        self._guard = threading.Lock()

    def reserve(self, gang: GangRequest, others: Sequence[GangRequest]) -> Reserved | Pending:
        self._check()
        self.rooms.setdefault(gang.folder, False)
        self.rooms[gang.folder] |= self._room(others).fits(len(gang.machines))
        if self.rooms[gang.folder]:
            return Reserved()
        return Pending(blocks_queue=len(gang.machines) <= self.slots)

    def pending_reason(self, gang: GangRequest, others: Sequence[GangRequest]) -> str:
        return f"{self._room(others).free} of {self.slots} places are free"

    def _room(self, others: Sequence[GangRequest]) -> Slots:
        return Slots(slots=self.slots, taken=sum(len(each.machines) for each in others))

    def reservations(self) -> Collection[Path]:
        return list(self.rooms)

    def release(self, attempt: Path) -> None:
        self.rooms.pop(attempt, None)

    def outage(self) -> Outage | None:
        return self.absent

    def launch(self, launch: AttemptSpec) -> None:
        self._check()
        with self._guard:  # it is asked by many threads
            if launch.folder not in self._seen:
                self.launches.append(launch)
                self._seen[launch.folder] = ObservedAttempt(phase=AttemptPhase.RUNNING, started_us=next(self._clock_us))

    def observe(self, attempts: Collection[Path]) -> Mapping[Path, ObservedAttempt]:
        self._check()
        return {path: self._seen.get(path, _ABSENT) for path in attempts}

    def cancel(self, attempt: Path) -> None:
        self._check()
        self.finish(attempt, outcome=JobState.CANCELLED, message="The job was cancelled.")

    def kill(self, attempt: Path, replica: str, number: int) -> None:
        self._check()
        if self._seen.get(attempt, _ABSENT).phase is AttemptPhase.RUNNING:
            self.kills.append((attempt, replica, number))

    def finish(self, attempt: Path, *, outcome: JobState = JobState.SUCCEEDED, message: str = "") -> None:
        """End an attempt that runs."""
        if (seen := self._seen.get(attempt, _ABSENT)).phase is AttemptPhase.RUNNING:
            end = replace(
                seen, phase=AttemptPhase.ENDED, ended_us=next(self._clock_us), outcome=outcome, message=message
            )
            self._seen[attempt] = end

    def lose(self, attempt: Path) -> None:
        """End an attempt as if its supervisor had been killed."""
        self._seen[attempt] = replace(self._seen[attempt], phase=AttemptPhase.LOST)

    def _check(self) -> None:
        if self.down:
            raise EngineUnavailableError("The fake engine was switched off.")


class CapacityContract(ABC):
    """What an engine does about room, whatever runs there. Inherit, and say how to make one. `tmp_path` is pytest's."""

    @abstractmethod
    def engine(self, tmp_path: Path) -> Engine:
        """A new engine. Two of them on the same path see the same attempts, if the engine keeps them outside itself."""

    @abstractmethod
    def attempt(self, tmp_path: Path, name: str) -> AttemptSpec:
        """An attempt that goes on until `finish`."""

    @abstractmethod
    def most(self, engine: Engine) -> int:
        """How many replicas of the machine type that `gang_of` asks for the engine has room for."""

    def test_a_gang_has_room_however_often_it_asks_until_it_gives_it_back(self, tmp_path: Path) -> None:
        engine, gang = self.engine(tmp_path), gang_of(self.attempt(tmp_path, "a"))
        wait_for(lambda: engine.reserve(gang, ()), lambda answer: isinstance(answer, Reserved))
        assert engine.reserve(gang, ()) == Reserved()
        assert set(engine.reservations()) <= {gang.folder}
        engine.release(gang.folder)
        engine.release(gang.folder)
        wait_for(engine.reservations, lambda held: not held)
        wait_for(lambda: engine.reserve(gang, ()), lambda answer: isinstance(answer, Reserved))
        engine.release(gang.folder)

    def test_a_gang_too_large_beside_others_waits_and_is_told_why(self, tmp_path: Path) -> None:
        engine = self.engine(tmp_path)
        [first, second] = [gang_of(self.attempt(tmp_path, name), replicas=self.most(engine)) for name in "ab"]
        wait_for(lambda: engine.reserve(first, ()), lambda answer: isinstance(answer, Reserved))
        assert isinstance(engine.reserve(second, [first]), Pending)
        assert engine.pending_reason(second, [first])
        engine.release(first.folder)
        wait_for(lambda: engine.reserve(second, ()), lambda answer: isinstance(answer, Reserved))
        engine.release(second.folder)
        wait_for(engine.reservations, lambda held: not held)

    def test_what_was_never_asked_for_can_be_given_back(self, tmp_path: Path) -> None:
        engine = self.engine(tmp_path)
        engine.release(tmp_path / "nowhere")
        assert list(engine.reservations()) == []

    def test_it_is_not_away(self, tmp_path: Path) -> None:
        engine = self.engine(tmp_path)
        wait_for(engine.outage, lambda away: away is None)


class EngineContract(CapacityContract):
    """Inherit, and say how to make an engine and its attempts, and how these end."""

    @abstractmethod
    def finish(self, engine: Engine, launch: AttemptSpec, *, ok: bool) -> None:
        """Let a running attempt come to its end."""

    @abstractmethod
    def starts(self, engine: Engine, launch: AttemptSpec) -> int:
        """How often the attempt's code was started."""

    def test_an_attempt_it_never_saw_is_absent(self, tmp_path: Path) -> None:
        nowhere = tmp_path / "nowhere"
        assert self.engine(tmp_path).observe([nowhere]) == {nowhere: _ABSENT}

    def test_an_attempt_runs_and_succeeds(self, tmp_path: Path) -> None:
        engine, launch = self.engine(tmp_path), self.attempt(tmp_path, "a")
        engine.launch(launch)
        running = settle(engine, launch.folder, AttemptPhase.RUNNING)
        assert running.started_us is not None
        assert running.outcome is None
        self.finish(engine, launch, ok=True)
        ended = settle(engine, launch.folder, AttemptPhase.ENDED)
        assert ended.outcome is JobState.SUCCEEDED
        assert ended.started_us == running.started_us
        assert ended.ended_us is not None
        assert ended.ended_us >= running.started_us

    def test_a_failure_says_why(self, tmp_path: Path) -> None:
        engine, launch = self.engine(tmp_path), self.attempt(tmp_path, "a")
        engine.launch(launch)
        settle(engine, launch.folder, AttemptPhase.RUNNING)
        self.finish(engine, launch, ok=False)
        ended = settle(engine, launch.folder, AttemptPhase.ENDED)
        assert ended.outcome is JobState.FAILED
        assert ended.message

    def test_launching_twice_starts_it_once(self, tmp_path: Path) -> None:
        engine, launch = self.engine(tmp_path), self.attempt(tmp_path, "a")
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(engine.launch, [launch] * 4))
        settle(engine, launch.folder, AttemptPhase.RUNNING)
        self.finish(engine, launch, ok=True)
        settle(engine, launch.folder, AttemptPhase.ENDED)
        engine.launch(launch)
        assert engine.observe([launch.folder])[launch.folder].phase is AttemptPhase.ENDED
        assert self.starts(engine, launch) == 1

    def test_cancelling_ends_it_and_may_be_repeated(self, tmp_path: Path) -> None:
        engine, launch = self.engine(tmp_path), self.attempt(tmp_path, "a")
        engine.launch(launch)
        settle(engine, launch.folder, AttemptPhase.RUNNING)
        engine.cancel(launch.folder)
        engine.cancel(launch.folder)
        assert settle(engine, launch.folder, AttemptPhase.ENDED).outcome is JobState.CANCELLED
        engine.cancel(launch.folder)
        assert engine.observe([launch.folder])[launch.folder].outcome is JobState.CANCELLED

    def test_cancelling_nothing_does_nothing(self, tmp_path: Path) -> None:
        engine = self.engine(tmp_path)
        engine.cancel(tmp_path / "nowhere")
        assert engine.observe([tmp_path / "nowhere"])[tmp_path / "nowhere"].phase is AttemptPhase.ABSENT

    def test_a_replica_that_is_killed_is_started_again(self, tmp_path: Path) -> None:
        engine, launch = self.engine(tmp_path), self.attempt(tmp_path, "a")
        engine.launch(launch)
        settle(engine, launch.folder, AttemptPhase.RUNNING)
        wait_for(lambda: self.starts(engine, launch), lambda count: count == 1)
        engine.kill(launch.folder, "no-replica-0", signal.SIGKILL)
        engine.kill(launch.folder, launch.replicas[0].name, signal.SIGKILL)
        wait_for(lambda: self.starts(engine, launch), lambda count: count == 2)
        self.finish(engine, launch, ok=True)
        assert settle(engine, launch.folder, AttemptPhase.ENDED).outcome is JobState.SUCCEEDED
        engine.kill(launch.folder, launch.replicas[0].name, signal.SIGKILL)
        engine.kill(tmp_path / "nowhere", launch.replicas[0].name, signal.SIGKILL)
        assert self.starts(engine, launch) == 2

    def test_one_question_answers_for_many(self, tmp_path: Path) -> None:
        engine, first, second = self.engine(tmp_path), self.attempt(tmp_path, "a"), self.attempt(tmp_path, "b")
        engine.launch(first)
        engine.launch(second)
        settle(engine, first.folder, AttemptPhase.RUNNING)
        settle(engine, second.folder, AttemptPhase.RUNNING)
        self.finish(engine, first, ok=True)
        settle(engine, first.folder, AttemptPhase.ENDED)
        seen = engine.observe([first.folder, second.folder, tmp_path / "nowhere"])
        assert [each.phase for each in seen.values()] == [AttemptPhase.ENDED, AttemptPhase.RUNNING, AttemptPhase.ABSENT]
        self.finish(engine, second, ok=True)
        settle(engine, second.folder, AttemptPhase.ENDED)


def gang_of(launch: AttemptSpec, *, replicas: int = 1) -> GangRequest:
    """What room is asked for with before there is such a launch."""
    machines = {f"worker-replica-{number}": "n1-standard-1" for number in range(replicas)}
    return GangRequest(
        project=launch.project, job=launch.job, attempt=launch.attempt, folder=launch.folder, machines=machines
    )


def settle(engine: Engine, attempt: Path, phase: AttemptPhase, *, within_s: float = _SETTLE_S) -> ObservedAttempt:
    """The first sighting of the attempt in this phase; fails if another end, or the time limit, comes first."""
    ends = (AttemptPhase.ENDED, AttemptPhase.LOST)
    seen = wait_for(
        lambda: engine.observe([attempt])[attempt],
        lambda seen: seen.phase is phase or seen.phase in ends,
        within_s=within_s,
    )
    assert seen.phase is phase, f"{attempt} came to be {seen}"
    return seen


def wait_for(look: Callable[[], T], good: Callable[[T], bool], *, within_s: float = _SETTLE_S) -> T:
    """What `look` gives once it is `good`."""
    deadline = time.monotonic() + within_s
    while not good(seen := look()):
        assert time.monotonic() < deadline, f"still {seen} after {within_s:g} s"
        time.sleep(0.01)
    return seen
