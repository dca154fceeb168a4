"""Which service gets what: the one place where all parts of the server meet."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from trainshed.buckets.tree import ObjectTree
from trainshed.config import Home, Settings
from trainshed.control.jobs import JobControl
from trainshed.engines.local import LocalEngine
from trainshed.runtimes.environments import Runtimes
from trainshed.runtimes.uv import find_uv
from trainshed.services.buckets import Buckets
from trainshed.services.jobs import Jobs
from trainshed.services.logs import Logs
from trainshed.services.objects import Objects
from trainshed.services.operations import Operations
from trainshed.services.policies import Policies
from trainshed.services.projects import Projects
from trainshed.services.registry import Services
from trainshed.services.runtimes import RuntimeService
from trainshed.services.server import ServerInfo
from trainshed.services.tokens import Tokens
from trainshed.store.database import Database
from trainshed.store.jobs import JobStore
from trainshed.store.tokens import TokenStore


@dataclass(frozen=True, slots=True)
class Assembly:
    """The services for the routes, and the loop that makes the world match the rows."""

    services: Services
    control: JobControl

    @contextmanager
    def running(self) -> Iterator[None]:
        self.control.start()
        try:
            yield
        finally:
            self.control.stop()
