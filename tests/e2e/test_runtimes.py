"""Runtimes built by the real uv: once for many processes, and over HTTP."""

import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from trainshed.errors import UnavailableError
from trainshed.runtimes.catalogue import CATALOGUE
from trainshed.runtimes.environments import Runtimes, RuntimeState
from trainshed.runtimes.pythons import Pythons
from trainshed.runtimes.uv import find_uv
from trainshed.testing.processes.servers import RunningServer

# Counts its calls, then does what it is told.
COUNTING_UV = '#!/bin/sh\necho "$1" >> "{calls}"\nexec "{uv}" "$@"\n'

USE = """
import json, sys
from pathlib import Path
from trainshed.runtimes.environments import Runtimes
told = []
python = Runtimes(Path(sys.argv[1]), Path(sys.argv[2])).ensure("python", lambda fraction, text: told.append(fraction))
print(json.dumps({"python": str(python), "told": told}))
"""


def test_four_processes_at_once_build_one_environment(tmp_path: Path) -> None:
    uv, calls = tmp_path / "uv", tmp_path / "calls"
    uv.write_text(COUNTING_UV.format(calls=calls, uv=find_uv()))
    uv.chmod(0o755)
    command = [sys.executable, "-c", USE, str(tmp_path / "runtimes"), str(uv)]
    users = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    answers = [json.loads(user.communicate(timeout=200)[0]) for user in users]
    assert [user.returncode for user in users] == [0] * 4
    assert len({answer["python"] for answer in answers}) == 1
    assert all(answer["told"] == sorted(answer["told"]) for answer in answers)
    assert calls.read_text().split().count("venv") == 1
    assert calls.read_text().split().count("pip") == 1
    seen = "import psutil, setuptools, wheel, pkg_resources, sys; print(sys.version_info[:2])"
    done = subprocess.run(
        [answers[0]["python"], "-W", "ignore", "-c", seen], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert done.stdout.strip() == "(3, 11)"


def test_a_package_that_is_nowhere_is_a_sentence(tmp_path: Path) -> None:
    absent = replace(CATALOGUE["python"], pins=("trainshed-no-such-package==1.0",))
    runtimes = Runtimes(tmp_path, find_uv(), catalogue={"python": absent})
    with pytest.raises(UnavailableError, match="trainshed-no-such-package") as caught:
        runtimes.ensure("python", lambda fraction, text: None)
    assert "UV_DEFAULT_INDEX" in str(caught.value)
    assert absent.key not in {path.name for path in tmp_path.iterdir()}


def test_a_package_that_another_stands_for_is_not_installed_again(tmp_path: Path) -> None:
    stand_in = replace(CATALOGUE["python"], stands_for=("tensorflow==2.21.0",))
    runtimes = Runtimes(tmp_path, find_uv(), catalogue={"python": stand_in})
    python = runtimes.ensure("python", lambda fraction, text: None)
    command = [str(find_uv()), "pip", "install", "--dry-run", "--offline", "--python", str(python), "tensorflow>=2.1"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert "Would make no changes" in done.stderr


def test_a_python_is_found_behind_a_shim_that_does_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As version switchers leave them on the PATH for each Python they know, chosen or not."""
    home, shims = tmp_path / "home", tmp_path / "shims"
    real = home / ".pyenv" / "versions" / "3.11.9" / "bin"
    for folder in (shims, real):
        folder.mkdir(parents=True)
    (shims / "python3.11").write_text("#!/bin/sh\necho 'pyenv: python3.11: command not found' >&2\nexit 127\n")
    (shims / "python3.11").chmod(0o755)
    (real / "python3.11").symlink_to(Path(sys.base_prefix, "bin", "python3.11"))
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("PATH", str(shims))
    monkeypatch.setattr(sys, "base_prefix", str(tmp_path))  # so that it is not simply our own
    found = Pythons(find_uv()).get("3.11")
    assert found is not None
    assert subprocess.run([found, "-c", ""]).returncode == 0


def test_a_python_that_nobody_has_cannot_be_had() -> None:
    pythons = Pythons(find_uv())
    assert not pythons.can_be_had("3.1")
    assert pythons.get("3.1") is None


def _runtime(server: RunningServer, name: str) -> dict[str, Any]:
    runtimes = server.call("GET", "/trainshed/v1/runtimes")["runtimes"]
    [found] = [runtime for runtime in runtimes if runtime["name"] == name]
    assert isinstance(found, dict)
    return found


def test_a_runtime_is_installed_and_removed_over_http(own_server: RunningServer) -> None:
    assert _runtime(own_server, "python")["state"] == RuntimeState.ABSENT
    started = own_server.call("POST", "/trainshed/v1/runtimes/python:install")
    assert started["state"] in (RuntimeState.BUILDING, RuntimeState.READY)
    fractions: list[float] = []
    end = time.monotonic() + 200
    while (seen := _runtime(own_server, "python"))["state"] == RuntimeState.BUILDING:
        assert time.monotonic() < end
        fractions.append(seen["fraction"])
        time.sleep(0.05)
    assert (seen["state"], seen["error"]) == (RuntimeState.READY, "")
    assert fractions == sorted(fractions)
    assert Path(seen["path"], "bin", "python").exists()
    assert own_server.call("DELETE", "/trainshed/v1/runtimes/python") == {}
    assert _runtime(own_server, "python")["state"] == RuntimeState.ABSENT
    assert not Path(seen["path"]).exists()
