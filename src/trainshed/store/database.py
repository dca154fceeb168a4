"""One way to the database: named SQL from files, short transactions, migrations. SQLite or PostgreSQL."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any, Protocol

import sqlalchemy as sa

from trainshed.errors import CannotProceedError, DiskFullError, InvalidArgumentError, UnavailableError
from trainshed.store.postgresql import Fence, postgresql_engine
from trainshed.store.sqlite import back_up_daily, back_up_first, sqlite_engine

FENCE_LOOK_S = 1.0  #: between two looks at whether the fence still stands

_HERE = files("trainshed.store") / "sql"


def load_queries(name: str) -> dict[str, sa.TextClause]:
    """The statements of `sql/NAME.sql`: each begins with a line `-- its_name`."""
    text = (_HERE / f"{name}.sql").read_text()
    parts = re.split(r"^-- (\w+)\n", text, flags=re.MULTILINE)[1:]
    return {key: sa.text(body.strip().rstrip(";")) for key, body in zip(parts[::2], parts[1::2], strict=True)}


class Transaction(Protocol):
    """What a block of `Database.read()` or `write()` can do."""

    def rows(self, query: sa.TextClause, values: Mapping[str, Any] | None = None) -> Sequence[Mapping[str, Any]]: ...

    def run(self, query: sa.TextClause, values: Mapping[str, Any] | None = None) -> int:
        """Execute and return how many rows were changed."""
        ...

    def lock(self, query: sa.TextClause, values: Mapping[str, Any]) -> None:
        """Hold the rows of a `select ... for update` to the end of the block. SQLite has one writer: nothing to do."""
        ...


class _Connected:
    def __init__(self, connection: sa.Connection) -> None:
        self._connection = connection

    def rows(self, query: sa.TextClause, values: Mapping[str, Any] | None = None) -> Sequence[Mapping[str, Any]]:
        return [dict(row) for row in self._connection.execute(query, dict(values or {})).mappings()]

    def run(self, query: sa.TextClause, values: Mapping[str, Any] | None = None) -> int:
        return self._connection.execute(query, dict(values or {})).rowcount

    def lock(self, query: sa.TextClause, values: Mapping[str, Any]) -> None:
        if self._connection.dialect.name == "postgresql":
            self._connection.execute(query, dict(values))


class Database:
    """A database of ours: SQLite in a file, or PostgreSQL. Threads may share it."""

    def __init__(self, url: str | Path) -> None:
        """Open what is there, or make the file. `CannotProceedError` if a file is damaged or not Trainshed's, or a
        URL leads nowhere. Whether the schema is one that this program knows, `migrate` finds out.
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
        self._fence_seen_s = 0.0
        self._fenced_out = False

    def close(self) -> None:
        with self._fence_lock:
            self._fence.close()
        self._engine.dispose()

    @contextmanager
    def read(self) -> Iterator[Transaction]:
        """A consistent view: what was there at the first look, in all that follow. Never waits for a writer."""
        with _translated(), self._snapshots.connect() as connection:
            if self.path is not None:
                connection.exec_driver_sql("begin")
            yield _Connected(connection)

    @contextmanager
    def write(self) -> Iterator[Transaction]:
        """All or nothing, durable on return. Keep it short and do no other work inside."""
        if self._fenced_out:
            raise UnavailableError("Another server has taken over the database of this one, which must be stopped.")
        with _translated(), self._engine.connect() as connection:
            if self.path is not None:
                connection.exec_driver_sql("begin immediate")
            try:
                yield _Connected(connection)
                connection.commit()
            except BaseException:
                connection.rollback()
                raise

    def fence(self) -> None:
        """Make sure that no other server uses this PostgreSQL database. SQLite is fenced by the folder's lock."""
        if self.path is not None:
            return
        with self._fence_lock, _translated():
            self._fence.take()
            self._fence_seen_s = time.monotonic()

    def check_fence(self, *, at_most_every_s: float = FENCE_LOOK_S) -> None:
        """Make sure, after `fence`, that no other server has come in since; call it before anything of consequence.

        Costs nothing on SQLite, and on PostgreSQL one short question unless the last is that young. A fence whose
        connection was lost is put up again. `CannotProceedError` if another server was faster: from then on every
        `write` is
        `UnavailableError`, and this server must be stopped. `UnavailableError` while the database can't be reached.
        """
        if self.path is not None:
            return
        with self._fence_lock:
            if time.monotonic() - self._fence_seen_s < at_most_every_s and not self._fenced_out:
                return
            try:
                with _translated():
                    self._fence.check()
            except CannotProceedError:
                self._fenced_out = True
                raise
            self._fenced_out = False
            self._fence_seen_s = time.monotonic()

    def migrate(self) -> None:
        """Bring the schema to this program's version, in one transaction. Safe to repeat and to be killed in.

        An older SQLite database is copied first. `CannotProceedError` if that fails, or the schema is newer than this
        program.
        """
        found = self.version()
        known = _migrations()
        if found > len(known):
            raise CannotProceedError(
                f"The database {self._where()} was written by a newer Trainshed (schema {found}; this one knows "
                f"{len(known)}). Install that version, or a newer one."
            )
        if self.path is not None and 0 < found < len(known):
            back_up_first(self.path)
        with self.write() as tx:
            for number, script in list(enumerate(known, start=1))[found:]:
                for statement in self._in_dialect(script).split(";\n"):
                    if statement.strip():
                        tx.run(sa.text(statement))
                tx.run(sa.text("insert into trainshed_schema (version) values (:v)"), {"v": number})

    def back_up(self) -> None:
        """Keep a copy of a SQLite database beside it, not much older than a day if this is called at every start."""
        if self.path is not None:
            back_up_daily(self.path)

    def _in_dialect(self, script: str) -> str:
        """`{serial}` numbers rows as they come; `{name}` is text that is compared and sorted byte by byte."""
        serial, name = "bigint generated always as identity primary key", 'text collate "C"'
        if self.path is not None:
            serial, name = "integer primary key autoincrement", "text"
        return script.replace("{serial}", serial).replace("{name}", name)

    def version(self) -> int:
        """The schema's version: 0 for a new database. Makes the table that holds it."""
        with self.write() as tx:
            tx.run(sa.text("create table if not exists trainshed_schema (version integer primary key)"))
            [row] = tx.rows(sa.text("select coalesce(max(version), 0) as version from trainshed_schema"))
            return int(row["version"])

    def _where(self) -> str:
        return str(self.path) if self.path else self._engine.url.render_as_string()


