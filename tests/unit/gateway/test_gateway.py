"""Requests on their way to hosts that behave, hang, end and wake up."""

from __future__ import annotations

import asyncio
import json
import random
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from trainshed.domain.models.hosting import ServingState
from trainshed.errors import (
    DeadlineExceededError,
    FailedPreconditionError,
    NotFoundError,
    ResourceExhaustedError,
    UnavailableError,
)
from trainshed.gateway import connection_pool as hosts_module
from trainshed.gateway import gateway, host_connection
from trainshed.gateway.connection_pool import HostConnectionPool
from trainshed.gateway.gateway import FrameKind, PredictionGateway
from trainshed.gateway.host_connection import FutureSink, HostLostError
from trainshed.gateway.request_log import RequestLogWriter
from trainshed.gateway.routes import HostAddress, ModelRoute, PredictTarget, RequestLogTarget, Routes, VersionRoute
from trainshed.serving.memory import MIN_TRIM_BYTES, MemoryTrimmer
from trainshed.testing.fakes.hosts import Behaviour, FakeHost, answering, echo
from trainshed.testing.processes.gateway import RecordingControlPlane

BODY = b'{"instances": [1]}'
TARGET = PredictTarget(project="p", model="m", kind=FrameKind.PREDICT)


class Bench:
    """Predictions on a loop of their own for the length of a test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.routes = Routes()
        self.control_plane = RecordingControlPlane()
        self.written: list[bytes] = []
        self.hosts: list[FakeHost] = []

    def host(self, behaviour: Behaviour = echo) -> FakeHost:
        host = FakeHost(self.folder / f"{len(self.hosts)}.sock", behaviour).start()
        self.hosts.append(host)
        return host

    def publish(
        self,
        *hosts: HostAddress,
        state: ServingState = ServingState.READY,
        reason: str = "",
        log: RequestLogTarget | None = None,
    ) -> None:
        route = VersionRoute(project="p", model="m", version="v1", state=state, reason=reason, hosts=hosts, log=log)
        self.routes.publish(ModelRoute(project="p", model="m", default="v1", versions={"v1": route}))

    def run(
        self,
        steps: Callable[[PredictionGateway], Awaitable[None]],
        *,
        timeout_s: float = 100.0,
        draw: Callable[[], float] = random.random,
    ) -> PredictionGateway:
        def write(project: str, bucket: str, name: str, lines: bytes) -> None:
            self.written.append(lines)

        made = PredictionGateway(self.routes, RequestLogWriter(write), timeout_s=timeout_s, draw=draw)

        async def main() -> None:
            made.begin(self.control_plane)
            try:
                await steps(made)
            finally:
                made.close()

        asyncio.run(main())
        return made


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    for host in made.hosts:
        host.stop()


class Gate:
    """Holds answers back until it is opened."""

    def __init__(self) -> None:
        self.open = False

    def answering(self, value: str) -> Behaviour:
        async def answer(kind: int, body: bytes) -> tuple[int, bytes]:
            while not self.open:
                await asyncio.sleep(0.005)
            return 200, json.dumps({"predictions": value}).encode()

        return answer


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Turns the clock by which requests run into their deadlines."""
    ahead = [0.0]
    monkeypatch.setattr(host_connection, "monotonic", lambda: time.monotonic() + ahead[0])

    def turn(seconds: float) -> None:
        ahead[0] += seconds

    return turn


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.005)


def test_an_answer_is_passed_on_as_it_is(bench: Bench) -> None:
    bench.publish(bench.host().address)

    async def steps(made: PredictionGateway) -> None:
        assert await made.send(TARGET, BODY) == (200, b'{"predictions": [1]}')
        status, body = await made.send(TARGET, b"nonsense") or (0, b"")
        assert (status, json.loads(body)["error"]["status"]) == (400, "INVALID_ARGUMENT")

    made = bench.run(steps)
    assert bench.hosts[0].seen == [(FrameKind.PREDICT, BODY), (FrameKind.PREDICT, b"nonsense")]
    traffic = made.metrics.traffic("p", "m")["v1"]
    assert (traffic["count"], traffic["errors"]) == (2, 1)


