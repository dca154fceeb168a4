"""What `make test` says of the time that tests took."""

from __future__ import annotations

from pathlib import Path

from trainshed.testing.budget import FOLDER_BUDGETS_S, STEP_BUDGET_S, StepTime, summary

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
