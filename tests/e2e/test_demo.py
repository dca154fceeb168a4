"""`trainshed demo` from a wheel, in an empty environment: interrupted, resumed, repeated, failed, removed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from trainshed.local.demo import MARKER
from trainshed.runtimes.uv import find_uv
from trainshed.testing.eventually import eventually
from trainshed.testing.workloads.digits import MNIST, write_part

ROOT = Path(__file__).parents[2]
DIGITS = [7, 2, 1, 0, 4, 1, 4, 9, 5, 9]


@dataclass(frozen=True)
class Installed:
    """A Trainshed that was installed from a wheel, and a user with an empty home folder."""

    venv: Path
    user: Path

    @property
    def samples(self) -> Path:
        [site] = self.venv.glob("lib/python*/site-packages")
        return site / "trainshed" / "samples"

    @property
    def home(self) -> Path:
        return self.user / ".trainshed-demo"

    @property
    def env(self) -> dict[str, str]:
        clean = {key: value for key, value in os.environ.items() if not key.startswith(("TRAINSHED_", "PYTHON"))}
        path = f"{self.venv / 'bin'}{os.pathsep}{os.environ['PATH']}"
        return clean | {"HOME": str(self.user), "PATH": path, "UV_CACHE_DIR": uv_cache()}

    def start(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [self.venv / "bin" / "trainshed", "demo", *words],
            env=self.env,
            cwd=self.user,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        process = self.start(*words)
        stdout, stderr = process.communicate(timeout=800)
        return subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)

    def processes(self) -> list[psutil.Process]:
        """All whose command line, folder or environment is about the demo's state folder."""
        return [process for process in psutil.process_iter() if str(self.home) in _traces(process)]


def _traces(process: psutil.Process) -> str:
    try:
        return " ".join([*process.cmdline(), process.cwd(), *process.environ().values()])
    except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
        return ""


def uv_cache() -> str:
    done = subprocess.run([find_uv(), "cache", "dir"], capture_output=True, text=True, check=True, timeout=60)
    return done.stdout.strip()


@pytest.fixture(scope="module")
def venv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel and what it needs, and no checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    uv, environment = str(find_uv()), folder / "venv"
    subprocess.run([uv, "build", "--wheel", "--quiet", "--out-dir", folder, ROOT], check=True, timeout=280)
    [wheel] = folder.glob("*.whl")
    subprocess.run([uv, "venv", "--quiet", environment], check=True, timeout=280)
    python = environment / "bin" / "python"
    subprocess.run([uv, "pip", "install", "--quiet", "--python", python, wheel], check=True, timeout=280)
    return environment


@pytest.fixture
def installed(venv: Path, tmp_path: Path) -> Iterator[Installed]:
    found = Installed(venv, tmp_path / "user")
    found.user.mkdir()
    yield found
    if found.home.exists():
        assert found.run("--clean").returncode == 0


@pytest.fixture
def few_images(installed: Installed) -> Iterator[None]:
    """A part of MNIST in place of the whole, which test_the_whole_demo_with_its_runtime_from_nothing has."""
    mnist = installed.samples / "data" / "mnist"
    for path in mnist.glob("*.gz"):
        path.unlink()  # uv links files to its cache
    write_part(mnist, train=2000, test=500)
    yield
    shutil.copytree(MNIST, mnist, dirs_exist_ok=True)


def share_runtimes(installed: Installed, python: Path) -> None:
    """Use the runtimes of the checkout's tests: building one takes minutes."""
    installed.home.mkdir()
    (installed.home / MARKER).touch()
    (installed.home / "runtimes").symlink_to(python.parents[2])


def assert_gone(installed: Installed) -> None:
    assert not installed.home.exists()
    eventually(installed.processes, lambda found: not found, within_s=120)


def interrupt_in_training(installed: Installed, job: str, *words: str) -> str:
    """Start the demo and send SIGINT once its job runs. Returns what it wrote to stderr."""
    process = installed.start(*words)
    journal = installed.home / "jobs" / "trainshed" / job / "1" / "journal.jsonl"
    eventually(lambda: (journal.exists(), process.poll()), lambda found: found != (False, None), within_s=600)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=120)
    assert process.returncode == 130, stderr
    return stderr


