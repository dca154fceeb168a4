"""A node builds runtimes as a server does: once, in the same folder, completely or not at all. uv is a fake."""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from trainshed.node.remote.runtime_build import RuntimeBuildError, ensure, find_uv
from trainshed.runtimes.builds import EnvironmentDir
from trainshed.runtimes.catalogue import Runtime
from trainshed.testing.fakes.scripted_uv import ScriptedUv

TINY = Runtime(
    name="tiny", python="3.11", summary="for tests", unpacked_mb=1, pins=("a==1", "b==2"), stands_for=("c==3",)
)
ORDER: dict[str, Any] = {
    "name": TINY.name,
    "key": TINY.key,
    "python": TINY.python,
    "lock": "".join(f"{pin}\n" for pin in TINY.pins),
    "stands_for": list(TINY.stands_for),
}


@pytest.fixture
def uv(tmp_path: Path) -> ScriptedUv:
    return ScriptedUv(tmp_path / "bin")


def test_what_a_node_builds_a_server_takes_for_its_own(tmp_path: Path, uv: ScriptedUv) -> None:
    said: list[str] = []
    python = ensure(str(tmp_path / "runtimes"), ORDER, lambda: str(uv.path), said.append)
    place = EnvironmentDir(tmp_path / "runtimes" / TINY.key)
    assert place.ready() and str(place.python) == python
    assert (place.path / "lib" / "python3.11" / "site-packages" / "c-3.dist-info" / "METADATA").is_file()
    assert said[0] == "Runtime tiny is built on this node, once for all jobs."
    assert ensure(str(tmp_path / "runtimes"), ORDER, lambda: str(uv.path), said.append) == python
    assert uv.calls() == ["venv", "pip"]


def test_of_many_that_need_it_one_builds_and_the_others_wait(tmp_path: Path, uv: ScriptedUv) -> None:
    folder, found = str(tmp_path / "runtimes"), []
    threads = [
        threading.Thread(target=lambda: found.append(ensure(folder, ORDER, lambda: str(uv.path), lambda line: None)))
        for _ in range(4)
    ]
    uv.close_gate()
    for thread in threads:
        thread.start()
    time.sleep(0.2)  # all of them have asked by now
    uv.open_gate()
    for thread in threads:
        thread.join()
    assert len(found) == 4 and len(set(found)) == 1
    assert uv.calls() == ["venv", "pip"]


def test_a_build_that_fails_leaves_nothing_and_says_what_uv_said(tmp_path: Path, uv: ScriptedUv) -> None:
    uv.fail("no such package")
    with pytest.raises(RuntimeBuildError, match="uv said: no such package"):
        ensure(str(tmp_path / "runtimes"), ORDER, lambda: str(uv.path), lambda line: None)
    assert not EnvironmentDir(tmp_path / "runtimes" / TINY.key).path.exists()
    uv.recover()
    ensure(str(tmp_path / "runtimes"), ORDER, lambda: str(uv.path), lambda line: None)
    assert EnvironmentDir(tmp_path / "runtimes" / TINY.key).ready()


def test_a_half_built_one_is_built_anew(tmp_path: Path, uv: ScriptedUv) -> None:
    place = EnvironmentDir(tmp_path / "runtimes" / TINY.key)
    (place.path / "bin").mkdir(parents=True)
    (place.path / "junk").touch()
    ensure(str(tmp_path / "runtimes"), ORDER, lambda: str(uv.path), lambda line: None)
    assert place.ready() and not (place.path / "junk").exists()


def test_uv_is_the_one_beside_the_interpreter_or_on_the_path(
    tmp_path: Path, uv: ScriptedUv, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "nowhere" / "python"))
    monkeypatch.setenv("PATH", str(uv.path.parent))
    assert find_uv(str(tmp_path / "cache"), lambda line: None) == str(uv.path)
