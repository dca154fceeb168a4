"""Podman for tests: images and containers in a folder of their own, and a base image from Debian's packages."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

IMAGE = "localhost/trainshed-tests/python:1"
_BASE = Path(__file__).resolve().parents[3] / "samples" / "mnist_sync" / "container" / "base.sh"
_BUILD_S = 600.0

_STORAGE = """\
[storage]
driver = "{driver}"
graphroot = "{folder}/storage"
runroot = "{folder}/run"
"""
_ENGINE = """\
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "none"
tmp_dir = "{folder}/libpod"
"""


class Podman:
    """Images and containers are in `storage`, which may outlive a test run and be shared by processes: what was built
    is used again. `config` is for this one alone."""

    def __init__(self, storage: Path, config: Path) -> None:
        storage.mkdir(parents=True, exist_ok=True)
        self._config = config
        driver = "overlay" if "\toverlay\n" in Path("/proc/filesystems").read_text() and os.geteuid() == 0 else "vfs"
        (config / "storage.conf").write_text(_STORAGE.format(folder=storage.resolve(), driver=driver))
        (config / "containers.conf").write_text(_ENGINE.format(folder=storage.resolve()))
        (config / "registries.conf").write_text('unqualified-search-registries = []\nshort-name-mode = "permissive"\n')

    @property
    def env(self) -> dict[str, str]:
        """What leads Podman to this folder, in a server or in a shell."""
        return {
            "CONTAINERS_STORAGE_CONF": str(self._config / "storage.conf"),
            "CONTAINERS_CONF": str(self._config / "containers.conf"),
            "CONTAINERS_REGISTRIES_CONF": str(self._config / "registries.conf"),
        }

    def __call__(self, *words: str, stdin: str = "") -> str:
        """Run a command, which must succeed. What it printed."""
        return self._run(["podman", *words], stdin)

    def trust(self, address: str) -> None:
        """Pull from the registry there without TLS."""
        with (self._config / "registries.conf").open("a") as out:
            out.write(f'\n[[registry]]\nlocation = "{address}"\ninsecure = true\n')

    def _run(self, argv: list[str], stdin: str = "") -> str:
        env = {**os.environ, **self.env}
        done = subprocess.run(argv, env=env, input=stdin, capture_output=True, text=True, timeout=_BUILD_S)
        assert done.returncode == 0, f"{argv}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
        return done.stdout

    def base(self) -> str:
        """The name of an image that holds Python and a shell, from Debian's packages. Made on first use."""
        self._run(["bash", str(_BASE), IMAGE])
        return IMAGE

    def containers(self, job: str = "") -> list[dict[str, Any]]:
        """All that there are, running or not, of a job `PROJECT/JOB` if one is named."""
        found: list[dict[str, Any]] = json.loads(self("ps", "--all", "--format", "json") or "[]") or []
        names = [(each, (each.get("Labels") or {}).get("trainshed.job", "")) for each in found]
        return [each for each, name in names if name.startswith(f"{job}/" if job else "")]
