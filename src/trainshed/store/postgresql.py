"""PostgreSQL by URL, and the fence that keeps a second server off a database."""

from __future__ import annotations

import sqlalchemy as sa

from trainshed.errors import CannotProceedError

_LOCK = "select pg_try_advisory_lock(74726169)"


def postgresql_engine(url: str) -> sa.Engine:
    """Connect to PostgreSQL.

    Raises `CannotProceedError` if the URL has another scheme, psycopg is not installed or the server is unreachable.
    """
    if not url.startswith(("postgresql://", "postgres://")):
        raise CannotProceedError(
            f"TRAINSHED_SERVER_DATABASE must be a postgresql:// URL; it starts with {url.partition('://')[0]!r}."
        )
    parsed = sa.make_url(url).set(drivername="postgresql+psycopg")
    try:
        engine = sa.create_engine(
            parsed,
            pool_size=16,
            max_overflow=48,
            pool_pre_ping=True,
            connect_args={"connect_timeout": 5, "tcp_user_timeout": 10_000},
        )
    except ImportError as exc:  # SQLAlchemy imports the driver here
        raise CannotProceedError(
            f"PostgreSQL as the database takes the package psycopg, which can't be imported: {exc}. "
            f"Install it with: pip install 'trainshed[postgresql]'"
        ) from exc
    try:
        engine.connect().close()
    except sa.exc.OperationalError as exc:
        raise CannotProceedError(
            f"The database {parsed.render_as_string()} can't be reached: {str(exc.orig).strip()}"
        ) from exc
    return engine


class Fence:
    """A session-level advisory lock on a connection of its own. It is held until the connection closes."""

    def __init__(self, engine: sa.Engine) -> None:
        self.number = 0  #: incremented each time the lock is taken
        self._engine = engine
        self._connection: sa.Connection | None = None

    def take(self) -> None:
        """Take the lock. Raises `CannotProceedError` if another server holds it."""
        connection = self._engine.connect()
        try:
            acquired = connection.exec_driver_sql(_LOCK).scalar()
            connection.commit()  # the lock belongs to the session; an open transaction would block vacuum
        except BaseException:
            connection.invalidate()
            connection.close()
            raise
        if not acquired:
            connection.close()
            raise CannotProceedError(
                f"Another server uses the database {self._engine.url.render_as_string()}. "
                f"Stop it first, or give this one a database of its own with TRAINSHED_SERVER_DATABASE."
            )
        self._connection = connection
        self.number += 1

    def check(self) -> None:
        """Verify that the lock is held, and take it again if its connection was lost.

        Raises `CannotProceedError` if another server took it first.
        """
        if self._connection is not None:
            try:
                self._connection.exec_driver_sql("select 1")
                self._connection.commit()
                return
            except sa.exc.DBAPIError:
                self.close()
        self.take()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.invalidate()  # a connection returned to the pool would keep the lock
            self._connection.close()
            self._connection = None
