"""What is built before the tests."""

from __future__ import annotations

from trainshed.runtimes.catalogue import CATALOGUE
from trainshed.testing.prepare import prepare, steps


def test_each_build_is_told_of_and_a_failure_stops_no_other() -> None:
    built: list[str] = []

    def fail() -> None:
        raise RuntimeError("the disk is full")

    lines: list[str] = []
    failed = prepare({"one": fail, "two": lambda: built.append("two")}, lines.append)
    assert (failed, built) == (["one"], ["two"])
    assert sorted(line.partition("] ")[2].partition(" after")[0] for line in lines) == [
        "one: failed: the disk is full",
        "two: ready",
    ]
    assert [line[:5] for line in lines] == ["[1/2]", "[2/2]"]


def test_all_that_tests_share_is_built() -> None:
    names = set(steps())
    runtimes = {f"runtime {name}" for name in CATALOGUE}
    assert names - runtimes == {
        "runtime notebook",
        "bridge to Ray",
        "Ray cluster",
        "models",
        "base image",
        "test modules",
    }
    assert {"runtime 2.21", "runtime 2.15", "runtime python"} <= names
