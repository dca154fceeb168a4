"""Reference answers, worked out by programs that follow a script: forked from a warm process, or started cold."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from trainshed.config import Home
from trainshed.engines import reaped_process
from trainshed.engines.hosts.spec import HostSpec
from trainshed.engines.local.reference_outputs import ReferenceOutputs
from trainshed.engines.local.warm import WarmProcesses
from trainshed.errors import EngineUnavailableError
from trainshed.node.process.tree import stat_fields
from trainshed.testing.eventually import eventually
from trainshed.testing.fakes.scripted_hosts import ship_scripted

PYTHON = Path(sys.executable)


class Shed:
    def __init__(self, path: Path, *, modules: tuple[str, ...]) -> None:
        self.path = path
        self.checks = 0
        self.warm = WarmProcesses(Home(path / "home"), modules={PYTHON: modules}, ship=self.ship)
        self.references = ReferenceOutputs(self.warm, ship=self.ship)

    def ship(self) -> Path:
        return ship_scripted(self.path / "node")

    def compute(self, *behaviour: str, timeout_s: float = 120.0) -> Path:
        folder = self.path / "model"
        folder.mkdir(exist_ok=True)
        (folder / "behaviour").write_text(" ".join(behaviour))
        spec = HostSpec(
            project="p",
            model="m",
            version="v",
            instance=0,
            python=PYTHON,
            model_dir=folder,
            loader="tensorflow",
            threads=1,
            body_limit=1,
        )
        return self.references.compute(spec, self.path / "work", timeout_s=timeout_s, check=self.check)

    def check(self) -> None:
        self.checks += 1


@pytest.fixture(params=[("decimal",), ()], ids=["warm", "cold"])
def shed(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shed]:
    shed = Shed(tmp_path, modules=request.param)
    yield shed
    shed.warm.close()


def test_the_answers_are_in_a_file(shed: Shed) -> None:
    assert shed.compute().is_file()
    assert shed.compute().is_file()
    assert bool(list((shed.path / "home" / "warm").glob("*/socket"))) is shed.warm.is_starting(PYTHON)


def test_a_failure_is_told_in_its_own_words(shed: Shed) -> None:
    with pytest.raises(EngineUnavailableError, match="TensorFlow can not load it"):
        shed.compute("no-reference")


def test_a_crash_is_told(shed: Shed) -> None:
    with pytest.raises(EngineUnavailableError, match="SIGKILL"):
        shed.compute("reference-dies")


def test_it_ends_when_it_takes_too_long_and_so_does_what_it_started(
    shed: Shed, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = shed.path / "model" / "child"

    def clock() -> float:
        """Its time is over when it has started something."""
        return time.monotonic() + (120.0 if started.exists() and started.read_text() else 0.0)

    monkeypatch.setattr(reaped_process, "time", SimpleNamespace(monotonic=clock))
    with pytest.raises(EngineUnavailableError, match="did not answer within 120 s"):
        shed.compute("spawn", "reference-hangs", timeout_s=120.0)
    child = int(started.read_text())
    eventually(lambda: stat_fields(child)[:1], lambda state: state in ([], [b"Z"]))


def test_whoever_checks_can_end_it(shed: Shed) -> None:
    def end() -> None:
        raise KeyError("cancelled")

    shed.check = end  # type: ignore[method-assign]
    with pytest.raises(KeyError):
        shed.compute("reference-hangs")


def test_the_warm_process_is_there_before_it_is_needed(tmp_path: Path) -> None:
    shed = Shed(tmp_path, modules=("decimal",))
    shed.references.expect(PYTHON)
    assert shed.warm.is_starting(PYTHON)
    eventually(lambda: list((shed.path / "home" / "warm").glob("*/socket")))
    shed.references.expect(PYTHON)
    assert shed.compute().is_file()
    shed.warm.close()
