"""A gateway process: `python -m trainshed.api.gateways.process CONFIG`. It ends with the server."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import signal
import socket
import sys
from dataclasses import dataclass

import uvloop

from trainshed.api.acceptor import Acceptor
from trainshed.api.gateways.channel import ConnectionChannel, MessageChannel
from trainshed.api.gateways.client_connection import ClientConnections
from trainshed.api.gateways.messages import (
    Accept,
    AcceptedRequest,
    CloseConnections,
    Counted,
    CountInFlight,
    Done,
    Forget,
    GatewayConfig,
    HostTrouble,
    Lease,
    Logged,
    PassIdle,
    Ready,
    RoutesChanged,
    ServerLogLine,
    StopGateway,
    ToServer,
)
from trainshed.api.gateways.reported_connections import ReportedConnections
from trainshed.api.gateways.views import RateLeases, TokenView, apply_routes
from trainshed.api.ml.fast_path import FastPath
from trainshed.api.unread_responses import UnreadResponses
from trainshed.connections import ExemptAddresses
from trainshed.gateway.connection_pool import sharing_processes
from trainshed.gateway.gateway import PredictionGateway
from trainshed.gateway.request_log import LoggedExchange
from trainshed.gateway.routes import RequestLogTarget, Routes, VersionRoute

REPORT_INTERVAL_S = 0.25
CHECK_INTERVAL_S = 5.0
STOP_TIMEOUT_S = 10.0


class _ServerLog(logging.Handler):
    """Passes lines to the server's log."""

    def __init__(self, server: ServerPort) -> None:
        super().__init__()
        self._server = server

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if record.exc_info:
            text = f"{text}\n{logging.Formatter().formatException(record.exc_info)}"
        self._server.send(ServerLogLine(record.name, record.levelno, text))


class ServerPort:
    """The server, as the parts of a gateway call it: control plane and request log. The process ends if it is gone."""

    def __init__(self, channel: MessageChannel) -> None:
        self._channel = channel

    def send(self, message: ToServer, number: int = 0) -> None:
        try:
            self._channel.send(message, number)
        except OSError:
            os._exit(0)

    def activate(self, project: str, model: str, version: str) -> None:
        raise AssertionError("requests of versions that are asleep are the server's")

    def host_unresponsive(self, key: str) -> None:
        self.send(HostTrouble(key))

    def host_unreachable(self, key: str, reason: str) -> None:
        self.send(HostTrouble(key, reason))

    def start(self) -> None:
        """Nothing is to be started: the server writes the request log."""

    def stop(self) -> None:
        """Nothing is left to be written."""

    def flush(self) -> None:
        """The server has all."""

    def add(self, route: VersionRoute, log: RequestLogTarget, exchange: LoggedExchange) -> None:
        self.send(Logged(route, log, exchange))


@dataclass(frozen=True, slots=True)
class _Services:
    tokens: TokenView
    rates: RateLeases
    predictions: PredictionGateway


class GatewayProcess:
    """Serves predictions until the server is gone or says stop. Event loop only."""

    def __init__(self, config: GatewayConfig) -> None:
        self._loop = asyncio.get_running_loop()
        self._channel = MessageChannel(socket.socket(fileno=config.control_fd))
        self._server = ServerPort(self._channel)
        self._routes = Routes()
        predictions = PredictionGateway(
            self._routes, self._server, timeout_s=config.timeout_s, gateways=config.gateways, mirrors=False
        )
        self._services = _Services(TokenView(), RateLeases(self._server.send), predictions)
        self._fast_path = FastPath(self._services, authentication=config.authentication, body_limit=config.body_limit)
        self._table = ReportedConnections(
            maximum=config.max_connections,
            per_address=config.max_connections_per_address,
            exempt=ExemptAddresses(config.reverse_proxies),
            report=self._server.send,
        )
        passing = ConnectionChannel(socket.socket(fileno=config.connections_fd), lambda *args: clients.adopt(*args))
        clients = self._clients = ClientConnections(
            self._fast_path,
            passing,
            self._table,
            UnreadResponses(config.max_unread_bytes // sharing_processes(config.gateways)),
        )
        listener = socket.socket(fileno=config.listener_fd)
        self._acceptor = Acceptor(listener, self._table, clients.create)
        self._ended: asyncio.Future[None] = self._loop.create_future()

    async def serve(self) -> None:
        logging.basicConfig(level=logging.INFO, handlers=[_ServerLog(self._server)])
        self._services.predictions.begin(self._server)
        self._loop.add_reader(self._channel, self._receive)
        self._loop.call_later(REPORT_INTERVAL_S, self._report)
        self._loop.call_later(CHECK_INTERVAL_S, self._check)
        gc.collect()
        gc.freeze()
        self._server.send(Ready())
        await self._ended
        self._services.predictions.close()
        self._report()

    def _receive(self) -> None:
        try:
            messages = self._channel.receive()
        except EOFError:
            os._exit(0)  # the server is gone, and its hosts with it
        for number, message in messages:
            result = self._apply(message)
            if number:
                self._server.send(Done(number, result))

    def _apply(self, message: object) -> int:
        """Let a message take effect. Returns its result."""
        match message:
            case RoutesChanged():
                apply_routes(self._routes, message)
            case Forget():
                self._services.tokens.forget(message)
                self._services.rates.forget(message)
            case CountInFlight(keys):
                return self._services.predictions.load(keys)
            case AcceptedRequest():
                self._fast_path.learn(message.url, message.host, message.target)
                self._services.tokens.learn(message)
                self._services.rates.learn(message)
            case Lease():
                self._services.rates.add(message)
            case CloseConnections():
                self._table.close(message.address, message.number)
            case PassIdle(number):
                self._clients.pass_idle(number)
            case Accept():
                self._acceptor.start()
            case StopGateway():
                self._stop()
        return 0

    def _stop(self) -> None:
        self._acceptor.stop()
        self._clients.on_empty = self._end
        self._loop.call_later(STOP_TIMEOUT_S, self._end)
        self._clients.stop()

    def _end(self) -> None:
        if not self._ended.done():
            self._ended.set_result(None)

    def _report(self) -> None:
        self._services.rates.give_back()
        if counted := self._services.predictions.metrics.take():
            self._server.send(Counted(counted))
        self._loop.call_later(REPORT_INTERVAL_S, self._report)

    def _check(self) -> None:
        self._clients.check()
        self._loop.call_later(CHECK_INTERVAL_S, self._check)


async def _serve(config: GatewayConfig) -> None:
    await GatewayProcess(config).serve()


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM):  # a terminal and systemd signal all; the server says when
        signal.signal(number, signal.SIG_IGN)
    config = GatewayConfig(**json.loads(sys.argv[1]))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(config))


if __name__ == "__main__":
    main()