def _migrations() -> list[str]:
    numbered = sorted(entry.name for entry in _HERE.iterdir() if re.match(r"\d{4}_", entry.name))
    return [(_HERE / name).read_text() for name in numbered]


@contextmanager
def _translated() -> Iterator[None]:
    """Database trouble in the words of `errors`."""
    try:
        yield
    except sa.exc.TimeoutError as exc:
        raise UnavailableError("The database is busy. Try again in a moment.") from exc
    except sa.exc.DataError as exc:
        raise InvalidArgumentError(f"The database can't hold this value: {str(exc.orig).strip()}.") from exc
    except (sa.exc.OperationalError, sa.exc.InterfaceError) as exc:
        text = str(exc.orig)
        if "full" in text or "No space left" in text:
            raise DiskFullError("The disk that holds the database is full. Free some space and try again.") from exc
        raise UnavailableError(
            f"The database can't be used right now ({text.strip()}). Try again in a moment."
        ) from exc


def is_duplicate(exc: sa.exc.IntegrityError) -> bool:
    """Whether a key was taken, rather than some other rule broken."""
    text = str(exc.orig)
    return "UNIQUE constraint" in text or "duplicate key" in text


def storable(text: str) -> str:
    """Words of programs may hold what PostgreSQL or UTF-8 can't: NUL, halves of surrogate pairs."""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}").encode(errors="backslashreplace").decode()
