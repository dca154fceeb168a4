"""The contract of engines as a class of tests, and an in-memory engine for tests of what uses one."""

from __future__ import annotations

import itertools
import signal
import threading
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from trainshed.domain.jobs.failure import Failure, FailureCause
from trainshed.domain.jobs.failure_text import error_message
from trainshed.domain.jobs.reconcile import AttemptPhase, ObservedAttempt, Slots
from trainshed.domain.jobs.states import JobState
from trainshed.engines.base import AttemptSpec, Engine, GangRequest, Outage, Pending, Reserved
from trainshed.errors import EngineUnavailableError
from trainshed.testing.eventually import SETTLE_TIMEOUT_S, eventually

_ABSENT = ObservedAttempt(phase=AttemptPhase.ABSENT)


class FakeEngine:
    """An engine that runs nothing: an attempt runs until the test finishes it. `down` makes all calls fail.

    It has `slots` for replicas, of which it keeps some for jobs of one replica, and records who holds them.
    """

    def __init__(self, *, slots: int = 64, kept: int = 0) -> None:
        self.slots = slots
        self.kept = kept
        self.down = False
        self.current_outage: Outage | None = None
        self.capacity: dict[Path, bool] = {}  #: gangs that requested capacity, and whether they have it
        self.launches: list[AttemptSpec] = []  #: attempts that were started
        self.kills: list[tuple[Path, str, int]] = []  #: attempt, replica and signal; the replica is restarted
        self._observed: dict[Path, ObservedAttempt] = {}
        self._clock_us = itertools.count(1)
        self._lock = threading.Lock()

    def reserve(
        self, gang: GangRequest, others: Sequence[GangRequest], ahead: Sequence[GangRequest] = ()
    ) -> Reserved | Pending:
        self._check()
        self.capacity.setdefault(gang.folder, False)
        slots = self._slots((*others, *ahead))
        self.capacity[gang.folder] |= slots.fits(len(gang.machines))
        if self.capacity[gang.folder]:
            return Reserved()
        return Pending(blocks_queue=len(gang.machines) <= self.slots, full=slots.free == 0)

    def pending_reason(self, gang: GangRequest, others: Sequence[GangRequest]) -> str:
        return f"{self._slots(others).free} of {self.slots} places are free"

    def _slots(self, others: Sequence[GangRequest]) -> Slots:
        sizes = [len(each.machines) for each in others]
        return Slots(slots=self.slots, taken=sum(sizes), singles=sizes.count(1), kept=self.kept)

    def reservations(self) -> Collection[Path]:
        return list(self.capacity)

    def release(self, attempt: Path) -> None:
        self.capacity.pop(attempt, None)

    def outage(self) -> Outage | None:
        return self.current_outage

    def launch(self, spec: AttemptSpec) -> None:
        self._check()
        with self._lock:  # several threads call it
            if spec.folder not in self._observed:
                self.launches.append(spec)
                self._observed[spec.folder] = ObservedAttempt(
                    phase=AttemptPhase.RUNNING, started_us=next(self._clock_us)
                )

    def observe(self, attempts: Collection[Path]) -> Mapping[Path, ObservedAttempt]:
        self._check()
        return {path: self._observed.get(path, _ABSENT) for path in attempts}

    def cancel(self, attempt: Path) -> None:
        self._check()
        self.finish(attempt, outcome=JobState.CANCELLED, failure=Failure(cause=FailureCause.CANCELLED))

    def kill(self, attempt: Path, replica: str, number: int) -> None:
        self._check()
        if self._observed.get(attempt, _ABSENT).phase is AttemptPhase.RUNNING:
            self.kills.append((attempt, replica, number))

    def finish(self, attempt: Path, *, outcome: JobState = JobState.SUCCEEDED, failure: Failure | None = None) -> None:
        """End a running attempt."""
        if (status := self._observed.get(attempt, _ABSENT)).phase is AttemptPhase.RUNNING:
            end = replace(
                status, phase=AttemptPhase.ENDED, ended_us=next(self._clock_us), outcome=outcome, failure=failure
            )
            self._observed[attempt] = end

    def lose(self, attempt: Path) -> None:
        """End an attempt as if its supervisor had been killed."""
        self._observed[attempt] = replace(self._observed[attempt], phase=AttemptPhase.LOST)

    def _check(self) -> None:
        if self.down:
            raise EngineUnavailableError("The fake engine was switched off.")


