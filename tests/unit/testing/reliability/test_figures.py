"""Figures of long runs: added up, started anew with other code, and safe for many writers."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from trainshed.testing.reliability import figures
from trainshed.testing.reliability.figures import code_digest, commit, read, record, table
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
    monkeypatch.setattr(figures, "code_digest", lambda: "other")
    sums = record("F01", runs=2, counts=NOTHING, hours=0.5, page=page)
    assert (sums["runs"], sums["hours"], sums["counts"], sums["digest"]) == (2, 0.5, NOTHING, "other")
    assert read(page)["F02"]["runs"] == 3


def test_the_digest_is_of_the_code_under_test(tmp_path: Path) -> None:
    for name in ("server.py", "store/jobs.sql", "testing/fake.py", "console/page.js", "__pycache__/server.pyc"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("1")
    first = code_digest(tmp_path)
    for name in ("testing/fake.py", "console/page.js", "__pycache__/server.pyc"):
        (tmp_path / name).write_text("2")
    assert code_digest(tmp_path) == first
    (tmp_path / "store/jobs.sql").write_text("2")
    second = code_digest(tmp_path)
    (tmp_path / "store/jobs.sql").rename(tmp_path / "store/job.sql")
    assert len({first, second, code_digest(tmp_path)}) == 3


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
