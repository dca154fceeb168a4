"""Environments are whole or absent, whatever happens while they are built. uv is a small fake."""

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainshed.errors import (
    DiskFullError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    TrainshedError,
    UnavailableError,
)
from trainshed.runtimes.catalogue import Runtime
from trainshed.runtimes.environments import Runtimes, RuntimeState
from trainshed.runtimes.pythons import Pythons
from trainshed.services.runtimes import RuntimeService
from trainshed.testing.eventually import eventually
from trainshed.testing.fakes.scripted_uv import ScriptedUv

TINY = Runtime(name="tiny", python="3.11", summary="for tests", unpacked_mb=1, pins=("a==1", "b==2"))
LOST = Runtime(name="lost", python="3.0", summary="no Python", unpacked_mb=1, pins=("a==1",))
CATALOGUE = {"tiny": TINY, "lost": LOST}


class OnlyThisPython:
    def can_be_had(self, version: str) -> bool:
        return version == "3.11"

    def get(self, version: str) -> Path | None:
        return Path(sys.executable) if version == "3.11" else None


class Bench:
    """A folder with a fake uv, and the runtimes built by it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.uv = ScriptedUv(folder)
        self.runtimes = self.again()
        self.place = self.runtimes.get("tiny").path

    def again(self) -> Runtimes:
        return Runtimes(self.folder / "runtimes", self.uv.path, pythons=OnlyThisPython(), catalogue=CATALOGUE)

    def builds(self) -> int:
        return self.uv.calls().count("venv")

    def state(self) -> RuntimeState:
        return self.runtimes.get("tiny").state

    def wait_for(self, state: RuntimeState) -> None:
        eventually(self.state, lambda seen: seen is state)

    def half_built(self) -> bool:
        return (self.place / "lib/python3.11/site-packages/a-1.dist-info").exists()


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    bench.runtimes.close()
    bench.uv.open_gate()


def quiet(fraction: float, text: str) -> None:
    pass


def test_a_built_runtime_is_resolved_without_uv(bench: Bench) -> None:
    bench.runtimes.ensure("tiny", quiet)
    calls = bench.uv.calls()
    after_start = Runtimes(bench.folder / "runtimes", bench.uv.path, catalogue=CATALOGUE)
    assert after_start.resolve("tiny", "3.11").name == "tiny"
    assert after_start.ensure("tiny", quiet) == bench.place / "bin" / "python"
    assert bench.uv.calls() == calls
    with pytest.raises(InvalidArgumentError, match=r"needs Python 3\.0"):
        after_start.resolve("lost", None)
    assert bench.uv.calls()[len(calls) :].count("python") >= 2, "a runtime that is not built needs a search"


def test_first_use_builds_and_the_next_does_not(bench: Bench) -> None:
    told: list[tuple[float, str]] = []
    assert bench.state() is RuntimeState.ABSENT
    python = bench.runtimes.ensure("tiny", lambda fraction, text: told.append((fraction, text)))
    assert python == bench.place / "bin" / "python"
    assert python.exists()
    assert [f for f, _ in told] == sorted(f for f, _ in told)
    assert told[-1] == (1.0, "Ready")
    assert bench.again().ensure("tiny", quiet) == python
    assert bench.builds() == 1
    info = bench.runtimes.get("tiny")
    assert (info.state, info.fraction, info.error) == (RuntimeState.READY, 1.0, "")
    assert info.size > 0
    assert (bench.place / "requirements.txt").read_text() == "a==1\nb==2\n"


def test_packages_can_come_from_besides_the_index(bench: Bench) -> None:
    runtimes = Runtimes(
        bench.folder / "runtimes", bench.uv.path, pythons=OnlyThisPython(), catalogue=CATALOGUE, find_links=("/w",)
    )
    runtimes.ensure("tiny", quiet)
    assert (bench.place / "requirements.txt").read_text() == "--find-links /w\na==1\nb==2\n"


def test_a_folder_without_its_stamp_is_built_again(bench: Bench) -> None:
    bench.runtimes.ensure("tiny", quiet)
    (bench.place / "complete.json").unlink()
    (bench.place / "rubbish").touch()
    assert bench.state() is RuntimeState.ABSENT
    bench.runtimes.ensure("tiny", quiet)
    assert bench.builds() == 2
    assert not (bench.place / "rubbish").exists()


def test_an_environment_whose_interpreter_went_away_is_built_again(bench: Bench) -> None:
    python = bench.runtimes.ensure("tiny", quiet)
    python.unlink()
    python.symlink_to(bench.folder / "gone")
    assert bench.state() is RuntimeState.ABSENT
    assert bench.runtimes.ensure("tiny", quiet).exists()


def test_many_threads_build_once_and_all_see_the_progress(bench: Bench) -> None:
    bench.uv.close_gate()
    told: list[list[float]] = [[] for _ in range(4)]

    def use(mine: list[float]) -> None:
        bench.again().ensure("tiny", lambda fraction, text: mine.append(fraction))

    threads = [threading.Thread(target=use, args=(mine,)) for mine in told]
    for thread in threads:
        thread.start()
    eventually(lambda: all(mine and mine[-1] > 0 for mine in told))
    assert bench.state() is RuntimeState.BUILDING
    assert 0 < bench.runtimes.get("tiny").fraction < 1
    bench.uv.open_gate()
    for thread in threads:
        thread.join(90)
    assert bench.builds() == 1
    assert all(mine == sorted(mine) for mine in told)


def test_a_builder_that_is_killed_leaves_nothing_that_passes_for_whole(bench: Bench) -> None:
    bench.uv.close_gate()
    code = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "from pathlib import Path\n"
        "from test_builds import Bench, quiet\n"
        f"Bench(Path({str(bench.folder)!r})).runtimes.ensure('tiny', quiet)\n"
    )
    builder = subprocess.Popen([sys.executable, "-c", code])
    eventually(bench.half_built)
    builder.send_signal(signal.SIGKILL)
    builder.wait()
    assert bench.state() is RuntimeState.BUILDING  # its uv lives on, and nobody may build under it
    waiter = threading.Thread(target=bench.runtimes.ensure, args=("tiny", quiet))
    waiter.start()
    bench.uv.open_gate()
    waiter.join(90)
    assert bench.state() is RuntimeState.READY
    assert bench.builds() == 2


@pytest.mark.parametrize(
    "words, kind",
    [
        ("error: Caused by: No space left on device (os error 28)", DiskFullError),
        ("error: dns error", UnavailableError),
    ],
)
def test_a_failed_build_gives_its_space_back_and_says_why(bench: Bench, words: str, kind: type[TrainshedError]) -> None:
    bench.uv.fail(words)
    with pytest.raises(kind) as caught:
        bench.runtimes.ensure("tiny", quiet)
    assert not bench.place.exists()
    info = bench.runtimes.get("tiny")
    assert (info.state, info.error) == (RuntimeState.ABSENT, str(caught.value))
    bench.uv.recover()
    bench.runtimes.ensure("tiny", quiet)
    assert bench.runtimes.get("tiny").error == ""


def test_whoever_follows_the_progress_can_end_the_build(bench: Bench) -> None:
    bench.uv.close_gate()

    def enough(fraction: float, text: str) -> None:
        if fraction > 0:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bench.runtimes.ensure("tiny", enough)
    info = bench.runtimes.get("tiny")
    assert (info.state, info.error) == (RuntimeState.ABSENT, "")
    assert not bench.place.exists()


def test_closing_ends_builds_and_waits(bench: Bench) -> None:
    bench.uv.close_gate()
    ends: list[str] = []

    def use() -> None:
        try:
            bench.runtimes.ensure("tiny", quiet)
        except UnavailableError as exc:
            ends.append(str(exc))

    threads = [threading.Thread(target=use) for _ in range(2)]
    for thread in threads:
        thread.start()
    eventually(bench.half_built)
    bench.runtimes.close()
    for thread in threads:
        thread.join(90)
    assert len(ends) == 2
    assert not bench.place.exists()


def test_removing_takes_old_ones_of_that_name_too(bench: Bench) -> None:
    bench.runtimes.ensure("tiny", quiet)
    old = bench.place.with_name("tiny-0123456789ab")
    old.mkdir()
    old.with_name("tiny-0123456789ab.lock").touch()
    bench.runtimes.remove("tiny")
    assert not bench.place.exists()
    assert not old.exists()
    assert bench.state() is RuntimeState.ABSENT
    bench.runtimes.remove("tiny")


def test_what_is_being_built_is_not_removed(bench: Bench) -> None:
    bench.uv.close_gate()
    builder = threading.Thread(target=bench.runtimes.ensure, args=("tiny", quiet))
    builder.start()
    eventually(bench.half_built)
    with pytest.raises(FailedPreconditionError, match="is being built"):
        bench.runtimes.remove("tiny")
    bench.uv.open_gate()
    builder.join(90)
    assert bench.state() is RuntimeState.READY


def test_a_runtime_without_its_python_cannot_be_had(bench: Bench) -> None:
    info = bench.runtimes.get("lost")
    assert info.state is RuntimeState.UNAVAILABLE
    assert "needs Python 3.0" in info.error
    with pytest.raises(FailedPreconditionError, match="Install it"):
        bench.runtimes.ensure("lost", quiet)
    with pytest.raises(NotFoundError, match="The runtimes are: tiny, lost"):
        bench.runtimes.ensure("nonsense", quiet)


def test_the_service_installs_in_the_background(bench: Bench) -> None:
    bench.uv.close_gate()
    service = RuntimeService(bench.runtimes, in_use=lambda name: False)
    started = service.install("tiny")
    assert started["state"] == "BUILDING"
    assert started.keys() >= {"name", "python", "summary", "state", "fraction", "text", "error", "path"}
    assert service.install("tiny")["state"] == "BUILDING"
    with pytest.raises(FailedPreconditionError, match="being built"):
        service.remove("tiny")
    bench.uv.open_gate()
    eventually(lambda: service.visible()[0]["state"] == "READY")
    assert service.install("tiny")["state"] == "READY"
    assert bench.builds() == 1
    assert service.remove("tiny") == {}
    assert service.visible()[0]["state"] == "ABSENT"
    service.close()


def test_the_service_shows_why_an_install_failed(bench: Bench) -> None:
    bench.uv.fail("error: dns error")
    service = RuntimeService(bench.runtimes, in_use=lambda name: False)
    service.install("tiny")
    eventually(lambda: service.visible()[0]["state"] == "ABSENT")
    assert "check the network" in service.visible()[0]["error"]
    with pytest.raises(FailedPreconditionError, match=r"needs Python 3\.0"):
        service.install("lost")
    with pytest.raises(NotFoundError):
        service.install("1.2")
    service.close()


def test_a_runtime_in_use_is_not_removed(bench: Bench) -> None:
    bench.runtimes.ensure("tiny", quiet)
    service = RuntimeService(bench.runtimes, in_use=lambda name: name == "tiny")
    with pytest.raises(FailedPreconditionError, match="A job runs from runtime tiny"):
        service.remove("tiny")
    assert bench.state() is RuntimeState.READY


@pytest.mark.parametrize("seen", [True, False])
def test_a_job_that_begins_during_a_removal_keeps_its_runtime_or_has_it_built_again(bench: Bench, seen: bool) -> None:
    bench.runtimes.ensure("tiny", quiet)
    given: list[Path] = []
    job = threading.Thread(target=lambda: given.append(bench.runtimes.ensure("tiny", quiet)), daemon=True)

    def in_use(name: str) -> bool:
        """A job asks for its environment at the worst of moments, and is `seen` or came too late for that."""
        job.start()
        job.join(0.3)
        assert job.is_alive(), "it was given what may be gone in a moment"
        return seen

    service = RuntimeService(bench.runtimes, in_use=in_use)
    if seen:
        with pytest.raises(FailedPreconditionError, match="A job runs from runtime tiny"):
            service.remove("tiny")
    else:
        service.remove("tiny")
    job.join(90)
    assert [python.exists() for python in given] == [True]
    assert bench.builds() == (1 if seen else 2)


def test_a_question_that_fails_leaves_the_runtime_as_it_is(bench: Bench) -> None:
    bench.runtimes.ensure("tiny", quiet)

    def fails(name: str) -> bool:
        raise UnavailableError("The database is busy.")

    with pytest.raises(UnavailableError):
        RuntimeService(bench.runtimes, in_use=fails).remove("tiny")
    assert bench.state() is RuntimeState.READY


def test_looking_ahead_asks_for_every_python(tmp_path: Path) -> None:
    asked: list[str] = []

    class Recorded(OnlyThisPython):
        def can_be_had(self, version: str) -> bool:
            asked.append(version)
            return super().can_be_had(version)

    Runtimes(tmp_path, tmp_path / "uv", pythons=Recorded(), catalogue=CATALOGUE).look_ahead()
    eventually(lambda: sorted(asked) == ["3.0", "3.11"])


SLOW_UV = """#!/bin/sh
here=$(dirname "$0")
case "$2" in
    list) echo offered ;;
    install) touch "$here/fetching"; while [ ! -e "$here/gate" ]; do sleep 0.05; done; touch "$here/fetched" ;;
    find) [ -e "$here/fetched" ] && echo {python} || exit 2 ;;
