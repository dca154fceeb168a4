"""Every table and every part of the state folder is backed up, rebuilt or thrown away, and the documents say which."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from trainshed.backup.contents import FILES, TABLES, Content
from trainshed.config import Home
from trainshed.store.database import Database

ROOT = Path(__file__).resolve().parents[3]
HOME = Home(Path("/state"))


def test_every_table_has_a_class(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    with closing(Database(path)) as database:
        database.migrate()
    with closing(sqlite3.connect(path)) as connection:
        found = {name for (name,) in connection.execute("select name from sqlite_master where type = 'table'")}
    assert found - {"sqlite_sequence"} == set(TABLES)


def test_every_path_of_the_state_folder_has_a_class() -> None:
    paths = {
        name: getattr(HOME, name)
        for name, value in vars(Home).items()
        if isinstance(value, property) and isinstance(getattr(HOME, name), Path)
    }
    assert len(paths) > 20
    unclassed = {name for name, path in paths.items() if path.relative_to(HOME.path).parts[0] not in FILES}
    assert unclassed == set()


@pytest.mark.parametrize(("name", "content"), [*TABLES.items(), *FILES.items()])
def test_the_documents_have_every_class(name: str, content: Content) -> None:
    handling = content.handling + (f", with `{content.option}`" if content.option else "")
    row = f"| `{name}` | {handling} | {content.description} |"
    assert row in (ROOT / "docs" / "backup.md").read_text().splitlines()
