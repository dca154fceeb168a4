"""What a machine other than the server's is given, made beside a running server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from trainshed.services.access.tokens import Tokens
from trainshed.store.database import Database
from trainshed.store.tokens import TokenStore
from trainshed.testing.processes.servers import RunningServer

HOUR_S = 3600.0


@contextmanager
def tokens_of(server: RunningServer) -> Iterator[Tokens]:
    """Tokens on the server's own database. The server knows them from then on."""
    database = Database(server.home / "state.db")
    try:
        yield Tokens(TokenStore(database))
    finally:
        database.close()


def fetch_token_of(server: RunningServer, project: str, job: str) -> str:
    """A token that fetches the packages of a job, while that goes on."""
    with tokens_of(server) as tokens:
        return tokens.issue_job_fetch_token(project, job, ttl_s=HOUR_S)
