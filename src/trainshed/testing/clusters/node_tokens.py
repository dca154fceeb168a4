"""Fetch tokens, issued beside a running server."""

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
    """Yield tokens on the server's own database. The server accepts them."""
    database = Database(server.home / "state.db")
    try:
        yield Tokens(TokenStore(database))
    finally:
        database.close()


def fetch_token_of(server: RunningServer, project: str, job: str) -> str:
    """Return a token that downloads the packages of a job while the job runs."""
    with tokens_of(server) as tokens:
        return tokens.issue_job_fetch_token(project, job, ttl_s=HOUR_S)
