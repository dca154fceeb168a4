"""The connection: one project of one server, and its jobs, models and buckets."""

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


@dataclass(frozen=True)
class Trainshed:
    """One project of one server. Made by `trainshed.connect()`; threads may share it."""

    client: Client
    project: str  #: whose jobs, models and buckets these are

    @cached_property
    def storage(self) -> Storage:
        """The buckets of the server, as its API has them. `buckets` is easier."""
        return Storage(self.client)

    @property
    def url(self) -> str:
        """The server's address."""
        return self.client.url

    @property
    def jobs(self) -> Jobs:
        """Submit trainings, find them again."""
        return Jobs(self)

    @property
    def models(self) -> Models:
        """Deploy what trainings made, ask for predictions."""
        return Models(self)

    @property
    def buckets(self) -> Buckets:
        """Files in and out of buckets."""
        return Buckets(self)

    def ml(self, rest: str) -> str:
        """A path of the ml API in this project."""
        return f"/v1/projects/{self.project}/{rest}"

    def close(self) -> None:
        """Close the connections. The next request makes new ones."""
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
    """The client of the server that the command line would talk to, unless `url` names another.

    What is not given comes from TRAINSHED_URL, TRAINSHED_TOKEN, TRAINSHED_PROJECT and the state folder
    (TRAINSHED_HOME). `Refused` if no server is running, `InvalidArgumentError` for what can't be a project.
    """
    settings = ClientSettings.read(environment())
    settings = replace(settings, url=url or settings.url, token=token or settings.token)
    return Trainshed(clients.connect(settings), names.project_id(project or settings.project))
