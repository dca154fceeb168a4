"""The server process: everything is put together here, in an order in which a refusal leaves nothing behind."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import ipaddress
import json
import logging
import os
import signal
import socket
import ssl
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, TextIO

import psutil
import uvicorn
import uvloop
from uvicorn.server import ServerState

from trainshed import __version__
from trainshed.api.app import Api
from trainshed.api.protocol import HEADERS_TIMEOUT_S, TimedProtocol
from trainshed.certificates import Certificates, ensure_certificates, write_bundle
from trainshed.config import Home, MachineEnvironment, Settings, environment
from trainshed.errors import CannotProceedError
from trainshed.proxy import google_hosts
from trainshed.proxy.client_config import ServerEndpoints
from trainshed.proxy.connect_proxy import SHUTDOWN_TIMEOUT_S, ConnectProxy, tls_context
from trainshed.proxy.egress import Egress
from trainshed.proxy.interception import SniContexts, intercept, with_header_case
from trainshed.proxy.node_endpoint import NodeEndpoint, host_for_nodes
from trainshed.services.server import ServerInfo
from trainshed.serving.memory import share_arenas
from trainshed.store.database import Database
from trainshed.wiring.application import Application, build_application

LOG = logging.getLogger("trainshed.server")
LOG_BYTES = 16 << 20  #: of the server's own log, before it is put aside
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")


def serve(home: Home, settings: Settings, *, ready: Callable[[ServerInfo], None] = lambda info: None) -> None:
    """Run until SIGTERM or SIGINT. `CannotProceedError`, with nothing changed, if this server cannot start here."""
    _check_exposure(settings)
    machine = MachineEnvironment.read(environment())
    gateway = Egress.of(machine.https_proxy, bypass=machine.no_proxy) if settings.serves_gs(machine) else None
    os.umask(0o077)
    share_arenas()
    with ExitStack() as stack:
        http = stack.enter_context(_listen(settings.host, settings.port))
        tls = stack.enter_context(_listen(settings.host, settings.tls_port))
        home.create()
        stack.enter_context(_only_server(home))
        database = stack.enter_context(contextlib.closing(Database(settings.database or home.database)))
        database.fence()
        database.migrate()
        database.back_up()
        node_host = host_for_nodes(settings.host, given=settings.node_host, cluster=settings.ray_host)
        hosts = _host_names(settings, node_host)
        certificates = ensure_certificates(home.certificates, hosts=hosts)
        info = _describe(home, settings, http, tls)
        lead = stack.enter_context(_lead(home, info, gateway, machine)) if gateway else None
        reach = lead.reach if lead else None
        nodes = NodeEndpoint(
            tls_url=f"https://{_bracketed(node_host)}:{tls.getsockname()[1]}",
            authority=certificates.authority.read_text(),
            serves_gs=lead is not None,
        )
        assembly = build_application(home, settings, database, info, nodes, reach)
        app = Api(
            assembly.services,
            allowed_hosts=(*hosts, *google_hosts.NAMES) if lead else hosts,
            authentication=settings.authentication,
            body_limit=settings.body_limit_mb << 20,
        )
        stack.enter_context(_announced(home, info, lead))
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_run(app, assembly, (http, tls), certificates, lead, lambda: ready(info)))


def _check_exposure(settings: Settings) -> None:
    if not settings.authentication and not _is_loopback(settings.host):
        raise CannotProceedError(
            f"Without authentication the server listens on this machine alone, but the host is {settings.host}. "
            f"Turn authentication on, or use --host 127.0.0.1."
        )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _host_names(settings: Settings, node_host: str) -> tuple[str, ...]:
    extra = [name.strip() for name in settings.allowed_hosts.split(",") if name.strip()]
    return tuple(dict.fromkeys((*LOOPBACK_NAMES, settings.host, node_host, *extra)))


@contextmanager
def _listen(host: str, port: int) -> Iterator[socket.socket]:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sets TCP_NODELAY only where the protocol is named; without it each answer waits 40 ms for an ACK
    with socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
        except OSError as exc:
            raise CannotProceedError(
                f"Port {port} of {host} can't be used: {exc.strerror or exc}{_holder(port)}. "
                f"Choose another one with --port and --tls-port."
            ) from exc
        listener.listen(2048)
        yield listener


def _holder(port: int) -> str:
    """Who listens there, as far as we may know."""
    with contextlib.suppress(psutil.Error, OSError):
        for connection in psutil.net_connections("tcp"):
            listens = connection.status == psutil.CONN_LISTEN and connection.laddr and connection.laddr.port == port
            if listens and connection.pid:
                return f" (process {connection.pid}, {psutil.Process(connection.pid).name()}, listens there)"
    return ""


@contextmanager
def _only_server(home: Home) -> Iterator[None]:
    """Hold the folder's lock. The kernel lets go of it when this process ends, however it ends."""
    with open(os.open(home.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "r+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as exc:
            raise CannotProceedError(
                f"Another server runs on the state folder {home.path}. `trainshed status` shows it; "
                f"`trainshed down` stops it; TRAINSHED_HOME chooses another folder."
            ) from exc
        yield


def _describe(home: Home, settings: Settings, http: socket.socket, tls: socket.socket) -> ServerInfo:
    host = _bracketed(settings.host)
    return ServerInfo(
        url=f"http://{host}:{http.getsockname()[1]}",
        tls_url=f"https://{host}:{tls.getsockname()[1]}",
        pid=os.getpid(),
        home=str(home.path),
        version=__version__,
    )


def _bracketed(host: str) -> str:
    """As it stands in a URL."""
    return f"[{host}]" if ":" in host else host


@dataclass(frozen=True, slots=True)
class _Lead:
    """What leads the code of trainers to this server when it asks for Google."""

    listener: socket.socket
    tls: ssl.SSLContext
    doors: SniContexts
    gateway: Egress
    reach: ServerEndpoints


@contextmanager
def _lead(home: Home, info: ServerInfo, gateway: Egress, machine: MachineEnvironment) -> Iterator[_Lead]:
    google = ensure_certificates(home.certificates, hosts=google_hosts.CERTIFIED, leaf="google")
    with _listen_again(home.proxy) as listener:
        reach = ServerEndpoints(
            url=_from_here(info.url),
            tls_url=_from_here(info.tls_url),
            proxy_url=f"http://127.0.0.1:{listener.getsockname()[1]}",
            bundle=write_bundle(google, machine.ca_files),
            bypass=machine.no_proxy,
        )
        context = partial(tls_context, google.chain, google.key)
        yield _Lead(listener, context(), SniContexts(context), gateway, reach)


@contextmanager
def _listen_again(remembered: Path) -> Iterator[socket.socket]:
    """Listen on loopback, on the port that the file remembers if it is free: jobs that run already know that one."""
    with ExitStack() as stack:
        try:
            port = int(remembered.read_text())
        except (FileNotFoundError, ValueError):
            port = 0
        try:
            listener = stack.enter_context(_listen("127.0.0.1", port if 0 < port < 65_536 else 0))
        except CannotProceedError as exc:
            LOG.warning("proxy.moved reason=%s Jobs that run now can't reach gs:// any more.", exc)
            listener = stack.enter_context(_listen("127.0.0.1", 0))
        remembered.write_text(str(listener.getsockname()[1]))
        yield listener


def _from_here(url: str) -> str:
    """The same address for a client on this machine: "every address" is none that one can connect to."""
    return url.replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:")


@contextmanager
def _announced(home: Home, info: ServerInfo, lead: _Lead | None) -> Iterator[None]:
    body = info.body()
    if lead is not None:  # for programs on this machine that want to be led here as replicas are
        body["reach"] = asdict(lead.reach) | {"bundle": str(lead.reach.bundle)}
    fresh = home.server.with_suffix(".new")
    fresh.write_text(json.dumps(body))
    fresh.rename(home.server)
    try:
        yield
    finally:
        home.server.unlink(missing_ok=True)


class _Listener(uvicorn.Server):
    """One of our two ports. Signals are handled once, for both."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def _run(
    app: Api,
    assembly: Application,
    listeners: tuple[socket.socket, socket.socket],
    certificates: Certificates,
    lead: _Lead | None,
    ready: Callable[[], None],
) -> None:
    plain = _Listener(uvicorn_config(app))
    secure = _Listener(uvicorn_config(app, certificates))
    if lead is not None:
        _open_doors(secure.config, lead.doors)
    proxy = _proxy(lead, plain) if lead else None
    stopping = 0

    def stop() -> None:
        nonlocal stopping
        stopping += 1
        if proxy is not None:
            proxy.stop()
        for server in (plain, secure):
            server.should_exit = True
            server.force_exit = stopping > 1

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop)
    with assembly.running():
        async with asyncio.TaskGroup() as group:
            for server, listener in zip((plain, secure), listeners, strict=True):
                group.create_task(server.serve(sockets=[listener]))
            while not (plain.started and secure.started) and not stopping:
                await asyncio.sleep(0.01)
            if proxy is not None and lead is not None and not stopping:
                await proxy.start(lead.listener)
            LOG.info("server.ready")
            ready()
        if proxy is not None:
            await proxy.close()


def _proxy(lead: _Lead, plain: uvicorn.Server) -> ConnectProxy:
    """Requests that come by it are the plain port's: the same limits, the same end."""
    inner = partial(_spelled_protocol, plain.config, plain.server_state)
    return ConnectProxy(tls=lead.tls, inner=inner, egress=lead.gateway)


class _Leaving(TimedProtocol):
    """A client that has nothing to ask may not look at its connection either: its goodbye is not waited for long."""

    def shutdown(self) -> None:
        idle = self._between_requests
        super().shutdown()
        if idle:
            self.loop.call_later(SHUTDOWN_TIMEOUT_S, self.transport.abort)


def _spelled_protocol(config: uvicorn.Config, state: ServerState) -> asyncio.Protocol:
    protocol = _Leaving(config=config, server_state=state, app_state={})
    protocol.app = with_header_case(protocol.app)
    return protocol


def _open_doors(config: uvicorn.Config, doors: SniContexts) -> None:
    """Let the TLS port answer for Google's names too: the relays on other machines lead to it."""

    class Door(TimedProtocol):
        def connection_made(self, transport: Any) -> None:
            name = doors.name(transport)
            if name is None:
                super().connection_made(transport)
            else:
                intercept(transport, _spelled_protocol(self.config, self.server_state), name)

    config.http = Door
    config.load()
    assert config.ssl is not None
    config.ssl.sni_callback = doors.choose


def uvicorn_config(app: Api, certificates: Certificates | None = None) -> uvicorn.Config:
    """How our ports are served; with TLS, if there are certificates."""
    return uvicorn.Config(
        app,
        http=TimedProtocol,
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=HEADERS_TIMEOUT_S,
        timeout_graceful_shutdown=10,
        limit_concurrency=1000,
        h11_max_incomplete_event_size=65_536,
        ssl_certfile=certificates.chain if certificates else None,
        ssl_keyfile=str(certificates.key) if certificates else None,
    )


class _RotatedStderr(logging.StreamHandler[TextIO]):
    """Writes to stderr. Where that is the server's log file, a full one is put aside as `server.log.1` and a new one
    takes its place, for stdout and for what writes to stderr by itself too. Readers find one of the two at any time.
    """

    def __init__(self, path: Path, *, limit: int) -> None:
        super().__init__(sys.stderr)
        self._path = path
        self._limit = limit

    def emit(self, record: logging.LogRecord) -> None:
        super().emit(record)
        try:
            if os.fstat(self.stream.fileno()).st_size > self._limit:
                self._rotate()
        except OSError:
            self.handleError(record)

    def _rotate(self) -> None:
        log = self._path.stat()
        writers = [fd for fd in {1, self.stream.fileno()} if os.path.samestat(os.fstat(fd), log)]
        if self.stream.fileno() not in writers:
            return
        fresh, aside = (self._path.with_name(f"{self._path.name}.{suffix}") for suffix in ("new", "1"))
        with open(os.open(fresh, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_TRUNC, 0o600), "ab") as file:
            aside.unlink(missing_ok=True)
            aside.hardlink_to(self._path)
            fresh.rename(self._path)
            for writer in writers:
                os.dup2(file.fileno(), writer)


def log_to_stderr(kept_in: Path, *, limit: int = LOG_BYTES) -> None:
    """One line an event on stderr. If that is the file `kept_in`, as after `trainshed up`, it is kept to a size."""
    handler = _RotatedStderr(kept_in, limit=limit)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