@pytest.mark.timeout(1200)
@pytest.mark.usefixtures("few_images")
def test_the_demo_is_interrupted_resumed_repeated_without_its_server_and_removed(
    installed: Installed, runtime_python: Path
) -> None:
    share_runtimes(installed, runtime_python)
    said = interrupt_in_training(installed, "mnist_1", "--steps", "20")
    assert "Its server goes on" in said
    assert "\n  trainshed demo --steps 20\n" in said
    assert "\n  trainshed demo --clean\n" in said

    resumed = installed.run("--steps", "20", "--format", "json")
    assert resumed.returncode == 0, resumed.stderr
    first: dict[str, Any] = json.loads(resumed.stdout)
    assert (first["job"], first["model"], first["version"]) == ("mnist_1", "MNIST", "v1")
    assert 0.2 < first["accuracy"] <= 1.0
    assert first["labels"] == DIGITS
    assert len(first["predictions"]) == 10
    assert first["console_url"].startswith(f"{first['server_url']}/console/enter?code=")
    assert set(first["seconds"]) == {
        *("server", "data", "runtime", "training", "deployment", "prediction", "total"),
    }

    os.kill(json.loads((installed.home / "server.json").read_text())["pid"], signal.SIGKILL)
    repeated = installed.run("--steps", "20")
    assert repeated.returncode == 0, repeated.stderr
    assert repeated.stderr.count("done before") == 4
    assert f"Accuracy on 10,000 test images: {first['accuracy']:.1%} after 20 steps." in repeated.stdout
    assert f"The model predicts:  {' '.join(map(str, first['predictions']))}\n" in repeated.stdout
    [line] = [line.partition(": ")[2] for line in repeated.stdout.splitlines() if " predict " in line]
    asked = subprocess.run(["sh", "-c", line], env=installed.env, capture_output=True, text=True, timeout=120)
    assert asked.returncode == 0, asked.stderr
    assert "PROBABILITIES" in asked.stdout

    assert installed.processes()
    cleaned = installed.run("--clean")
    assert (cleaned.returncode, cleaned.stdout) == (0, "")
    assert "Stopped its server." in cleaned.stderr
    assert f"Removed {installed.home}" in cleaned.stderr
    assert_gone(installed)
    assert runtime_python.exists()  # the link to it is gone, and nothing behind the link


@pytest.mark.timeout(1200)
@pytest.mark.usefixtures("few_images")
def test_a_failed_training_is_explained_and_the_next_run_trains_again(
    installed: Installed, runtime_python: Path
) -> None:
    share_runtimes(installed, runtime_python)
    task = installed.samples / "mnist_async" / "trainer" / "task.py"
    good = task.read_text()
    task.unlink()  # uv links files to its cache
    try:
        task.write_text('raise SystemExit("The sample has been tampered with.")\n')
        failed = installed.run("--steps", "5")
    finally:
        task.write_text(good)
    assert (failed.returncode, failed.stdout) == (1, "")
    assert "[4/6] Train on four replicas: failed after" in failed.stderr
    assert "ERROR: (trainshed.demo) Job mnist_1 is FAILED: " in failed.stderr
    assert "The sample has been tampered with." in failed.stderr
    assert f"The whole log: TRAINSHED_HOME={installed.home} trainshed jobs logs mnist_1" in failed.stderr
    assert f"The server's log: {installed.home}/server.log" in failed.stderr
    assert "To go on: trainshed demo --steps 5" in failed.stderr

    interrupt_in_training(installed, "mnist_2", "--steps", "100000")
    cleaned = installed.run("--clean")
    assert cleaned.returncode == 0, cleaned.stderr
    assert "Ended its job mnist_2." in cleaned.stderr
    assert_gone(installed)


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_the_whole_demo_with_its_runtime_from_nothing(installed: Installed) -> None:
    done = installed.run("--format", "json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["accuracy"] > 0.95
    assert result["predictions"] == DIGITS
    assert "[3/6] Install TensorFlow: " in done.stderr
    assert installed.run("--clean").returncode == 0
    assert_gone(installed)
