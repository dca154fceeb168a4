"""What code that talks to the server for someone needs to have: a client, and the project that it is about."""

from __future__ import annotations

from typing import Protocol

from trainshed.client.storage import Storage
from trainshed.client.transport import Client, segment


class ClientContext(Protocol):
    """One project of one server. The command line's session is one, and so is the Python client's."""

    @property
    def client(self) -> Client: ...

    @property
    def storage(self) -> Storage: ...

    @property
    def project(self) -> str: ...

    def ml(self, rest: str) -> str:
        """A path of the ml API in this project."""
        ...


def own_job_path(here: ClientContext, job: str) -> str:
    """Where the server tells of a job what the ml API has no field for."""
    return f"/trainshed/v1/projects/{here.project}/jobs/{segment(job)}"
