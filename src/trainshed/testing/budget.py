"""The time of `make test`: how files are distributed over its processes, and what each folder and step may take."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath

#: In all processes together. With lint, a run ends within twelve minutes.
FOLDER_BUDGETS_S = {
    "tests/e2e": 820.0,
    "tests/faults": 480.0,
    "tests/browser": 290.0,
    "tests/unit": 260.0,
    "tests/wire": 130.0,
    "tests/contract": 60.0,
}
STEP_BUDGET_S = 20.0  #: set-up, call or teardown of one test


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTime:
    """The time of one step of a test."""

    test: str  #: pytest's node id
    step: str  #: setup, call or teardown
    seconds: float
    long: bool  #: whether the test is marked as `long`, with the reason


def summary(steps: Iterable[StepTime]) -> list[str]:
    """Return lines for people: the time of each folder beside its budget, and the steps over theirs."""
    seconds: dict[str, float] = {}
    tests: dict[str, set[str]] = {}
    over: list[StepTime] = []
    for each in steps:
        folder = "/".join(each.test.split("/")[:2])
        seconds[folder] = seconds.get(folder, 0.0) + each.seconds
        tests.setdefault(folder, set()).add(each.test)
        over += [each] if each.seconds > STEP_BUDGET_S and not each.long else []
    lines = [
        f"{seconds[folder]:9.1f}s {len(tests[folder]):6} tests  {folder}{_verdict(folder, seconds[folder])}"
        for folder in sorted(seconds, key=lambda each: -seconds[each])
    ]
    if over:
        lines.append(f"Over {STEP_BUDGET_S:.0f} s, and marked neither as long nor as soak:")
        lines += [f"{each.seconds:9.1f}s {each.step:8} {each.test}" for each in sorted(over, key=lambda e: -e.seconds)]
    return lines


def _verdict(folder: str, seconds: float) -> str:
    budget_s = FOLDER_BUDGETS_S.get(folder)
    return f"  OVER ITS BUDGET of {budget_s:.0f} s" if budget_s is not None and seconds > budget_s else ""


#: The longest files come first, so that all processes end at about the same time.
FOLDERS = ("tests/e2e", "tests/faults", "tests/browser", "tests/contract", "tests/wire", "tests/unit")
#: These share a cluster, which takes long to start. The one that loses nodes comes last.
RAY_FILES = (
    "tests/e2e/test_ray_jobs.py",
    "tests/e2e/test_ray_hosts.py",
    "tests/e2e/test_ray_tuning.py",
    "tests/e2e/test_bridge.py",
)


def order(file: str) -> tuple[int, int]:
    """Return the sort key of a test file: by folder, with those of the cluster first."""
    folder = FOLDERS.index("/".join(PurePosixPath(file).parts[:2]))
    return folder, RAY_FILES.index(file) if file in RAY_FILES else len(RAY_FILES)


def work_unit(file: str) -> str:
    """Return the name of what one process runs as a whole: the file, or all files of the cluster."""
    return "ray" if file in RAY_FILES else file
