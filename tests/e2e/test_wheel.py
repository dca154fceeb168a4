"""The wheel holds all that an installed Trainshed needs besides its modules, and no test code."""

from __future__ import annotations

import re
import subprocess
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainshed.runtimes.uv import find_uv

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[zipfile.ZipFile]:
    folder = tmp_path_factory.mktemp("wheel")
    pinned = ["--build-constraint", str(ROOT / "requirements" / "build.lock")]
    command = [str(find_uv()), "build", "--wheel", "--quiet", *pinned, "--out-dir", str(folder), str(ROOT)]
    subprocess.run(command, check=True, timeout=280)
    [path] = folder.glob("*.whl")
    with zipfile.ZipFile(path) as archive:
        yield archive


def test_the_wheel_holds_the_console_and_the_samples(wheel: zipfile.ZipFile) -> None:
    held = set(wheel.namelist())
    console = ROOT / "src" / "trainshed" / "console" / "assets"
    files = [path for path in console.rglob("*") if path.is_file()]
    assert files
    assert not [path for path in files if f"trainshed/console/assets/{path.relative_to(console)}" not in held]
    beside = [name for name in held if name.startswith("trainshed/console/") and "/assets/" not in name]
    assert {Path(name).suffix for name in beside} == {".py"}  # neither types nor the settings of tools
    assert "trainshed/samples/samples.toml" in held
    assert "trainshed/samples/mnist_async/trainer/task.py" in held


def test_the_wheel_holds_no_test_code(wheel: zipfile.ZipFile) -> None:
    held = wheel.namelist()
    test_like = re.compile(r"(^|/)(tests?|testing)/|(^|/)(test_[^/]*|[^/]*_test|conftest)\.py$")
    assert [name for name in held if test_like.search(name)] == []
    modules = [name for name in held if name.endswith(".py")]
    assert len(modules) > 300
    assert [name for name in modules if b"trainshed.testing" in wheel.read(name)] == []


def test_the_wheel_says_what_it_needs(wheel: zipfile.ZipFile) -> None:
    [name] = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
    lines = wheel.read(name).decode().splitlines()
    assert {"Name: trainshed", "Version: 0.1.0", "Requires-Python: >=3.11"} <= set(lines)
    assert [line for line in lines if line.startswith("Requires-Dist: psycopg") and "extra ==" not in line] == []
    assert "Provides-Extra: postgresql" in lines