class CapacityContract(ABC):
    """The contract of capacity, whatever the engine runs.

    Inherit it and implement the constructors. `tmp_path` is pytest's.
    """

    @abstractmethod
    def engine(self, tmp_path: Path) -> Engine:
        """Return a new engine. Two on one path see the same attempts, if the engine stores them outside itself."""

    @abstractmethod
    def attempt(self, tmp_path: Path, name: str) -> AttemptSpec:
        """Return an attempt that runs until `finish`."""

    @abstractmethod
    def max_replicas(self, engine: Engine) -> int:
        """Return how many replicas of the machine type in `gang_of` the engine has capacity for."""

    def test_a_gang_has_room_however_often_it_asks_until_it_gives_it_back(self, tmp_path: Path) -> None:
        engine, gang = self.engine(tmp_path), gang_of(self.attempt(tmp_path, "a"))
        eventually(lambda: engine.reserve(gang, ()), lambda result: isinstance(result, Reserved))
        assert engine.reserve(gang, ()) == Reserved()
        assert set(engine.reservations()) <= {gang.folder}
        engine.release(gang.folder)
        engine.release(gang.folder)
        eventually(engine.reservations, lambda reservations: not reservations)
        eventually(lambda: engine.reserve(gang, ()), lambda result: isinstance(result, Reserved))
        engine.release(gang.folder)

    def test_a_gang_too_large_beside_others_waits_and_is_told_why(self, tmp_path: Path) -> None:
        engine = self.engine(tmp_path)
        [first, second] = [gang_of(self.attempt(tmp_path, name), replicas=self.max_replicas(engine)) for name in "ab"]
        eventually(lambda: engine.reserve(first, ()), lambda result: isinstance(result, Reserved))
        assert isinstance(engine.reserve(second, [first]), Pending)
        assert engine.pending_reason(second, [first])
        engine.release(first.folder)
        eventually(lambda: engine.reserve(second, ()), lambda result: isinstance(result, Reserved))
        engine.release(second.folder)
        eventually(engine.reservations, lambda reservations: not reservations)

    def test_what_was_never_asked_for_can_be_given_back(self, tmp_path: Path) -> None:
        engine = self.engine(tmp_path)
        engine.release(tmp_path / "nowhere")
        assert list(engine.reservations()) == []

    def test_it_is_not_away(self, tmp_path: Path) -> None:
        engine = self.engine(tmp_path)
        eventually(engine.outage, lambda away: away is None)


