"""The connection: one project of one server, and its jobs, models, studies and buckets."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from types import TracebackType
from typing import Self

from trainshed import client as clients
from trainshed.client import Client, Storage
from trainshed.config import ClientSettings, environment
from trainshed.domain import names
from trainshed.sdk.buckets import Buckets
from trainshed.sdk.jobs import Jobs
from trainshed.sdk.models import Models
from trainshed.sdk.studies import Studies


@dataclass(frozen=True)
class Trainshed:
    """One project of one server, made by `trainshed.connect()`. Thread-safe."""

    client: Client
    project: str  #: of these jobs, models and buckets

    @cached_property
    def storage(self) -> Storage:
        """The storage API of the server. `buckets` is easier."""
        return Storage(self.client)

    @property
    def url(self) -> str:
        """The server's URL."""
        return self.client.url

    @property
    def jobs(self) -> Jobs:
        """The project's jobs: submit trainings, find them again."""
        return Jobs(self)

    @property
    def models(self) -> Models:
        """The project's models: deploy exports, get predictions."""
        return Models(self)

    @property
    def studies(self) -> Studies:
        """The project's studies: ask for trials, tell what came of them."""
        return Studies(self)

    @property
    def buckets(self) -> Buckets:
        """The project's buckets: upload, download, open."""
        return Buckets(self)

    def ml(self, rest: str) -> str:
        """Return a path of the ml API in this project."""
        return f"/v1/projects/{self.project}/{rest}"

    def close(self) -> None:
        """Close the connections. The next request opens new ones."""
        self.client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Trainshed at {self.url}, project {self.project}>"


def connect(url: str | None = None, *, token: str | None = None, project: str | None = None) -> Trainshed:
    """Connect to the server that the command line uses, unless `url` names another.

    Missing arguments come from TRAINSHED_URL, TRAINSHED_TOKEN, TRAINSHED_PROJECT and the state folder (TRAINSHED_HOME).
    Raises `CannotProceedError` if no server is running, `InvalidArgumentError` for an invalid project.
    """
    settings = ClientSettings.read(environment())
    settings = replace(settings, url=url or settings.url, token=token or settings.token)
    return Trainshed(clients.connect(settings), names.project_id(project or settings.project))