def test_answers_find_their_askers_in_any_order_and_size(bench: Bench) -> None:
    source = random.Random(3)
    sizes = [source.choice((1, 100, 70_000, 1_000_000)) for _ in range(60)]

    async def shuffled(kind: int, body: bytes) -> tuple[int, bytes]:
        await asyncio.sleep(source.random() / 50)
        return 200, body

    bench.publish(bench.host(shuffled).address)

    async def steps(made: PredictionGateway) -> None:
        bodies = [f"{number} ".encode() + b"x" * size for number, size in enumerate(sizes)]
        answers = await asyncio.gather(*(made.send(TARGET, body) for body in bodies))
        assert answers == [(200, body) for body in bodies]

    bench.run(steps)


def test_who_has_least_to_do_is_asked(bench: Bench) -> None:
    gate = Gate()
    slow, quick = bench.host(gate.answering("slow")), bench.host(answering("quick"))
    bench.publish(slow.address, quick.address)
    route = bench.routes.models["p", "m"].versions["v1"]

    async def steps(made: PredictionGateway) -> None:
        await until(lambda: all(made.connected(replace(route, hosts=(host.address,))) for host in (slow, quick)))
        waiting = [asyncio.ensure_future(made.send(TARGET, BODY)) for _ in range(2)]
        await until(lambda: slow.seen and quick.seen)
        for _ in range(20):
            assert await made.send(TARGET, BODY) == (200, b'{"predictions": "quick"}')
        gate.open = True
        await asyncio.gather(*waiting)

    bench.run(steps)
    assert len(slow.seen) == 1


def test_a_split_is_kept_with_a_fixed_source(bench: Bench) -> None:
    hosts = {name: bench.host(answering(name)) for name in ("v1", "v2")}
    versions = {
        name: VersionRoute(project="p", model="m", version=name, state=ServingState.READY, hosts=(host.address,))
        for name, host in hosts.items()
    }
    bench.routes.publish(
        ModelRoute(project="p", model="m", default="v1", split=(("v1", 90), ("v2", 10)), versions=versions)
    )
    counts: Counter[bytes] = Counter()

    async def steps(made: PredictionGateway) -> None:
        for _ in range(1000):
            _, body = await made.send(TARGET, BODY) or (0, b"")
            counts[body] += 1

    bench.run(steps, draw=random.Random(11).random)
    expected = random.Random(11)
    assert counts[b'{"predictions": "v2"}'] == sum(expected.random() >= 0.9 for _ in range(1000))


@pytest.mark.parametrize(
    ("state", "said"),
    [
        (ServingState.STARTING, "not ready yet"),
        (ServingState.UNHEALTHY, "is unhealthy: it crashed five times"),
    ],
)
def test_a_version_that_does_not_answer_says_why(bench: Bench, state: ServingState, said: str) -> None:
    bench.publish(state=state, reason="it crashed five times" if state is ServingState.UNHEALTHY else "")

    async def steps(made: PredictionGateway) -> None:
        with pytest.raises(UnavailableError, match=said):
            await made.send(TARGET, BODY)

    made = bench.run(steps)
    assert made.metrics.traffic("p", "m")["v1"]["errors"] == 1


def test_what_is_not_there_is_told_apart(bench: Bench) -> None:
    starting = VersionRoute(project="p", model="new", version="v1", state=ServingState.STARTING)
    bench.routes.publish(
        ModelRoute(project="p", model="empty"),
        ModelRoute(project="p", model="new", versions={"v1": starting}),
    )

    async def steps(made: PredictionGateway) -> None:
        for target, error in (
            (PredictTarget(project="p", model="absent", kind=1), NotFoundError),
            (PredictTarget(project="q", model="empty", kind=1), NotFoundError),
            (PredictTarget(project="p", model="empty", version="v1", kind=1), NotFoundError),
            (PredictTarget(project="p", model="empty", kind=1), FailedPreconditionError),
            (PredictTarget(project="p", model="new", kind=1), UnavailableError),
        ):
            with pytest.raises(error):
                await made.send(target, BODY)

    bench.run(steps)


def test_a_host_that_ends_fails_those_that_wait_and_the_next_one_answers(bench: Bench) -> None:
    first = bench.host(answering("never", after_s=60))
    bench.publish(first.address)

    async def steps(made: PredictionGateway) -> None:
        waiting = [asyncio.ensure_future(made.send(TARGET, BODY)) for _ in range(5)]
        await until(lambda: len(first.seen) == 5)
        await asyncio.to_thread(first.stop)
        results = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(result) for result in results] == [HostLostError] * 5
        with pytest.raises(UnavailableError):  # it is in the routes still, but nobody listens
            await made.send(TARGET, BODY)
        bench.publish(bench.host(answering("again")).address)
        assert await made.send(TARGET, BODY) == (200, b'{"predictions": "again"}')

    bench.run(steps)


