"""What `make test` says of the time that tests took."""

from __future__ import annotations

from pathlib import Path

from trainshed.testing.budget import (
    FOLDER_BUDGETS_S,
    FOLDERS,
    RAY_FILES,
    STEP_BUDGET_S,
    StepTime,
    order,
    summary,
    work_unit,
)

TESTS = Path(__file__).resolve().parents[2]


def step(test: str, seconds: float, *, kind: str = "call", long: bool = False) -> StepTime:
    return StepTime(test=test, step=kind, seconds=seconds, long=long)


def test_folders_are_told_with_the_longest_first() -> None:
    steps = [step("tests/unit/a/test_a.py::one", 1.0), step("tests/wire/test_b.py::two", 2.0)]
    steps.append(step("tests/wire/test_b.py::two", 0.5, kind="setup"))
    assert [line.split() for line in summary(steps)] == [
        ["2.5s", "1", "tests", "tests/wire"],
        ["1.0s", "1", "tests", "tests/unit"],
    ]


def test_a_folder_over_its_budget_is_named() -> None:
    many = [step(f"tests/wire/test_b.py::{number}", 10.0) for number in range(1000)]
    [line] = summary(many)
    assert line.endswith(f"tests/wire  OVER ITS BUDGET of {FOLDER_BUDGETS_S['tests/wire']:.0f} s")


def test_a_step_over_its_budget_is_named_unless_it_is_marked() -> None:
    over = STEP_BUDGET_S + 1
    lines = summary([step("tests/e2e/a.py::b", over, kind="setup"), step("tests/e2e/a.py::c", over, long=True)])
    assert [line.split()[-1] for line in lines[2:]] == ["tests/e2e/a.py::b"]


def test_every_folder_has_a_budget() -> None:
    folders = {f"tests/{path.name}" for path in TESTS.iterdir() if list(path.glob("**/test_*.py"))}
    assert folders == set(FOLDER_BUDGETS_S)


ROOT = Path(__file__).resolve().parents[3]


def test_files_come_by_folder_and_those_of_the_cluster_first() -> None:
    others = ["tests/e2e/test_a.py", "tests/faults/test_ray_hosts.py", "tests/unit/cli/test_a.py"]
    assert sorted([*reversed(others), *reversed(RAY_FILES)], key=order) == [*RAY_FILES, *others]


def test_the_files_of_the_cluster_are_one_unit() -> None:
    assert {work_unit(file) for file in RAY_FILES} == {"ray"}
    assert work_unit("tests/faults/test_ray_hosts.py") == "tests/faults/test_ray_hosts.py"


def test_all_files_and_folders_are_there() -> None:
    assert all((ROOT / file).is_file() for file in RAY_FILES)
    folders = {path.relative_to(ROOT).parts[1] for path in (ROOT / "tests").rglob("test_*.py")}
    assert {f"tests/{folder}" for folder in folders} == set(FOLDERS)
