"""The HTTP API with the gateway behind it, in a thread: a test publishes routes to its own hosts."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path

import uvloop

from trainshed.api.app import Api
from trainshed.api.listener import listener_config
from trainshed.api.uvicorn_adapter import Listener
from trainshed.config import Home, Settings
from trainshed.connections import Connections
from trainshed.domain.models.hosting import ServingState
from trainshed.gateway.routes import HostAddress, ModelRoute, Routes, VersionRoute
from trainshed.proxy.node_endpoint import NodeEndpoint
from trainshed.services.registry import Services
from trainshed.services.server import ServerInfo
from trainshed.store.database import Database
from trainshed.wiring.application import build_application

_TIMEOUT_S = 90.0


class RecordingControlPlane:
    """Has no hosts, and records its calls."""

    def __init__(self) -> None:
        self.activations: list[tuple[str, str, str]] = []
        self.unresponsive: list[str] = []
        self.unreachable: list[str] = []
        self.on_activate: Callable[[], None] = lambda: None

    def activate(self, project: str, model: str, version: str) -> None:
        self.activations.append((project, model, version))
        self.on_activate()

    def host_unresponsive(self, key: str) -> None:
        self.unresponsive.append(key)

    def host_unreachable(self, key: str, reason: str) -> None:
        self.unreachable.append(key)


class RunningGateway:
    """Serves from `start` to `stop`, on a free port. Jobs and deployments do not run."""

    def __init__(self, home: Path, settings: Settings | None = None, *, fast_path: bool = True) -> None:
        self.home = Home(home)
        self.control_plane = RecordingControlPlane()
        self.routes: Routes
        self.services: Services
        self._settings = settings or Settings()
        self._fast_path = fast_path
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._ready = threading.Event()
        self._server: Listener
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    @property
    def token(self) -> str:
        """The owner's token."""
        return self.home.token.read_text().strip()

    @property
    def connections(self) -> int:
        """The number of connected clients that the server knows of."""
        return self._server.connected

    def start(self) -> RunningGateway:
        self._thread.start()
        if not self._ready.wait(_TIMEOUT_S):
            raise RuntimeError("The gateway did not start.")
        return self

    def stop(self) -> None:
        self._server.stop()
        self._thread.join(_TIMEOUT_S)

    def publish(self, model: str, *hosts: HostAddress, version: str = "v1", project: str = "trainshed") -> None:
        """Publish a model with one version, its default, that is ready on these hosts."""
        route = VersionRoute(project=project, model=model, version=version, state=ServingState.READY, hosts=hosts)
        self.routes.publish(ModelRoute(project=project, model=model, default=version, versions={version: route}))

    def _run(self) -> None:
        self.home.create()
        with ExitStack() as stack:
            database = stack.enter_context(closing(Database(self.home.database)))
            runner = stack.enter_context(asyncio.Runner(loop_factory=uvloop.new_event_loop))
            database.migrate()
            info = ServerInfo(
                url=self.url, tls_url="", pid=0, home=str(self.home.path), version="", fast_path_off_reason=""
            )
            nodes = NodeEndpoint(tls_url="https://127.0.0.1:1", authority="", serves_gs=False)
            application = build_application(self.home, self._settings, database, info, nodes)
            self.services, self.routes = application.services, application.routes
            runner.run(self._serve())

    async def _serve(self) -> None:
        limit = self._settings.body_limit_mb << 20
        app = Api(self.services, allowed_hosts=("localhost",), authentication=True, body_limit=limit)
        self._server = Listener(
            listener_config(app, fast_path=app.fast_path if self._fast_path else None, connections=Connections())
        )
        self.services.predictions.begin(self.control_plane)
        try:
            serving = asyncio.ensure_future(self._server.serve(sockets=[self._listener]))
            while not self._server.is_ready:
                await asyncio.sleep(0.01)
            self._ready.set()
            await serving
        finally:
            self.services.predictions.close()
