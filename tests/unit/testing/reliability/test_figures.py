"""Figures of long runs: added up, started anew with other code, and safe for many writers."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from trainshed.testing.reliability import figures
from trainshed.testing.reliability.code_under_test import code_digest, unknown_places
from trainshed.testing.reliability.figures import add_file, commit, read, record, table
from trainshed.testing.reliability.rows import between

NOTHING = {"lost": 0, "doubled": 0}


@pytest.fixture
def page(tmp_path: Path) -> Path:
    path = tmp_path / "page.md"
    path.write_text("# Page\n\n<!-- figures begins -->\n<!-- figures ends -->\n")
    return path


def test_runs_are_added_up_and_shown(page: Path) -> None:
    record("F02", runs=3, counts=NOTHING, hours=0.5, page=page)
    sums = record("F02", runs=4, counts={"lost": 1, "5xx": 2}, hours=0.25, page=page)
    assert (sums["runs"], sums["hours"], sums["counts"]) == (7, 0.75, {"lost": 1, "doubled": 0, "5xx": 2})
    record("F02", case="PostgreSQL", runs=1200, counts={}, hours=2, page=page)
    assert list(read(page)) == ["F02", "F02 PostgreSQL"]
    shown = between(page.read_text(), "figures")
    assert shown == table(read(page))
    assert "| F02 | 7 | 0.75 | 1 | 0 | 2 | – | `" in shown
    assert "| F02 PostgreSQL | 1,200 | 2.00 | – | – | – | – | `" in shown


def test_other_code_starts_a_row_anew(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record("F01", runs=3, counts={"lost": 1}, hours=1, page=page)
    record("F02", runs=3, counts=NOTHING, hours=1, page=page)
    monkeypatch.setattr(figures, "code_digest", lambda key: "other")
    sums = record("F01", runs=2, counts=NOTHING, hours=0.5, page=page)
    assert (sums["runs"], sums["hours"], sums["counts"], sums["digest"]) == (2, 0.5, NOTHING, "other")
    assert read(page)["F02"]["runs"] == 3


def _tree(root: Path) -> Path:
    files = {"server.py": "x = 1", "store/jobs.sql": "1", "cli/main.py": "1", "node/sandbox/cell.py": "1"}
    files |= {
        "testing/fake.py": "1",
        "console/page.js": "1",
        "store/sql/0001_a.sql": "1",
        "__pycache__/server.pyc": "1",
    }
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)
    return root


@pytest.mark.parametrize(
    ("row", "changed", "differs"),
    [
        ("F99", "store/jobs.sql", True),
        ("F99", "cli/main.py", True),
        ("F99", "testing/fake.py", False),
        ("F99", "console/page.js", False),
        ("F99", "store/sql/0001_a.sql", False),
        ("F99", "__pycache__/server.pyc", False),
        ("F02", "server.py", True),
        ("F02", "store/jobs.sql", True),
        ("F02 PostgreSQL", "store/jobs.sql", True),
        ("F02", "cli/main.py", False),
        ("F02", "node/sandbox/cell.py", False),
    ],
)
def test_the_digest_is_of_the_code_that_a_row_is_about(tmp_path: Path, row: str, changed: str, differs: bool) -> None:
    first = code_digest(row, _tree(tmp_path))
    (tmp_path / changed).write_text("x = 2")
    assert (code_digest(row, tmp_path) != first) == differs
    (tmp_path / changed).rename(tmp_path / f"{changed}-renamed")
    assert (code_digest(row, tmp_path) != first) == differs


def test_comments_and_docstrings_are_no_change(tmp_path: Path) -> None:
    first = code_digest("F02", _tree(tmp_path))
    (tmp_path / "server.py").write_text('"""Words."""\n\nx = 1  # more words\n')
    assert code_digest("F02", tmp_path) == first


def test_rows_name_places_that_are_there() -> None:
    assert unknown_places() == []


def test_figures_of_another_checkout_are_added(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = page.with_name("other") / "page.md"
    other.parent.mkdir()
    other.write_text(page.read_text())
    for place in (page, other):
        record("F01", runs=3, counts={"lost": 1}, hours=1, page=place)
    record("F02", runs=5, counts=NOTHING, hours=1, page=other)
    monkeypatch.setattr(figures, "code_digest", lambda key: "changed" if key == "F02" else code_digest(key))
    assert add_file(other.with_suffix(".json"), page=page) == ["F02"]
    assert list(read(page)) == ["F01"]
    assert (read(page)["F01"]["runs"], read(page)["F01"]["counts"]) == (6, {"lost": 2})


def test_no_figure_of_many_processes_and_threads_is_lost(page: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from trainshed.testing.reliability.figures import record\n"
        "for _ in range(5): record('F02', runs=1, counts={'lost': 1}, hours=0.001, page=Path(sys.argv[1]))"
    )
    processes = [subprocess.Popen([sys.executable, "-c", code, str(page)]) for _ in range(3)]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(8):
            pool.submit(record, "F02", runs=1, counts={"lost": 1}, hours=0.001, page=page)
    assert [process.wait() for process in processes] == [0, 0, 0]
    assert (read(page)["F02"]["runs"], read(page)["F02"]["counts"]) == (23, {"lost": 23})
    assert sorted(path.name for path in page.parent.iterdir()) == ["page.json", "page.md"]


@pytest.mark.parametrize(
    ("row", "runs", "counts"), [("G01", 1, NOTHING), ("F01", 1, {"found": 1}), ("F01", -1, NOTHING), ("F1", 1, {})]
)
def test_what_is_no_figure_is_refused(page: Path, row: str, runs: int, counts: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"row|counts|grow"):
        record(row, runs=runs, counts=counts, hours=0, page=page)
    assert read(page) == {}


def test_the_commit_tells_whether_its_source_was_changed(tmp_path: Path) -> None:
    assert commit(tmp_path / "absent") == "unknown"
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@localhost"]
    for words in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "first"]):
        subprocess.run([*git, *words], check=True)
    head = commit(tmp_path)
    assert len(head) == 10
    source = tmp_path / "src/trainshed"
    source.mkdir(parents=True)
    (source / "new.py").write_text("")
    assert commit(tmp_path) == head + "+"
