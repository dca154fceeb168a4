"""Access to the database, SQLite or PostgreSQL: named SQL from files, short transactions, migrations."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, Protocol, TypeVar

import sqlalchemy as sa

from trainshed.errors import (
    CannotProceedError,
    DatabaseUnavailableError,
    DiskFullError,
    InvalidArgumentError,
    UnavailableError,
    WriteConflictError,
)
from trainshed.node.crashpoints import crashpoint
from trainshed.store.postgresql import Fence, postgresql_engine
from trainshed.store.sqlite import back_up_first, sqlite_engine

FENCE_CHECK_INTERVAL_S = 1.0  #: between two checks that the fence is still held

_SQL_FOLDER = files("trainshed.store") / "sql"


def load_queries(name: str) -> dict[str, sa.TextClause]:
    """The statements of `sql/NAME.sql`. Each starts with a line `-- its_name`."""
    text = (_SQL_FOLDER / f"{name}.sql").read_text()
    parts = re.split(r"^-- (\w+)\n", text, flags=re.MULTILINE)[1:]
    return {key: sa.text(body.strip().rstrip(";")) for key, body in zip(parts[::2], parts[1::2], strict=True)}


class Transaction(Protocol):
    """Operations inside `Database.read()` and `Database.write()`."""

    def rows(self, query: sa.TextClause, values: Mapping[str, Any] | None = None) -> Sequence[Mapping[str, Any]]: ...

    def run(self, query: sa.TextClause, values: Mapping[str, Any] | None = None) -> int:
        """Execute a statement. Returns the number of changed rows."""
        ...

    def run_many(self, query: sa.TextClause, values: Sequence[Mapping[str, Any]]) -> None:
        """Execute a statement once per mapping, in order."""
        ...

    def lock(self, query: sa.TextClause, values: Mapping[str, Any]) -> None:
        """Lock the rows of a `select ... for update` until the block ends. A no-op on SQLite, which has one writer."""
        ...


@dataclass(slots=True, eq=False)
class Rider:
    """A write that is committed with the first write transaction of its context, or not at all."""

    work: Callable[[Transaction], object]
    committed: bool = False


_CURRENT: ContextVar[Rider | None] = ContextVar("rider", default=None)


@contextmanager
def riding(rider: Rider) -> Iterator[None]:
    """Let a rider join the next write transaction inside the block, also on threads that copy its context."""
    token = _CURRENT.set(rider)
    try:
        yield
    finally:
        _CURRENT.reset(token)


def current_riders() -> tuple[Rider, ...]:
    """The rider of this context, unless it is committed."""
    rider = _CURRENT.get()
    return () if rider is None or rider.committed else (rider,)


class _ConnectionTransaction:
    def __init__(self, connection: sa.Connection) -> None:
        self._connection = connection

    def rows(self, query: sa.TextClause, values: Mapping[str, Any] | None = None) -> Sequence[Mapping[str, Any]]:
        return [dict(row) for row in self._connection.execute(query, dict(values or {})).mappings()]

    def run(self, query: sa.TextClause, values: Mapping[str, Any] | None = None) -> int:
        return self._connection.execute(query, dict(values or {})).rowcount

    def run_many(self, query: sa.TextClause, values: Sequence[Mapping[str, Any]]) -> None:
        if values:
            self._connection.execute(query, [dict(each) for each in values])

    def lock(self, query: sa.TextClause, values: Mapping[str, Any]) -> None:
        if self._connection.dialect.name == "postgresql":
            self._connection.execute(query, dict(values))


class Database:
    """The database of a server: a SQLite file or PostgreSQL. Thread-safe."""

    def __init__(self, url: str | Path) -> None:
        """Open the database, or create the SQLite file.

        Raises `CannotProceedError` if the file is damaged or not Trainshed's, or if the URL is unreachable. The schema
        version is not checked here but in `migrate`.
        """
        self.path = url if isinstance(url, Path) else None
        self._engine = sqlite_engine(self.path) if self.path is not None else postgresql_engine(str(url))
        self._snapshots = self._engine
        if self.path is None:
            self._snapshots = self._engine.execution_options(
                isolation_level="REPEATABLE READ", postgresql_readonly=True
            )
        self._fence = Fence(self._engine)
        self._fence_lock = threading.Lock()
        self._fence_checked_s = 0.0
        self._fenced_out = False

    def close(self) -> None:
        with self._fence_lock:
            self._fence.close()
        self._engine.dispose()

    @contextmanager
    def read(self) -> Iterator[Transaction]:
        """A read transaction with a consistent snapshot, taken at its first query. Never waits for a writer."""
        with _translate_errors(), self._snapshots.connect() as connection:
            if self.path is not None:
                connection.exec_driver_sql("begin")
            yield _ConnectionTransaction(connection)

    @contextmanager
    def write(self, *, riders: Sequence[Rider] | None = None) -> Iterator[Transaction]:
        """A write transaction: atomic, and durable on return. Keep it short and do no other work inside.

        `riders` are committed with it, by default that of the context.
        """
        if self._fenced_out:
            raise UnavailableError("Another server has taken over the database of this one, which must be stopped.")
        with _translate_errors(), self._engine.connect() as connection:
            if self.path is not None:
                connection.exec_driver_sql("begin immediate")
            try:
                transaction = _ConnectionTransaction(connection)
                yield transaction
                joined = current_riders() if riders is None else riders
                for rider in joined:
                    rider.work(transaction)
                connection.commit()
            except BaseException:
                connection.rollback()
                raise
        for rider in joined:
            rider.committed = True

    def fence(self) -> None:
        """Take the fence, so that no other server uses this PostgreSQL database. SQLite relies on the folder's lock."""
        if self.path is not None:
            return
        with self._fence_lock, _translate_errors():
            self._fence.take()
            self._fence_checked_s = time.monotonic()

    @property
    def fence_number(self) -> int:
        """The number of times that the fence was taken. After a change, another server may have written meanwhile."""
        return self._fence.number

    def check_fence(self, *, at_most_every_s: float = FENCE_CHECK_INTERVAL_S) -> None:
        """Verify that this server still holds the fence.

        Call it before actions with side effects outside of the database.

        Free on SQLite. On PostgreSQL it costs one short query, unless the last check is recent. A fence whose
        connection was lost is taken again. Raises `CannotProceedError` if another server took it first. From then on
        every `write` raises `UnavailableError`, and this server must be stopped. Raises `UnavailableError` while the
        database is unreachable.
        """
        if self.path is not None:
            return
        with self._fence_lock:
            if time.monotonic() - self._fence_checked_s < at_most_every_s and not self._fenced_out:
                return
            try:
                with _translate_errors():
                    self._fence.check()
            except CannotProceedError:
                self._fenced_out = True
                raise
            self._fenced_out = False
            self._fence_checked_s = time.monotonic()

    def migrate(self) -> None:
        """Migrate the schema to this program's version in one transaction. Idempotent, and safe to interrupt.

        An older SQLite database is backed up first. Raises `CannotProceedError` if the backup fails, or if the schema
        is newer than this program.
        """
        current = self.version()
        migrations = _migrations()
        if current > len(migrations):
            raise CannotProceedError(
                f"The database {self._display_name()} was written by a newer Trainshed (schema {current}; this one "
                f"knows {len(migrations)}). Install that version, or a newer one."
            )
        if self.path is not None and 0 < current < len(migrations):
            back_up_first(self.path)
        with self.write() as tx:
            for number, script in list(enumerate(migrations, start=1))[current:]:
                for statement in self._for_dialect(script).split(";\n"):
                    if statement.strip():
                        tx.run(sa.text(statement))
                tx.run(sa.text("insert into trainshed_schema (version) values (:v)"), {"v": number})
            crashpoint("database.migrate.before_commit")

    def _for_dialect(self, script: str) -> str:
        """Fill in the dialect's types: `{serial}` is an auto-increment key, `{name}` is text in byte order."""
        serial, name = "bigint generated always as identity primary key", 'text collate "C"'
        if self.path is not None:
            serial, name = "integer primary key autoincrement", "text"
        return script.replace("{serial}", serial).replace("{name}", name)

    def version(self) -> int:
        """The schema's version, 0 for a new database. Creates the table that holds it."""
        with self.write() as tx:
            tx.run(sa.text("create table if not exists trainshed_schema (version integer primary key)"))
            [row] = tx.rows(sa.text("select coalesce(max(version), 0) as version from trainshed_schema"))
            return int(row["version"])

    def _display_name(self) -> str:
        return str(self.path) if self.path else self._engine.url.render_as_string()


