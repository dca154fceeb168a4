"""The server process: listeners, certificates, application and proxy. A failed start leaves nothing behind."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import ipaddress
import json
import logging
import os
import shutil
import signal
import socket
import ssl
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TextIO

import psutil
import uvloop

from trainshed import __version__
from trainshed.api.acceptor import Acceptor
from trainshed.api.app import Api
from trainshed.api.gateways.messages import GatewayConfig
from trainshed.api.gateways.processes import GatewayProcesses, ServerParts
from trainshed.api.listener import listener_config
from trainshed.api.ml.fast_path import FastPath
from trainshed.api.shutdown import Shutdown
from trainshed.api.unread_responses import UnreadResponses
from trainshed.api.uvicorn_adapter import Listener, installed_versions, unknown_versions
from trainshed.backup.restore import finish_restore, refuse_empty_database, refuse_lost_database
from trainshed.backup.timer import BackupTimer
from trainshed.certificates import Certificates, ensure_certificates, write_bundle
from trainshed.config import Home, Settings, environment
from trainshed.connections import Connections, ExemptAddresses
from trainshed.errors import CannotProceedError, DiskFullError
from trainshed.node.connect import Egress
from trainshed.node.files import write_file
from trainshed.node.journal import DISK_FULL
from trainshed.node.process.open_files import raise_limit
from trainshed.proxy import google_hosts
from trainshed.proxy.client_config import ServerEndpoints
from trainshed.proxy.connect_proxy import SHUTDOWN_TIMEOUT_S, ConnectProxy, machine_egress, tls_context
from trainshed.proxy.interception import MachineEnvironment, SniContexts, SniProtocol, with_header_case
from trainshed.proxy.node_endpoint import NodeEndpoint, host_for_nodes
from trainshed.services.server import ServerInfo
from trainshed.serving.memory import share_arenas
from trainshed.state_lock import hold_lock
from trainshed.store.database import Database
from trainshed.wiring.application import Application, build_application
from trainshed.wiring.sandbox import begin_sandbox, with_levels, with_networks
from trainshed.wiring.serving import with_possible_gateways

LOG = logging.getLogger("trainshed.server")
MIN_FREE_BYTES = 1 << 20  #: in the state folder, for a start
MAX_LOG_BYTES = 16 << 20  #: of the server's own log, before it is rotated
UNSENT_BYTES = 128 << 10  #: of a connection, that the kernel takes before it can send them
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")


def serve(home: Home, settings: Settings, *, ready: Callable[[ServerInfo], None] = lambda info: None) -> None:
    """Serve until SIGTERM or SIGINT. Raises `CannotProceedError`, with nothing changed, if the server can't start."""
    _check_exposure(settings)
    machine = MachineEnvironment.read(environment())
    serves_gs = settings.serves_gs(has_google_credentials=machine.has_google_credentials)
    egress = machine_egress(machine.https_proxy, machine.no_proxy) if serves_gs else None
    os.umask(0o077)
    share_arenas()
    open_files = raise_limit()
    tunnels = Connections(maximum=min(settings.max_connections, open_files // 8))  # each has two descriptors
    connections = Connections(
        maximum=min(settings.max_connections, open_files // 2),
        per_address=settings.max_connections_per_address,
        exempt=ExemptAddresses(settings.reverse_proxies),
    )
    with _full_disk_refused(home, settings), ExitStack() as stack:
        http = stack.enter_context(_listen(settings.host, settings.port))
        tls = stack.enter_context(_listen(settings.host, settings.tls_port))
        home.create()
        stack.enter_context(hold_lock(home))
        _check_space(home)  # on a full disk, SQLite reports an I/O error that looks like damage
        find_sandbox = begin_sandbox(home, settings)
        database = stack.enter_context(_open_database(home, settings))
        node_host = host_for_nodes(settings.host, given=settings.node_host, cluster=settings.ray_host)
        hosts = _host_names(settings, node_host)
        certificates = ensure_certificates(home.certificates, hosts=hosts)
        sandbox = find_sandbox()
        info = with_levels(_describe(home, settings, http, tls), sandbox, settings)
        settings = with_possible_gateways(settings, info.fast_path_off_reason)
        interception = stack.enter_context(_open_interception(home, info, egress, machine)) if egress else None
        nodes = NodeEndpoint(
            tls_url=f"https://{_bracketed(node_host)}:{tls.getsockname()[1]}",
            authority=certificates.authority.read_text(),
            serves_gs=interception is not None,
        )
        endpoints = interception.endpoints if interception else None
        urls = [_local_url(url) for url in (info.url, info.tls_url)]
        sandbox = with_networks(sandbox, settings, urls, endpoints.proxy_url if endpoints else "")
        application = build_application(home, settings, database, info, nodes, endpoints, sandbox)
        app = Api(
            application.services,
            allowed_hosts=(*hosts, *google_hosts.NAMES, google_hosts.BUCKET_NAMES) if interception else hosts,
            authentication=settings.authentication,
            body_limit=settings.body_limit_mb << 20,
        )
        stack.enter_context(_server_file(home, info, interception))
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(
                _run(
                    app,
                    application,
                    _Endpoints(http, tls, certificates, connections, tunnels, settings.unread_limit_mb << 20),
                    _gateway_config(settings, http, open_files) if settings.gateways > 1 else None,
                    interception,
                    lambda: ready(info),
                )
            )


@contextmanager
def _full_disk_refused(home: Home, settings: Settings) -> Iterator[None]:
    """Translate a full disk of the state folder to `CannotProceedError`."""
    try:
        yield
    except (OSError, DiskFullError) as exc:
        full = exc.errno in DISK_FULL if isinstance(exc, OSError) else not settings.database
        if not full:
            raise  # another error, or a database on another disk
        folder = next(path for path in (home.path, *home.path.parents) if path.exists())
        free_mb = shutil.disk_usage(folder).free / (1 << 20)
        raise CannotProceedError(
            f"The disk that holds the state folder {home.path} is full, or a quota there is used up: {free_mb:.1f} MB "
            f"are free, and a start needs {MIN_FREE_BYTES / (1 << 20):g} MB and a copy of the database. No state is "
            f"lost: free some space on that disk, then start the server again."
        ) from exc


def _check_space(home: Home) -> None:
    """Raises `OSError` if the state folder has no space for the least that a start writes. Leaves nothing there."""
    with tempfile.TemporaryFile(dir=home.path) as file:
        file.write(bytes(MIN_FREE_BYTES))
        file.flush()
        os.fsync(file.fileno())


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
    # asyncio sets TCP_NODELAY only if the protocol is given; without it each response waits 40 ms for an ACK
    with socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
        except OSError as exc:
            raise CannotProceedError(
                f"Port {port} of {host} can't be used: {exc.strerror or exc}{_port_owner(port)}. "
                f"Choose another one with --port and --tls-port."
            ) from exc
        # what a client does not read stays in the memory of the process, which is bounded, and not in the kernel's
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_BYTES)
        listener.listen(2048)
        yield listener


def _port_owner(port: int) -> str:
    """The process that listens on a port, as a note. Empty if it is unknown."""
    with contextlib.suppress(psutil.Error, OSError):
        for connection in psutil.net_connections("tcp"):
            listens = connection.status == psutil.CONN_LISTEN and connection.laddr and connection.laddr.port == port
            if listens and connection.pid:
                return f" (process {connection.pid}, {psutil.Process(connection.pid).name()}, listens there)"
    return ""


@contextmanager
def _open_database(home: Home, settings: Settings) -> Iterator[Database]:
    """The migrated database, with backups on a timer if it is SQLite.

    An interrupted restore is finished first. Raises `CannotProceedError` rather than begin an empty database beside
    state that it would not know.
    """
    if finish_restore(home):
        LOG.warning("restore.finished home=%s", home.path)
    if not settings.database:
        refuse_lost_database(home)
    with ExitStack() as stack:
        database = stack.enter_context(contextlib.closing(Database(settings.database or home.database)))
        database.fence()
        if settings.database and database.version() == 0:
            refuse_empty_database(home, "The database that TRAINSHED_SERVER_DATABASE names is empty")
        database.migrate()
        if database.path is not None:
            timer = BackupTimer(database.path, interval_s=settings.backup_interval_s, keep=settings.backup_count)
            stack.enter_context(timer.running())
        yield database


def _describe(home: Home, settings: Settings, http: socket.socket, tls: socket.socket) -> ServerInfo:
    host = _bracketed(settings.host)
    return ServerInfo(
        url=f"http://{host}:{http.getsockname()[1]}",
        tls_url=f"https://{host}:{tls.getsockname()[1]}",
        pid=os.getpid(),
        home=str(home.path),
        version=__version__,
        fast_path_off_reason=unknown_versions(installed_versions()),
    )


def _bracketed(host: str) -> str:
    """A host name as URLs spell it."""
    return f"[{host}]" if ":" in host else host


@dataclass(frozen=True, slots=True)
class _Interception:
    """What answers trainer code's requests for Google's hosts."""

    listener: socket.socket
    tls: ssl.SSLContext
    sni_contexts: SniContexts
    egress: Egress
    endpoints: ServerEndpoints


@contextmanager
def _open_interception(
    home: Home, info: ServerInfo, egress: Egress, machine: MachineEnvironment
) -> Iterator[_Interception]:
    google = ensure_certificates(home.certificates, hosts=google_hosts.CERTIFIED, leaf="google")
    with _listen_on_same_port(home.proxy) as listener:
        endpoints = ServerEndpoints(
            url=_local_url(info.url),
            tls_url=_local_url(info.tls_url),
            proxy_url=f"http://127.0.0.1:{listener.getsockname()[1]}",
            bundle=write_bundle(google, machine.ca_files),
            bypass=machine.no_proxy,
        )
        context = partial(tls_context, google.chain, google.key)
        yield _Interception(listener, context(), SniContexts(context), egress, endpoints)


@contextmanager
def _listen_on_same_port(port_file: Path) -> Iterator[socket.socket]:
    """Listen on loopback, on the port in the file if it is free: running jobs use it."""
    with ExitStack() as stack:
        try:
            port = int(port_file.read_text())
        except (FileNotFoundError, ValueError):
            port = 0
        try:
            listener = stack.enter_context(_listen("127.0.0.1", port if 0 < port < 65_536 else 0))
        except CannotProceedError as exc:
            LOG.warning("proxy.moved reason=%s Jobs that run now can't reach gs:// any more.", exc)
            listener = stack.enter_context(_listen("127.0.0.1", 0))
        port_file.write_text(str(listener.getsockname()[1]))
        yield listener


def _local_url(url: str) -> str:
    """The URL for a client on this machine: nothing can connect to the unspecified address."""
    return url.replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:")


@contextmanager
def _server_file(home: Home, info: ServerInfo, interception: _Interception | None) -> Iterator[None]:
    """Write `server.json` for local clients, and remove it at the end.

    Durable, and with it all that the start has created in the state folder: the database, the folder of the buckets and
    that of the certificates.
    """
    body = asdict(info)
    if interception is not None:  # for notebooks and shells
        body["endpoints"] = asdict(interception.endpoints) | {"bundle": str(interception.endpoints.bundle)}
    write_file(home.server, json.dumps(body).encode(), durable=True)
    try:
        yield
    finally:
        home.server.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class _Endpoints:
    """Where clients connect."""

    http: socket.socket
    tls: socket.socket
    certificates: Certificates
    connections: Connections
    tunnels: Connections  #: of the proxy
    max_unread_bytes: int


async def _run(
    app: Api,
    application: Application,
    endpoints: _Endpoints,
    several: GatewayConfig | None,
    interception: _Interception | None,
    ready: Callable[[], None],
) -> None:
    fast_path = _fast_path(app, application.services.server)
    connections, certificates = endpoints.connections, endpoints.certificates
    unread = UnreadResponses(endpoints.max_unread_bytes)
    config = partial(listener_config, fast_path=fast_path, connections=connections, unread=unread)
    own = config(app)
    plain, secure = Listener(own), Listener(own)
    context = tls_context(certificates.chain, certificates.key)
    create: Callable[[], asyncio.Protocol] = partial(secure.protocol, own)
    gateways = None
    if several is not None and fast_path is not None:
        parts = ServerParts(
            services=application.services,
            routes=application.routes,
            control_plane=application.deployments,
            connections=connections,
            listener=endpoints.http,
            serve=lambda: plain.protocol(passed),
        )
        gateways = GatewayProcesses(parts, several)
        passed = config(app, gateways=gateways)
    proxy = None
    if interception is not None:
        intercepted = config(with_header_case(app), idle_shutdown_s=SHUTDOWN_TIMEOUT_S)
        names = interception.sni_contexts
        context.sni_callback = names.choose
        create = partial(SniProtocol, names, create, partial(secure.protocol, intercepted))
        proxy = ConnectProxy(
            tls=interception.tls,
            inner=partial(plain.protocol, intercepted),
            egress=interception.egress,
            tunnels=endpoints.tunnels,
        )
    acceptors = [Acceptor(endpoints.tls, connections, create, context=context)]
    if gateways is None:
        acceptors.append(Acceptor(endpoints.http, connections, partial(plain.protocol, own)))
    if proxy is not None and interception is not None:
        acceptors.append(Acceptor(interception.listener, endpoints.tunnels, proxy.protocol))
    shutdown = Shutdown(acceptors, (plain, secure), gateways)
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, shutdown.begin)
    with application.running():
        async with asyncio.TaskGroup() as group:
            for server in (plain, secure):
                group.create_task(server.serve(sockets=[]))  # it accepts nothing itself
            while not (plain.is_ready and secure.is_ready) and not shutdown.signals:
                await asyncio.sleep(0.01)
            if gateways is not None:
                await gateways.start()
            if not shutdown.signals:
                for acceptor in acceptors:
                    acceptor.start()
            gc.freeze()  # what exists now stays, and the event loop need not stop for the collector to traverse it
            LOG.info("server.ready")
            ready()
        if gateways is not None:
            await gateways.wait()
        if proxy is not None:
            await proxy.close()


def _gateway_config(settings: Settings, listener: socket.socket, open_files: int) -> GatewayConfig:
    return GatewayConfig(
        listener_fd=listener.fileno(),
        gateways=settings.gateways,
        authentication=settings.authentication,
        body_limit=settings.body_limit_mb << 20,
        timeout_s=settings.predict_timeout_s,
        max_connections=min(settings.max_connections, open_files // 2),
        max_connections_per_address=settings.max_connections_per_address,
        reverse_proxies=settings.reverse_proxies,
        max_unread_bytes=settings.unread_limit_mb << 20,
    )


def _fast_path(app: Api, info: ServerInfo) -> FastPath | None:
    """The fast path. Logs the reason and returns None if it is off."""
    if info.fast_path_off_reason:
        LOG.warning("server.fast_path_off reason=%s", info.fast_path_off_reason)
        return None
    return app.fast_path


class _RotatedStderr(logging.StreamHandler[TextIO]):
    """Writes to stderr. If that is the server's log file, a full file is rotated to `server.log.1`.

    Rotation also covers stdout and direct writes to stderr. The file exists at all times.
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
        fresh, rotated = (self._path.with_name(f"{self._path.name}.{suffix}") for suffix in ("new", "1"))
        with open(os.open(fresh, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_TRUNC, 0o600), "ab") as file:
            rotated.unlink(missing_ok=True)
            rotated.hardlink_to(self._path)
            fresh.rename(self._path)
            for writer in writers:
                os.dup2(file.fileno(), writer)


def log_to_stderr(path: Path, *, limit: int = MAX_LOG_BYTES) -> None:
    """Log one line per event to stderr. If stderr is the file `path`, as after `trainshed up`, it is rotated."""
    handler = _RotatedStderr(path, limit=limit)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
