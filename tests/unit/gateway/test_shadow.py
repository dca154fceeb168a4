"""Shadow traffic: copies of requests, whose answers are compared and thrown away."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from trainshed.domain.models.hosting import ServingState
from trainshed.gateway import shadow as shadow_module
from trainshed.gateway.gateway import Answer, FrameKind, PredictionGateway
from trainshed.gateway.host_connection import FutureSink
from trainshed.gateway.request_log import RequestLogWriter
from trainshed.gateway.routes import ModelRoute, PredictTarget, RequestLogTarget, Routes, Shadow, VersionRoute
from trainshed.gateway.shadow import ShadowTotals
from trainshed.testing.fakes.hosts import Behaviour, FakeHost, answering, echo
from trainshed.testing.processes.gateway import RecordingControlPlane

BODY = b'{"instances": [1]}'
TARGET = PredictTarget(project="p", model="m", kind=FrameKind.PREDICT)
LOG = RequestLogTarget(bucket="b", folder="f", share=1.0)


async def crash(kind: int, body: bytes) -> tuple[int, bytes]:
    return 500, b"{}"


async def hang(kind: int, body: bytes) -> None:
    return None


class Pair:
    """A default version that echoes, and another one in its shadow."""

    def __init__(self, folder: Path, behaviour: Behaviour, state: ServingState = ServingState.READY) -> None:
        self.routes, self.control_plane = Routes(), RecordingControlPlane()
        self.old, self.new = FakeHost(folder / "old", echo).start(), FakeHost(folder / "new", behaviour).start()
        self.logged: list[bytes] = []
        old = VersionRoute(
            project="p",
            model="m",
            version="v1",
            state=ServingState.READY,
            hosts=(self.old.address,),
            shadow=Shadow(version="v2", share=1.0),
        )
        hosts = (self.new.address,) if state is ServingState.READY else ()
        new = VersionRoute(project="p", model="m", version="v2", state=state, hosts=hosts, log=LOG)
        self.routes.publish(ModelRoute(project="p", model="m", default="v1", versions={"v1": old, "v2": new}))

    def ask(self, count: int, until: Callable[[ShadowTotals], bool]) -> tuple[PredictionGateway, ShadowTotals]:
        """Send requests until the shadow's counts are as expected."""
        writer = RequestLogWriter(lambda project, bucket, name, lines: self.logged.append(lines))
        gateway = PredictionGateway(self.routes, writer, timeout_s=60.0)
        found = ShadowTotals()

        async def main() -> None:
            nonlocal found
            gateway.begin(self.control_plane)
            try:
                await gateway.send(replace(TARGET, version="v1"), BODY)  # which no shadow gets
                async with asyncio.timeout(60):
                    while not self.connected(gateway):
                        await asyncio.sleep(0.01)
                    for _ in range(count - 1):
                        assert await gateway.send(TARGET, BODY) == (200, b'{"predictions": [1]}')
                    while not until(found := gateway.shadows.totals("p", "m", "v2")):
                        await asyncio.sleep(0.01)
            finally:
                gateway.close()

        asyncio.run(main())
        return gateway, found

    def connected(self, gateway: PredictionGateway) -> bool:
        route = self.routes.models["p", "m"].versions["v2"]
        return not route.hosts or gateway.connected(route) is not None

    def stop(self) -> None:
        self.old.stop()
        self.new.stop()


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Callable[..., Pair]]:
    made: list[Pair] = []

    def make(behaviour: Behaviour, state: ServingState = ServingState.READY) -> Pair:
        made.append(Pair(tmp_path, behaviour, state))
        return made[-1]

    yield make
    for each in made:
        each.stop()


def test_copies_are_counted_apart_and_reach_no_log(pair: Callable[..., Pair]) -> None:
    asked = pair(echo)
    gateway, found = asked.ask(20, lambda totals: totals.requests.count >= 19 and totals.compared >= 19)
    assert (found.requests.errors, found.changed, found.left_out) == (0, 0, 0)
    assert len(asked.new.seen) == found.requests.count
    assert gateway.metrics.totals_of(("p", "m", "v1")).count == 20
    assert gateway.metrics.totals_of(("p", "m", "v2")).count == 0
    assert asked.logged == []


def test_other_answers_are_counted(pair: Callable[..., Pair]) -> None:
    _, found = pair(answering([2])).ask(10, lambda totals: totals.compared >= 9)
    assert found.changed == found.compared


def test_errors_of_the_shadow_reach_no_client(pair: Callable[..., Pair]) -> None:
    _, found = pair(crash).ask(10, lambda totals: totals.requests.count >= 9)
    assert (found.requests.errors, found.compared) == (found.requests.count, 0)


def test_a_shadow_that_hangs_holds_up_nobody(pair: Callable[..., Pair], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shadow_module, "MAX_IN_FLIGHT", 3)
    gateway, found = pair(hang).ask(10, lambda totals: totals.left_out >= 6)
    assert (found.requests.count, gateway.metrics.totals_of(("p", "m", "v1")).errors) == (0, 0)


def test_of_several_processes_one_mirrors(pair: Callable[..., Pair]) -> None:
    asked = pair(echo)
    named = replace(TARGET, version="v1")
    gateway = PredictionGateway(asked.routes, RequestLogWriter(lambda *_: None), timeout_s=60.0, mirrors=False)

    async def main() -> None:
        gateway.begin(asked.control_plane)
        assert await gateway.send(named, BODY) == await gateway.send(TARGET, BODY) == (200, b'{"predictions": [1]}')
        answer: asyncio.Future[Answer | None] = asyncio.get_running_loop().create_future()
        assert gateway.try_send(TARGET, (BODY,), FutureSink(answer)) is None
        assert gateway.try_send(named, (BODY,), FutureSink(answer)) is not None
        await answer
        gateway.close()

    asyncio.run(main())
    assert (gateway.shadows.wanted(TARGET), gateway.shadows.wanted(named)) == (True, False)
    assert (asked.new.seen, gateway.shadows.totals("p", "m", "v2")) == ([], ShadowTotals())


def test_a_shadow_that_sleeps_is_woken(pair: Callable[..., Pair]) -> None:
    asked = pair(echo, ServingState.SLEEPING)
    _, found = asked.ask(4, lambda totals: totals.left_out == 3)
    assert found.requests.count == 0
    assert asked.control_plane.activations == [("p", "m", "v2")] * 3


def test_requests_that_name_a_version_are_not_copied(pair: Callable[..., Pair]) -> None:
    asked = pair(echo)
    gateway = PredictionGateway(asked.routes, RequestLogWriter(lambda *_: None), timeout_s=60.0)

    async def main() -> None:
        gateway.begin(asked.control_plane)
        await gateway.send(PredictTarget(project="p", model="m", version="v1", kind=FrameKind.PREDICT), BODY)
        gateway.close()

    asyncio.run(main())
    assert gateway.shadows.totals("p", "m", "v2") == ShadowTotals()