@pytest.mark.parametrize("status", [0, 100, 204, 304, 999])
def test_a_status_that_is_none_of_a_hosts_is_not_passed_on(bench: Bench, status: int) -> None:
    async def made_up(kind: int, body: bytes) -> tuple[int, bytes]:
        return status, b"{}"

    bench.publish(bench.host(made_up).address)

    async def steps(made: PredictionGateway) -> None:
        with pytest.raises(UnavailableError):
            await made.send(TARGET, BODY)

    bench.run(steps)


def test_a_request_runs_into_its_deadline_and_is_withdrawn(bench: Bench, later: Callable[[float], None]) -> None:
    host = bench.host(Gate().answering("never"))
    bench.publish(host.address)

    async def steps(made: PredictionGateway) -> None:
        asking = asyncio.ensure_future(made.send(TARGET, BODY))
        await until(lambda: host.seen)
        assert not asking.done()
        later(100)
        with pytest.raises(DeadlineExceededError, match="100 seconds"):
            await asking
        await until(lambda: host.cancelled)

    bench.run(steps, timeout_s=100)
    assert bench.control_plane.unresponsive == [host.address.key]


def test_a_host_that_answers_others_meanwhile_does_not_hang(bench: Bench, later: Callable[[float], None]) -> None:
    async def some(kind: int, body: bytes) -> tuple[int, bytes] | None:
        return (200, b"{}") if body == BODY else None

    host = bench.host(some)
    bench.publish(host.address)

    async def steps(made: PredictionGateway) -> None:
        lost = asyncio.ensure_future(made.send(TARGET, b"dropped"))
        await until(lambda: host.seen)
        assert await made.send(TARGET, BODY) == (200, b"{}")
        later(100)
        with pytest.raises(DeadlineExceededError):
            await lost

    bench.run(steps, timeout_s=100)
    assert bench.control_plane.unresponsive == []


def test_too_many_at_once_are_turned_away_at_once(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_connection, "MAX_IN_FLIGHT", 10)
    monkeypatch.setattr(host_connection, "MAX_IN_FLIGHT_BYTES", 1000)
    host = bench.host(answering("ok", after_s=0.2))
    bench.publish(host.address)

    async def steps(made: PredictionGateway) -> None:
        results = await asyncio.gather(*(made.send(TARGET, BODY) for _ in range(30)), return_exceptions=True)
        assert Counter(type(result) for result in results) == {tuple: 10, ResourceExhaustedError: 20}
        assert await made.send(TARGET, b"x" * 5000) is not None  # alone, it may be of any size
        results = await asyncio.gather(*(made.send(TARGET, b"x" * 600) for _ in range(2)), return_exceptions=True)
        assert Counter(type(result) for result in results) == {tuple: 1, ResourceExhaustedError: 1}
        assert await made.send(TARGET, BODY) is not None

    traffic = bench.run(steps).metrics.traffic("p", "m")["v1"]
    assert (traffic["count"], traffic["errors"]) == (34, 21)


def test_a_sleeping_version_is_woken_and_the_requests_held(bench: Bench) -> None:
    bench.publish(state=ServingState.SLEEPING)

    def wake(activations: int) -> None:
        if activations == 1:
            bench.publish(state=ServingState.WAKING)
        elif activations == 4:
            bench.publish(bench.host(answering("awake")).address)

    bench.control_plane.on_activate = lambda: threading.Thread(
        target=wake, args=(len(bench.control_plane.activations),)
    ).start()

    async def steps(made: PredictionGateway) -> None:
        answers = await asyncio.gather(*(made.send(TARGET, BODY) for _ in range(3)))
        assert answers == [(200, b'{"predictions": "awake"}')] * 3

    bench.run(steps)
    assert set(bench.control_plane.activations) == {("p", "m", "v1")}


def test_a_version_that_does_not_wake_in_time_is_unavailable(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway, "MAX_HELD_REQUESTS", 2)
    bench.publish(state=ServingState.SLEEPING)

    async def steps(made: PredictionGateway) -> None:
        results = await asyncio.gather(*(made.send(TARGET, BODY) for _ in range(3)), return_exceptions=True)
        assert Counter(type(result) for result in results) == {UnavailableError: 2, ResourceExhaustedError: 1}

    bench.run(steps, timeout_s=0.2)


