"""How test files are distributed over processes."""

from __future__ import annotations

from pathlib import Path

from trainshed.testing.distribution import FOLDERS, RAY_FILES, order, work_unit

ROOT = Path(__file__).resolve().parents[3]


def test_files_come_by_folder_and_those_of_the_cluster_first() -> None:
    first, middle, last = RAY_FILES
    others = ["tests/e2e/test_a.py", "tests/faults/test_ray_hosts.py", "tests/unit/cli/test_a.py"]
    assert sorted([*reversed(others), last, middle, first], key=order) == [first, middle, last, *others]


def test_the_files_of_the_cluster_are_one_unit() -> None:
    assert {work_unit(file) for file in RAY_FILES} == {"ray"}
    assert work_unit("tests/faults/test_ray_hosts.py") == "tests/faults/test_ray_hosts.py"


def test_all_files_and_folders_are_there() -> None:
    assert all((ROOT / file).is_file() for file in RAY_FILES)
    folders = {path.relative_to(ROOT).parts[1] for path in (ROOT / "tests").rglob("test_*.py")}
    assert {f"tests/{folder}" for folder in folders} == set(FOLDERS)