esac
"""


def test_nobody_waits_for_the_fetch_of_a_python_but_who_needs_it(tmp_path: Path) -> None:
    uv = tmp_path / "uv"
    uv.write_text(SLOW_UV.format(python=sys.executable))
    uv.chmod(0o755)
    pythons = Pythons(uv)
    got: list[Path | None] = []
    fetchers = [threading.Thread(target=lambda: got.append(pythons.get("3.1")), daemon=True) for _ in range(2)]
    for fetcher in fetchers:
        fetcher.start()
    eventually((tmp_path / "fetching").exists)
    answers: list[bool] = []
    asker = threading.Thread(target=lambda: answers.extend(map(pythons.can_be_had, ("3.1", "3.2"))), daemon=True)
    asker.start()
    asker.join(90)
    assert answers == [True, True]
    assert got == []
    (tmp_path / "gate").touch()
    for fetcher in fetchers:
        fetcher.join(90)
    assert got == [Path(sys.executable)] * 2


def test_closing_the_service_ends_its_installs(bench: Bench) -> None:
    bench.uv.close_gate()
    service = RuntimeService(bench.runtimes, in_use=lambda name: False)
    service.install("tiny")
    eventually(bench.half_built)
    service.close()
    assert not bench.place.exists()
    assert not [t for t in threading.enumerate() if t.name == "install-tiny"]
