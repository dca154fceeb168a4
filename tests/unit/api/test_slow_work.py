"""Slow work: bounded threads, a bounded number of waiting requests, and none for clients that have left."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from starlette.requests import Request
from starlette.types import Message

from trainshed.api.http.slow_work import FairSlots, Threads, WorkKind
from trainshed.domain.iam import Principal, Role
from trainshed.domain.work_budget import WorkBudget, WorkLimits
from trainshed.errors import RequestCancelledError, ResourceExhaustedError

KIND = WorkKind(name="tests", threads=2, max_waiting=3, limits=WorkLimits(max_bytes=1 << 20, max_seconds=600))


class Client:
    """A request whose client leaves when it is told to."""

    def __init__(self, user: str = "ann") -> None:
        self._left = asyncio.Event()
        self._sent = False
        principal = Principal(user=user, project="p", role=Role.VIEWER)
        self.request = Request({"type": "http", "trainshed.principal": principal}, self._receive)

    def leave(self) -> None:
        self._left.set()

    async def _receive(self) -> Message:
        if not self._sent:
            self._sent = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await self._left.wait()
        return {"type": "http.disconnect"}


def until_cancelled(budget: WorkBudget) -> None:
    while True:
        budget.spend(0)
        time.sleep(0.001)


async def holds(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.001)


def run(scenario: Callable[[Threads], Any]) -> None:
    async def main() -> None:
        await asyncio.wait_for(scenario(Threads(KIND)), 60)

    asyncio.run(main())


def test_more_requests_than_may_wait_are_refused_and_the_rest_takes_turns() -> None:
    gate = threading.Event()

    async def scenario(threads: Threads) -> None:
        users = ("ann", "ben", "ann", "ben", "ann")
        first = [asyncio.create_task(threads.run(Client(user).request, lambda _: gate.wait(60))) for user in users]
        await holds(lambda: (threads.running, threads.waiting) == (2, 3))
        with pytest.raises(ResourceExhaustedError) as refused:
            await threads.run(Client().request, lambda _: None)
        assert refused.value.retry_after_s > 0
        assert str(refused.value).startswith("Too many tests are under way: 2 run and 3 wait.")
        gate.set()
        assert await asyncio.gather(*first) == [True] * 5
        assert await threads.run(Client().request, lambda _: "after") == "after"

    run(scenario)


def test_a_client_that_leaves_frees_its_thread_and_its_place() -> None:
    async def scenario(threads: Threads) -> None:
        clients = [Client(user) for user in ("ann", "ben", "ann", "ben", "ann")]
        work = [asyncio.create_task(threads.run(client.request, until_cancelled)) for client in clients]
        await holds(lambda: (threads.running, threads.waiting) == (2, 3))
        clients[4].leave()
        await holds(lambda: (threads.running, threads.waiting) == (2, 2))
        for client in clients[:4]:
            client.leave()
        ended = await asyncio.gather(*work, return_exceptions=True)
        assert [type(each) for each in ended] == [RequestCancelledError] * 5
        await holds(lambda: (threads.running, threads.waiting) == (0, 0))
        assert await threads.run(Client().request, lambda _: "after") == "after"

    run(scenario)


def test_a_cancelled_request_stops_its_work() -> None:
    async def scenario(threads: Threads) -> None:
        work = asyncio.create_task(threads.run(Client().request, until_cancelled))
        await holds(lambda: threads.running == 1)
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
        await holds(lambda: threads.running == 0)

    run(scenario)


def test_an_error_of_the_work_is_the_error_of_the_request() -> None:
    def fail(budget: WorkBudget) -> None:
        raise KeyError("why")

    async def scenario(threads: Threads) -> None:
        with pytest.raises(KeyError, match="why"):
            await threads.run(Client().request, fail)

    run(scenario)


def test_one_caller_leaves_a_thread_to_others() -> None:
    gate = threading.Event()

    async def scenario(threads: Threads) -> None:
        greedy = [asyncio.create_task(threads.run(Client("ann").request, lambda _: gate.wait(60))) for _ in range(4)]
        await holds(lambda: threads.waiting == 3)
        assert threads.running == 1
        assert await threads.piece(Client("ben").request, lambda: "piece") == "piece"
        gate.set()
        assert await asyncio.gather(*greedy) == [True] * 4

    run(scenario)


def test_a_caller_who_fills_the_queue_makes_room_for_another() -> None:
    gate = threading.Event()

    async def scenario(threads: Threads) -> None:
        first = asyncio.create_task(threads.run(Client("zoe").request, lambda _: gate.wait(60)))
        await holds(lambda: threads.running == 1)
        skipped = list[int]()
        greedy = [
            asyncio.create_task(
                threads.run(Client("ann").request, lambda _: gate.wait(60), otherwise=partial(skipped.append, number))
            )
            for number in range(4)
        ]
        await holds(lambda: (threads.running, threads.waiting) == (2, 3))
        other = asyncio.create_task(threads.run(Client("ben").request, lambda _: gate.wait(60)))
        with pytest.raises(ResourceExhaustedError):
            await greedy[3]
        assert skipped == [3]
        with pytest.raises(ResourceExhaustedError):  # she has most of the queue already
            await threads.run(Client("ann").request, lambda _: None)
        gate.set()
        assert await asyncio.gather(first, other, *greedy[:3]) == [True] * 5
        assert skipped == [3]

    run(scenario)


def test_callers_take_turns() -> None:
    async def scenario(_: Threads) -> None:
        slots, order = FairSlots(1), list[str]()

        async def work(caller: str, name: str) -> None:
            await slots.acquire(caller)
            order.append(name)
            slots.release(caller)

        await slots.acquire("zoe")
        names = ("ann 1", "ann 2", "ann 3", "ben 1", "ben 2")
        tasks = [asyncio.create_task(work(name.partition(" ")[0], name)) for name in names]
        await asyncio.sleep(0)  # all of them wait now
        slots.release("zoe")
        await asyncio.gather(*tasks)
        assert order == ["ann 1", "ben 1", "ann 2", "ben 2", "ann 3"]

    run(scenario)


def test_slots_are_all_free_again_after_requests_that_were_cancelled() -> None:
    async def scenario(threads: Threads) -> None:
        for _ in range(20):
            tasks = [asyncio.create_task(threads.run(Client(user).request, until_cancelled)) for user in "abcab"]
            await asyncio.sleep(0)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        await holds(lambda: (threads.running, threads.waiting) == (0, 0))
        assert [await threads.run(Client(user).request, lambda _: "after") for user in "abc"] == ["after"] * 3

    run(scenario)