class EngineContract(CapacityContract):
    """The contract of engines. Inherit it, and implement the constructors and how attempts end."""

    @abstractmethod
    def finish(self, engine: Engine, spec: AttemptSpec, *, ok: bool) -> None:
        """Let a running attempt end."""

    @abstractmethod
    def starts(self, engine: Engine, spec: AttemptSpec) -> int:
        """Return how often the attempt's code was started."""

    def test_an_attempt_it_never_saw_is_absent(self, tmp_path: Path) -> None:
        nowhere = tmp_path / "nowhere"
        assert self.engine(tmp_path).observe([nowhere]) == {nowhere: _ABSENT}

    def test_an_attempt_runs_and_succeeds(self, tmp_path: Path) -> None:
        engine, spec = self.engine(tmp_path), self.attempt(tmp_path, "a")
        engine.launch(spec)
        running = settle(engine, spec.folder, AttemptPhase.RUNNING)
        assert running.started_us is not None
        assert running.outcome is None
        self.finish(engine, spec, ok=True)
        ended = settle(engine, spec.folder, AttemptPhase.ENDED)
        assert ended.outcome is JobState.SUCCEEDED
        assert ended.started_us == running.started_us
        assert ended.ended_us is not None
        assert ended.ended_us >= running.started_us

    def test_a_failure_says_why(self, tmp_path: Path) -> None:
        engine, spec = self.engine(tmp_path), self.attempt(tmp_path, "a")
        engine.launch(spec)
        settle(engine, spec.folder, AttemptPhase.RUNNING)
        self.finish(engine, spec, ok=False)
        ended = settle(engine, spec.folder, AttemptPhase.ENDED)
        assert ended.outcome is JobState.FAILED
        assert ended.failure is not None
        assert ended.failure.cause is FailureCause.REPLICA_EXITED

    def test_launching_twice_starts_it_once(self, tmp_path: Path) -> None:
        engine, spec = self.engine(tmp_path), self.attempt(tmp_path, "a")
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(engine.launch, [spec] * 4))
        settle(engine, spec.folder, AttemptPhase.RUNNING)
        self.finish(engine, spec, ok=True)
        settle(engine, spec.folder, AttemptPhase.ENDED)
        engine.launch(spec)
        assert engine.observe([spec.folder])[spec.folder].phase is AttemptPhase.ENDED
        assert self.starts(engine, spec) == 1

    def test_cancelling_ends_it_and_may_be_repeated(self, tmp_path: Path) -> None:
        engine, spec = self.engine(tmp_path), self.attempt(tmp_path, "a")
        engine.launch(spec)
        settle(engine, spec.folder, AttemptPhase.RUNNING)
        engine.cancel(spec.folder)
        engine.cancel(spec.folder)
        assert settle(engine, spec.folder, AttemptPhase.ENDED).outcome is JobState.CANCELLED
        engine.cancel(spec.folder)
        assert engine.observe([spec.folder])[spec.folder].outcome is JobState.CANCELLED

    def test_cancelling_nothing_does_nothing(self, tmp_path: Path) -> None:
        engine = self.engine(tmp_path)
        engine.cancel(tmp_path / "nowhere")
        assert engine.observe([tmp_path / "nowhere"])[tmp_path / "nowhere"].phase is AttemptPhase.ABSENT

    def test_a_replica_that_is_killed_is_started_again(self, tmp_path: Path) -> None:
        engine, spec = self.engine(tmp_path), self.attempt(tmp_path, "a")
        engine.launch(spec)
        settle(engine, spec.folder, AttemptPhase.RUNNING)
        eventually(lambda: self.starts(engine, spec), lambda count: count == 1)
        engine.kill(spec.folder, "no-replica-0", signal.SIGKILL)
        engine.kill(spec.folder, spec.replicas[0].name, signal.SIGKILL)
        eventually(lambda: self.starts(engine, spec), lambda count: count == 2)
        self.finish(engine, spec, ok=True)
        assert settle(engine, spec.folder, AttemptPhase.ENDED).outcome is JobState.SUCCEEDED
        engine.kill(spec.folder, spec.replicas[0].name, signal.SIGKILL)
        engine.kill(tmp_path / "nowhere", spec.replicas[0].name, signal.SIGKILL)
        assert self.starts(engine, spec) == 2

    def test_one_question_answers_for_many(self, tmp_path: Path) -> None:
        engine, first, second = self.engine(tmp_path), self.attempt(tmp_path, "a"), self.attempt(tmp_path, "b")
        engine.launch(first)
        engine.launch(second)
        settle(engine, first.folder, AttemptPhase.RUNNING)
        settle(engine, second.folder, AttemptPhase.RUNNING)
        self.finish(engine, first, ok=True)
        settle(engine, first.folder, AttemptPhase.ENDED)
        statuses = engine.observe([first.folder, second.folder, tmp_path / "nowhere"])
        assert [each.phase for each in statuses.values()] == [
            AttemptPhase.ENDED,
            AttemptPhase.RUNNING,
            AttemptPhase.ABSENT,
        ]
        self.finish(engine, second, ok=True)
        settle(engine, second.folder, AttemptPhase.ENDED)


def gang_of(spec: AttemptSpec, *, replicas: int = 1) -> GangRequest:
    """Return the capacity request of an attempt."""
    machines = {f"worker-replica-{number}": "n1-standard-1" for number in range(replicas)}
    return GangRequest(project=spec.project, job=spec.job, attempt=spec.attempt, folder=spec.folder, machines=machines)


def message_of(observed: ObservedAttempt) -> str:
    """Return why an attempt failed, as the errorMessage of the job `j`."""
    assert observed.failure is not None, observed
    return error_message(observed.failure, "j")


def settle(
    engine: Engine, attempt: Path, phase: AttemptPhase, *, within_s: float = SETTLE_TIMEOUT_S
) -> ObservedAttempt:
    """Return the first status of the attempt in this phase. Fails if it ends otherwise, or after the time limit."""
    ends = (AttemptPhase.ENDED, AttemptPhase.LOST)
    status = eventually(
        lambda: engine.observe([attempt])[attempt],
        lambda status: status.phase is phase or status.phase in ends,
        within_s=within_s,
    )
    assert status.phase is phase, f"{attempt} came to be {status}"
    return status
