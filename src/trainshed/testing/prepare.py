"""Builds what tests share: runtimes, Ray, JupyterLab, models and the base image of containers, all in `.cache`.

It also compiles the test modules, which pytest otherwise does again in each of its processes.

Idempotent.

python -m trainshed.testing.prepare
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from pathlib import Path

import click

from trainshed.config import environment
from trainshed.domain.names import RAY_ENGINE
from trainshed.runtimes.catalogue import CATALOGUE, NOTEBOOK, Runtime
from trainshed.runtimes.environments import Runtimes
from trainshed.runtimes.find_links import find_links
from trainshed.runtimes.pythons import Pythons
from trainshed.runtimes.uv import find_uv
from trainshed.testing.cache import CACHE, CONTAINERS, RUNTIMES
from trainshed.testing.clusters.containers import Podman
from trainshed.testing.clusters.ray import PYTHON, RAY_VERSION, ray_environment
from trainshed.testing.workloads.saved_models import saved_models
from trainshed.wiring.ray import ray_runtime

_OPTIONAL = {"runtime torch"}  #: its PyTorch is not on every index; the tests that need it are skipped then
_UNTESTED = ("torch-cuda",)  #: runtimes that no test uses
_AT_ONCE = 2  #: builds unpack wheels, which occupies a core each


def steps() -> Mapping[str, Callable[[], object]]:
    """Return the builds by name, the longest first. Runtimes whose Python is unavailable are left out."""
    uv = find_uv()
    pythons = Pythons(uv)
    tested = [runtime for name, runtime in CATALOGUE.items() if name not in _UNTESTED]
    runtimes = [*tested, NOTEBOOK, ray_runtime(RAY_VERSION, PYTHON)]
    available = [each for each in runtimes if pythons.can_be_had(each.python)]
    names = {RAY_ENGINE: "bridge to Ray"}
    builds: dict[str, Callable[[], object]] = {
        names.get(each.name, f"runtime {each.name}"): _runtime_build(each, uv, pythons)
        for each in sorted(available, key=lambda each: -each.unpacked_mb)
    }
    return builds | {
        "Ray cluster": lambda: ray_environment(RUNTIMES),
        "models": saved_models,
        "base image": _build_base_image,
        "test modules": _compile_tests,
    }


def prepare(builds: Mapping[str, Callable[[], object]], tell: Callable[[str], None]) -> list[str]:
    """Run all builds, a few at a time, and tell of each one's end. Returns the names of those that failed."""
    failed: list[str] = []
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        running: dict[Future[float], str] = {threads.submit(_timed, run): name for name, run in builds.items()}
        for count, done in enumerate(as_completed(running), 1):
            name, problem = running[done], done.exception()
            outcome = f"failed: {problem}" if problem else f"ready after {done.result():.1f} s"
            tell(f"[{count}/{len(running)}] {name}: {outcome}")
            failed += [name] if problem else []
    return failed


def _timed(run: Callable[[], object]) -> float:
    began = time.monotonic()
    run()
    return time.monotonic() - began


def _runtime_build(runtime: Runtime, uv: Path, pythons: Pythons) -> Callable[[], object]:
    links = find_links("", environment())
    runtimes = Runtimes(RUNTIMES, uv, pythons=pythons, catalogue={runtime.name: runtime}, find_links=links)
    return lambda: runtimes.ensure(runtime.name, lambda fraction, text: None)


def _build_base_image() -> None:
    with tempfile.TemporaryDirectory() as config:
        Podman(CONTAINERS, Path(config)).base()


def _compile_tests() -> None:
    command = [sys.executable, "-m", "pytest", "--collect-only", "-qq"]
    subprocess.run(command, cwd=CACHE.parent, check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    sys.exit(bool(set(prepare(steps(), click.echo)) - _OPTIONAL))
