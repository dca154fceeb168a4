"""The parts of gateway processes: channels, what they know of the server, and whose limits they count against."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from trainshed.api.gateways import link as link_module
from trainshed.api.gateways.channel import ConnectionChannel, MessageChannel
from trainshed.api.gateways.client_connection import read_head
from trainshed.api.gateways.link import GatewayLink
from trainshed.api.gateways.messages import (
    AcceptedRequest,
    CountInFlight,
    Forget,
    GatewayConfig,
    Lease,
    LeaseWanted,
    OpenConnections,
)
from trainshed.api.gateways.reported_connections import ReportedConnections
from trainshed.api.gateways.views import RateLeases, TokenView
from trainshed.config import Settings
from trainshed.connections import Connections, ExemptAddresses
from trainshed.domain.access.quotas import Quota, QuotaName
from trainshed.domain.iam import Principal, Role, token_digest
from trainshed.gateway.metrics import VersionMetrics
from trainshed.gateway.routes import PredictTarget
from trainshed.server import _gateway_config
from trainshed.services.access.request_rates import RequestRates
from trainshed.serving.frames import FrameKind
from trainshed.testing.eventually import SETTLE_TIMEOUT_S
from trainshed.wiring.serving import with_possible_gateways

ANN = Principal(user="ann", project="p", role=Role.EDITOR)
TARGET = PredictTarget(project="p", model="m", kind=FrameKind.PREDICT)


def accepted(*, epoch: int = 0, expires_us: int | None = None, is_unlimited: bool = True) -> AcceptedRequest:
    return AcceptedRequest(
        url=b"/u",
        host=b"h",
        target=TARGET,
        digest=token_digest("secret"),
        principal=ANN,
        expires_us=expires_us,
        is_unlimited=is_unlimited,
        epoch=epoch,
    )


def test_the_head_of_a_request_is_read() -> None:
    head = b"POST /a?b=c HTTP/1.1\r\nHost: h\r\nContent-Length:  3 \r\nX-Empty:"
    headers = [(b"host", b"h"), (b"content-length", b"3"), (b"x-empty", b"")]
    assert read_head(head) == (b"POST", b"/a?b=c", headers)


@pytest.mark.parametrize(
    "head",
    [
        b"POST /a HTTP/1.0\r\nhost: h",
        b"POST /a  HTTP/1.1\r\nhost: h",
        b"POST /a HTTP/1.1\nhost: h",
        b"POST /a HTTP/1.1\r\nhost: h\nother: x",
        b"POST /a HTTP/1.1\r\nhost: h\rother: x",
        b"POST /a HTTP/1.1\r\nhost : h",
        b"POST /a HTTP/1.1\r\nhost: h\r\n folded: x",
        b"POST /a HTTP/1.1\r\nno colon",
        b"POST /a HTTP/1.1\r\n: no name",
        b"POST /a HTTP/1.1\r\nhost: h\0",
        b"POST /a HTTP/1.1" + b"\r\na: b" * 101,
    ],
)
def test_what_has_an_unusual_form_is_left_to_the_server(head: bytes) -> None:
    assert read_head(head) is None


def test_messages_of_any_size_arrive_with_their_numbers() -> None:
    here, there = socket.socketpair()
    with here, there:
        sender, receiver = MessageChannel(here), MessageChannel(there)
        bodies = [b"", os.urandom(3 << 20), os.urandom(100)]

        def send() -> None:
            for number, body in enumerate(bodies):
                sender.send(body, number)

        thread = threading.Thread(target=send)
        thread.start()
        received: list[tuple[int, object]] = []
        while len(received) < len(bodies):
            received += receiver.receive()
        thread.join()
        assert received == list(enumerate(bodies))
        here.close()
        with pytest.raises(EOFError):
            receiver.receive()


def test_a_process_that_reads_nothing_is_noticed() -> None:
    here, there = socket.socketpair()
    with here, there, pytest.raises(OSError):
        MessageChannel(here, timeout_s=1).send(bytes(8 << 20))


def test_a_process_that_hangs_is_killed_for_an_acknowledgement(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        link = GatewayLink(config(listener), lambda link, message: link.is_ready.set())
        with link.connections:
            link.begin(lambda link: ended.set())
            assert link.is_ready.wait(SETTLE_TIMEOUT_S)
            assert link.wait(link.request(CountInFlight(frozenset()))) == 0
            assert not link.ended
            link.process.send_signal(signal.SIGSTOP)
            monkeypatch.setattr(link_module, "ANSWER_TIMEOUT_S", 0.1)
            assert link.wait(link.request(Forget(1))) == 0
            assert ended.wait(SETTLE_TIMEOUT_S)
    assert link.process.returncode == -signal.SIGKILL


def config(listener: socket.socket) -> GatewayConfig:
    return _gateway_config(replace(Settings(), gateways=2), listener, 1000)


def test_without_the_fast_path_there_is_one_gateway_and_the_log_says_why(caplog: pytest.LogCaptureFixture) -> None:
    one, two = Settings(), replace(Settings(), gateways=2)
    assert (with_possible_gateways(two, ""), with_possible_gateways(one, "It is off.")) == (two, one)
    assert caplog.messages == []
    assert with_possible_gateways(two, "It is off.") == one
    [message] = caplog.messages
    assert message.startswith("server.one_gateway setting=2") and message.endswith("It is off.")


def test_connections_are_passed_with_what_was_read_of_them() -> None:
    async def passing() -> list[tuple[bytes, bytes]]:
        here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        taken: list[tuple[socket.socket, bytes]] = []
        sender = ConnectionChannel(here, lambda client, read: None)
        receiver = ConnectionChannel(there, lambda client, read: taken.append((client, read)))
        clients = [socket.socketpair() for _ in range(20)]
        sent = [os.urandom(number * 40_000) for number in range(20)]
        for (passed, _), read in zip(clients, sent, strict=True):
            sender.send(passed.fileno(), read)
            passed.close()
        while len(taken) < len(clients):
            await asyncio.sleep(0.001)
        result = []
        for (client, read), (_, other) in zip(taken, clients, strict=True):
            assert not client.get_inheritable()
            other.sendall(b"more")
            result.append((read, client.recv(10)))
            client.close()
            other.close()
        sender.close()
        receiver.close()
        assert [more for _, more in result] == [b"more"] * 20
        assert [read for read, _ in result] == sent
        return result

    assert asyncio.run(passing())


def test_a_token_is_known_until_it_expires_or_the_server_forgets() -> None:
    now = [0]
    tokens = TokenView(clock=lambda: now[0])
    assert tokens.known("secret") is None
    tokens.learn(accepted(expires_us=100))
    assert tokens.known("secret") == ANN
    now[0] = 100
    assert tokens.known("secret") is None
    tokens.learn(accepted())
    assert tokens.known("secret") == ANN
    tokens.forget(Forget(3))
    assert tokens.known("secret") is None
    tokens.learn(accepted(epoch=2))  # looked up before the revocation, and came after it
    assert tokens.known("secret") is None
    tokens.learn(accepted(epoch=3))
    assert tokens.known("secret") == ANN


def test_leases_are_asked_for_used_up_and_given_back() -> None:
    asked: list[LeaseWanted] = []
    now = [0.0]
    rates = RateLeases(asked.append, clock=lambda: now[0])
    assert not rates.take("p", ANN)
    assert not rates.take("p", ANN)
    assert asked == [LeaseWanted("p", ANN)]
    rates.add(Lease("p", "ann", 2, 0))
    assert [rates.take("p", ANN) for _ in range(3)] == [True, True, False]
    assert asked == [LeaseWanted("p", ANN)] * 2
    rates.add(Lease("p", "ann", 5, 0))
    now[0] = 1.0
    rates.give_back()
    assert asked[2:] == [LeaseWanted("p", ANN, 5)]
    rates.learn(accepted())
    assert all(rates.take("p", ANN) for _ in range(100))
    rates.forget(Forget(1))
    rates.learn(accepted(epoch=0))
    assert not rates.take("p", ANN)


def test_leased_requests_count_against_the_limit() -> None:
    now = [0.0]
    quota = Quota(project="p", user="", name=QuotaName.REQUESTS_PER_SECOND, value=80)
    quotas: tuple[Quota, ...] = (quota,)
    rates = RequestRates(lambda: quotas, clock=lambda: now[0])
    assert [rates.lease("p", ANN, parts=2) for _ in range(3)] == [2, 2, 2]
    rates.give_back("p", ANN, 2)
    assert sum(rates.take("p", ANN) for _ in range(100)) == 76
    assert rates.lease("p", ANN, parts=2) == 0
    quotas = ()
    assert rates.lease("p", ANN, parts=2) is None


def test_requests_that_another_process_counted_are_added() -> None:
    now = [120.0]
    here, there = (VersionMetrics(clock=lambda: now[0]) for _ in range(2))
    name = ("p", "m", "v1")
    here.of(name).add(0.001, ok=True)
    for _ in range(2):
        there.of(name).add(0.004, ok=False)
        for taken, (totals, last) in there.take().items():
            here.of(taken).merge(totals, last)
        now[0] += 60
    traffic = here.traffic("p", "m")["v1"]
    assert (traffic["count"], traffic["errors"], len(traffic["minutes"])) == (3, 2, 2)
    assert here.last_used_us(*name) == 180_000_000
    assert there.totals() == {}


class _Open:
    is_idle = True

    def __init__(self) -> None:
        self.evicted = False

    def evict(self) -> None:
        self.evicted = True


def _in_loop(run: Callable[[], Any]) -> Any:
    async def running() -> Any:
        result = run()
        await asyncio.sleep(0)
        return result

    return asyncio.run(running())


def test_numbers_of_connections_are_reported_once_and_surplus_ones_are_closed() -> None:
    reports: list[OpenConnections] = []
    table = ReportedConnections(maximum=9, per_address=9, exempt=ExemptAddresses(), report=reports.append)
    made = [_Open() for _ in range(4)]

    def open_all() -> None:
        for each in made[:3]:
            table.add(each, "10.0.0.1")
        table.add(made[3], "127.0.0.1")

    _in_loop(open_all)
    assert reports == [OpenConnections(4, {"10.0.0.1": 3})]
    made[0].is_idle = False
    _in_loop(lambda: table.close("10.0.0.1", 2))
    assert [each.evicted for each in made] == [False, True, True, False]
    assert reports[1:] == [OpenConnections(2, {"10.0.0.1": 1}, closings=1)]
    _in_loop(lambda: table.close("10.0.0.1", 1))  # the newest one, if none is idle
    assert made[0].evicted
    _in_loop(lambda: table.close("10.0.0.1", 1))  # none is left
    assert reports[2:] == [OpenConnections(1, {"10.0.0.1": 0}, 2), OpenConnections(1, {}, 3)]


def test_connections_of_other_processes_count_too() -> None:
    table = Connections(maximum=10, per_address=3)
    table.also_count(lambda address: 2 if address else 4)
    for _ in range(2):
        table.add(_Open(), "10.0.0.1")
    assert table.excess("10.0.0.1") == 1
    assert table.excess() == -4