class LostClient:
    def __init__(self) -> None:
        self.waiter: asyncio.Future[tuple[int, bytes] | None] | None = None
        self.gone = False


def test_a_client_that_is_gone_takes_its_request_back(bench: Bench) -> None:
    host = bench.host(answering("late", after_s=60))
    bench.publish(host.address)

    async def steps(made: PredictionGateway) -> None:
        client = LostClient()
        asking = asyncio.ensure_future(made.send(TARGET, BODY, client))
        await until(lambda: host.seen)
        assert client.waiter is not None
        client.waiter.set_result(None)
        assert await asking is None
        await until(lambda: host.cancelled)

    made = bench.run(steps)
    assert made.metrics.traffic("p", "m") == {}  # nobody was answered


def test_a_host_is_drained_when_its_last_answer_is_out(bench: Bench) -> None:
    gate = Gate()
    host = bench.host(gate.answering("old"))
    bench.publish(host.address)

    async def steps(made: PredictionGateway) -> None:
        asking = asyncio.ensure_future(made.send(TARGET, BODY))
        await until(lambda: host.seen)
        key = host.address.key
        assert not await asyncio.to_thread(made.drained, [key], timeout_s=0.05)
        bench.publish(bench.host(answering("new")).address)
        assert await made.send(TARGET, BODY) == (200, b'{"predictions": "new"}')
        gate.open = True
        assert await asyncio.to_thread(made.drained, [key], timeout_s=60)
        assert asking.done()
        assert await asking == (200, b'{"predictions": "old"}')

    assert bench.run(steps).drained([host.address.key], timeout_s=1)  # nothing is served any more
    assert len(host.seen) == 1


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_a_share_of_the_answers_is_logged(bench: Bench, share: float) -> None:
    draws: list[float] = []
    source = random.Random(5)

    def draw() -> float:
        draws.append(source.random())
        return draws[-1]

    bench.publish(bench.host().address, log=RequestLogTarget(bucket="b", folder="f", share=share))

    async def steps(made: PredictionGateway) -> None:
        target = PredictTarget(
            project="p", model="m", version="v1", kind=FrameKind.PREDICT
        )  # so that none is drawn for a split
        for _ in range(50):
            await made.send(target, BODY)
        await made.send(target, b"nonsense")  # not answered, not logged
        await made.send(PredictTarget(project="p", model="m", version="v1", kind=FrameKind.EXPLAIN), BODY)

    bench.run(steps, draw=draw)
    assert len(draws) == 50
    assert len(b"".join(bench.written).splitlines()) == sum(lot < share for lot in draws)


def test_a_replay_is_neither_counted_nor_logged(bench: Bench) -> None:
    bench.publish(bench.host().address, log=RequestLogTarget(bucket="b", folder="f", share=1))

    async def steps(made: PredictionGateway) -> None:
        status, body, seconds = await asyncio.to_thread(made.replay, TARGET, BODY)
        assert (status, body) == (200, b'{"predictions": [1]}')
        assert 0 < seconds < 100

    made = bench.run(steps)
    assert made.metrics.traffic("p", "m") == {}
    assert bench.written == []


def test_memory_is_given_back_when_nobody_has_asked_for_a_while(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosts_module, "TRIM_IDLE_TIMEOUT_S", 0.2)
    trims: list[float] = []
    host = bench.host(answering("late", after_s=0.5))

    async def steps() -> float:
        hosts = HostConnectionPool(timeout_s=60, trimmer=MemoryTrimmer(lambda: trims.append(time.monotonic())))
        await hosts.connect_any([host.address])
        connection = hosts.least_loaded([host.address])
        assert connection is not None
        future: asyncio.Future[tuple[int, bytes] | None] = asyncio.get_running_loop().create_future()
        connection.send(1, (b"x" * MIN_TRIM_BYTES,), FutureSink(future), began=time.monotonic())
        hosts.sync([host.address])
        while not future.done():
            hosts.sweep()
            await asyncio.sleep(0.01)
        answered = time.monotonic()
        for _ in range(60):
            hosts.sweep()
            await asyncio.sleep(0.01)
        hosts.close()
        return answered

    answered = asyncio.run(steps())
    assert len(trims) == 1
    assert trims[0] >= answered