def _migrations() -> list[str]:
    numbered = sorted(entry.name for entry in _SQL_FOLDER.iterdir() if re.match(r"\d{4}_", entry.name))
    return [(_SQL_FOLDER / name).read_text() for name in numbered]


LATEST_SCHEMA = len(_migrations())  #: the version of the schema that this program writes


@contextmanager
def _translate_errors() -> Iterator[None]:
    """Translate database errors to `trainshed.errors`."""
    try:
        yield
    except sa.exc.TimeoutError as exc:
        raise DatabaseUnavailableError("The database is busy. Try again in a moment.") from exc
    except sa.exc.DataError as exc:
        raise InvalidArgumentError(f"The database can't hold this value: {str(exc.orig).strip()}.") from exc
    except (sa.exc.OperationalError, sa.exc.InterfaceError) as exc:
        text = str(exc.orig)
        if "full" in text or "No space left" in text:
            raise DiskFullError("The disk that holds the database is full. Free some space and try again.") from exc
        raise DatabaseUnavailableError(
            f"The database can't be used right now ({text.strip()}). Try again in a moment."
        ) from exc


def is_duplicate(exc: sa.exc.IntegrityError) -> bool:
    """Whether a unique key was violated, and not another constraint."""
    message = str(exc.orig)
    return "UNIQUE constraint" in message or "duplicate key" in message


def storable(text: str) -> str:
    """Replace what PostgreSQL or UTF-8 cannot store: NUL characters and lone surrogates."""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}").encode(errors="backslashreplace").decode()


T = TypeVar("T")

MAX_ATTEMPTS = 20


def retry_on_conflict(operation: Callable[[], T]) -> T:
    """Run a read-modify-write and retry it on a write conflict, up to MAX_ATTEMPTS times.

    Raises `WriteConflictError` if every attempt conflicts. Everything that `operation` does before its write must be
    safe to repeat.
    """
    for _ in range(MAX_ATTEMPTS - 1):
        try:
            return operation()
        except WriteConflictError:
            continue
    return operation()
