"""One way to the database: named SQL from files, short transactions, migrations. SQLite or PostgreSQL."""

from __future__ import annotations

import re
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any, Protocol

import sqlalchemy as sa

from trainshed.errors import OutOfSpace, Refused, Unavailable

BUSY_S = 4.0  #: how long a write waits for another writer before it is `Unavailable`
BACKUP_AGE_S = 86_400

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


class _Connected:
    def __init__(self, connection: sa.Connection) -> None:
        self._connection = connection

    def rows(self, query: sa.TextClause, values: Mapping[str, Any] | None = None) -> Sequence[Mapping[str, Any]]:
        return [dict(row) for row in self._connection.execute(query, dict(values or {})).mappings()]

    def run(self, query: sa.TextClause, values: Mapping[str, Any] | None = None) -> int:
        return self._connection.execute(query, dict(values or {})).rowcount


class Database:
    """A database that has been checked and migrated. Threads may share it."""

    def __init__(self, url: str | Path) -> None:
        """Open what is there. `Refused` if it is damaged, not ours, or newer than this program."""
        self.path = url if isinstance(url, Path) else None
        if self.path is not None:
            self._engine = _sqlite_engine(self.path)
        else:
            self._engine = _postgresql_engine(str(url))
        self._fence: sa.Connection | None = None

    def close(self) -> None:
        if self._fence is not None:
            self._fence.close()
        self._engine.dispose()

    @contextmanager
    def read(self) -> Iterator[Transaction]:
        """A consistent view. Never waits for a writer."""
        with _translated(), self._engine.connect() as connection:
            yield _Connected(connection)

    @contextmanager
    def write(self) -> Iterator[Transaction]:
        """All or nothing, durable on return. Keep it short and do no other work inside."""
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
        self._fence = self._engine.connect()
        if not self._fence.exec_driver_sql("select pg_try_advisory_lock(74726169)").scalar():
            raise Refused(
                f"Another server uses the database {self._engine.url.render_as_string()}. "
                f"Stop it first, or give this one a database of its own with TRAINSHED_SERVER_DATABASE."
            )

    def migrate(self) -> None:
        """Bring the schema to this program's version, in one transaction. Safe to repeat and to be killed in."""
        found = self.version()
        known = _migrations()
        if found > len(known):
            raise Refused(
                f"The database {self._where()} was written by a newer Trainshed (schema {found}; this one knows "
                f"{len(known)}). Install that version, or a newer one."
            )
        serial = "integer primary key autoincrement" if self.path else "bigint generated always as identity primary key"
        with self.write() as tx:
            for number, script in list(enumerate(known, start=1))[found:]:
                for statement in script.replace("{serial}", serial).split(";\n"):
                    if statement.strip():
                        tx.run(sa.text(statement))
                tx.run(sa.text("insert into trainshed_schema (version) values (:v)"), {"v": number})

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


def _sqlite_engine(path: Path) -> sa.Engine:
    if path.exists():
        check_sqlite(path)
    else:
        _create_sqlite(path)
    engine = sa.create_engine(
        sa.URL.create("sqlite", database=str(path)),
        connect_args={"timeout": BUSY_S, "check_same_thread": False},
        pool_size=16,
        max_overflow=48,
    )

    @sa.event.listens_for(engine, "connect")
    def configure(connection: sqlite3.Connection, _record: object) -> None:
        connection.isolation_level = None  # transactions begin where this module says so, and nowhere else
        connection.execute("pragma journal_mode = wal")
        connection.execute("pragma synchronous = full")
        connection.execute("pragma foreign_keys = on")

    return engine


def check_sqlite(path: Path) -> None:
    """`Refused`, with the file untouched, unless it is a sound SQLite database."""
    try:
        if path.stat().st_size == 0:
            raise sqlite3.DatabaseError("it is empty")
        connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
        try:
            [(verdict,)] = connection.execute("pragma quick_check(1)").fetchall()
        finally:
            connection.close()
        if verdict != "ok":
            raise sqlite3.DatabaseError(verdict)
    except (sqlite3.Error, OSError) as exc:
        backup = path.with_name(f"{path.name}.backup")
        remedy = (
            f"restore the last good copy with: cp {backup} {path}" if backup.exists() else "restore it from a backup"
        )
        raise Refused(
            f"The database {path} is damaged ({exc}). It was not touched. Move it and its -wal and -shm files away and "
            f"{remedy}"
        ) from exc


def _create_sqlite(path: Path) -> None:
    """A new database appears whole under its name, so that an empty file there always means damage."""
    fresh = path.with_name(f"{path.name}.new")
    fresh.unlink(missing_ok=True)
    connection = sqlite3.connect(fresh)
    connection.execute("pragma application_id = 0x74726169")
    connection.commit()
    connection.close()
    fresh.chmod(0o600)
    fresh.rename(path)


def _postgresql_engine(url: str) -> sa.Engine:
    if not url.startswith(("postgresql://", "postgres://")):
        raise Refused(
            f"TRAINSHED_SERVER_DATABASE must be a postgresql:// URL; it starts with {url.partition('://')[0]!r}."
        )
    parsed = sa.make_url(url).set(drivername="postgresql+psycopg")
    engine = sa.create_engine(
        parsed, pool_size=16, max_overflow=48, pool_pre_ping=True, connect_args={"connect_timeout": 5}
    )
    try:
        engine.connect().close()
    except sa.exc.OperationalError as exc:
        raise Refused(f"The database {parsed.render_as_string()} can't be reached: {str(exc.orig).strip()}") from exc
    return engine


@contextmanager
def _translated() -> Iterator[None]:
    """Database trouble in the words of `errors`."""
    try:
        yield
    except sa.exc.TimeoutError as exc:
        raise Unavailable("The database is busy. Try again in a moment.") from exc
    except (sa.exc.OperationalError, sa.exc.InterfaceError) as exc:
        text = str(exc.orig)
        if "full" in text or "No space left" in text:
            raise OutOfSpace("The disk that holds the database is full. Free some space and try again.") from exc
        raise Unavailable(f"The database can't be used right now ({text.strip()}). Try again in a moment.") from exc


def is_duplicate(exc: sa.exc.IntegrityError) -> bool:
    """Whether a key was taken, rather than some other rule broken."""
    text = str(exc.orig)
    return "UNIQUE constraint" in text or "duplicate key" in text


def back_up(database: Database) -> None:
    """Keep a copy of a SQLite database beside it, made anew at a start when the last one is a day old."""
    if database.path is None:
        return
    copy = database.path.with_name(f"{database.path.name}.backup")
    if copy.exists() and time.time() - copy.stat().st_mtime < BACKUP_AGE_S:
        return
    fresh = copy.with_name(f"{copy.name}.new")
    fresh.unlink(missing_ok=True)
    source, target = sqlite3.connect(database.path), sqlite3.connect(fresh)
    try:
        source.backup(target)
    finally:
        source.close()
        target.close()
    fresh.rename(copy)
