"""What code that calls the server needs: a client, and a project."""

from __future__ import annotations

from typing import Protocol

from trainshed.client.storage import Storage
from trainshed.client.transport import Client, segment


class ClientContext(Protocol):
    """One project of one server. The command line's session and the Python client implement it."""

    @property
    def client(self) -> Client: ...

    @property
    def storage(self) -> Storage: ...

    @property
    def project(self) -> str: ...

    def ml(self, rest: str) -> str:
        """Return a path of the ml API in this project."""
        ...


def native_job_path(context: ClientContext, job: str) -> str:
    """Return the path of a job in the native API, which has what the ml API has no field for."""
    return f"/trainshed/v1/projects/{context.project}/jobs/{segment(job)}"
