"""Podman and Docker for tests: images and containers in their own folders, a base image from Debian's packages."""

from __future__ import annotations

import json
import os
import subprocess
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from trainshed.testing.eventually import eventually

IMAGE = "localhost/trainshed-tests/python:1"
_BASE = Path(__file__).resolve().parents[4] / "samples" / "mnist_sync" / "container" / "base.sh"
_COMMAND_TIMEOUT_S = 600.0
_STOP_TIMEOUT_S = 60.0
_BRIDGE_ADDRESS = "10.231.254.1/24"  #: of Docker; no other test uses this network

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
ANSWERS = """
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Answers(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, status, body, kind="application/json"):
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def body(self):
        return self.rfile.read(int(self.headers["content-length"] or 0))

    def log_message(self, *args):
        pass
"""


class Podman:
    """Podman with its own storage.

    Images and containers are in `storage`, which may outlive a test run and be shared by processes, so images are built
    once. `config` is for this instance alone.
    """

    kind = "podman"

    def __init__(self, storage: Path, config: Path) -> None:
        storage.mkdir(parents=True, exist_ok=True)
        self._config = config
        driver = "overlay" if "\toverlay\n" in Path("/proc/filesystems").read_text() and os.geteuid() == 0 else "vfs"
        (config / "storage.conf").write_text(_STORAGE.format(folder=storage.resolve(), driver=driver))
        (config / "containers.conf").write_text(_ENGINE.format(folder=storage.resolve()))
        (config / "registries.conf").write_text('unqualified-search-registries = []\nshort-name-mode = "permissive"\n')

    @property
    def env(self) -> dict[str, str]:
        """The variables that point Podman to this folder, for a server or a shell."""
        return {
            "CONTAINERS_STORAGE_CONF": str(self._config / "storage.conf"),
            "CONTAINERS_CONF": str(self._config / "containers.conf"),
            "CONTAINERS_REGISTRIES_CONF": str(self._config / "registries.conf"),
        }

    def __call__(self, *words: str, stdin: str = "") -> str:
        """Run a command, which must succeed. Returns its output."""
        return _run(["podman", *words], self.env, stdin)

    def trust(self, address: str) -> None:
        """Allow pulls from the registry at `address` without TLS."""
        with (self._config / "registries.conf").open("a") as out:
            out.write(f'\n[[registry]]\nlocation = "{address}"\ninsecure = true\n')

    def base(self) -> str:
        """Return an image with Python and a shell, from Debian's packages. Builds it at the first use."""
        _run(["bash", str(_BASE), IMAGE], self.env)
        return IMAGE

    def pinned(self, image: str) -> str:
        """Return the name of a local image by digest."""
        return f"localhost/{image}@{self('image', 'inspect', '--format', '{{.Digest}}', image).strip()}"

    def containers(self, job: str = "") -> list[dict[str, Any]]:
        """List all containers, running or not, or those of a job `PROJECT/JOB`."""
        items: list[dict[str, Any]] = json.loads(self("ps", "--all", "--format", "json") or "[]") or []
        names = [(each, (each.get("Labels") or {}).get("trainshed.job", "")) for each in items]
        return [each for each, name in names if name.startswith(f"{job}/" if job else "")]


class Docker:
    """A Docker daemon with its own images and containers, started by `with`. The base image comes from Podman."""

    kind = "docker"

    def __init__(self, folder: Path, podman: Podman) -> None:
        self._folder = folder
        self._podman = podman
        self._daemon: subprocess.Popen[bytes]

    def __enter__(self) -> Self:
        words = [f"--data-root={self._folder}/data", f"--exec-root={self._folder}/exec", f"--bip={_BRIDGE_ADDRESS}"]
        words += [f"--pidfile={self._folder}/pid", f"--host={self.env['DOCKER_HOST']}"]
        with (self._folder / "log").open("wb") as log:
            self._daemon = subprocess.Popen(["dockerd", *words], stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        argv, env = ["docker", "info"], {**os.environ, **self.env}
        eventually(lambda: subprocess.run(argv, env=env, capture_output=True).returncode, lambda code: code == 0)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._daemon.terminate()
        try:
            self._daemon.wait(_STOP_TIMEOUT_S)
        finally:
            self._daemon.kill()
            subprocess.run(["ip", "link", "delete", "docker0"], capture_output=True, check=False)
            subprocess.run(["umount", self._folder / "exec/netns/default"], capture_output=True, check=False)

    @property
    def env(self) -> dict[str, str]:
        """The variables that point Docker to this daemon, for a server or a shell."""
        own = {"DOCKER_HOST": f"unix://{self._folder}/socket", "DOCKER_CONFIG": str(self._folder)}
        return own | {"DOCKER_BUILDKIT": "0"}  # Debian has no package of BuildKit

    def __call__(self, *words: str, stdin: str = "") -> str:
        """Run a command, which must succeed. Returns its output."""
        return _run(["docker", *words], self.env, stdin)

    def trust(self, address: str) -> None:
        """Do nothing: Docker pulls from loopback without TLS."""

    def base(self) -> str:
        """Return the same image as Podman's, from which it is loaded."""
        with suppress(AssertionError):
            self("image", "inspect", IMAGE)
            return IMAGE
        archive = self._folder / "base.tar"
        self._podman("save", "--format", "docker-archive", "--output", str(archive), self._podman.base())
        self("load", "--input", str(archive))
        archive.unlink()
        return IMAGE

    def pinned(self, image: str) -> str:
        """Return the tag: an image of Docker has a digest only if it was pulled."""
        return f"{image}:latest"

    def containers(self, job: str = "") -> list[dict[str, Any]]:
        """List containers, as Podman does."""
        items = [self._container(name) for name in self("ps", "--all", "--quiet", "--no-trunc").split()]
        names = [(each, each["Labels"].get("trainshed.job", "")) for each in items if each]
        return [each for each, name in names if name.startswith(f"{job}/" if job else "")]

    def _container(self, name: str) -> dict[str, Any]:
        """Return what tests read of a container. Empty if it was removed."""
        with suppress(AssertionError):
            [about] = json.loads(self("container", "inspect", name))
            labels, pid = about["Config"]["Labels"], about["State"]["Pid"]
            return {"Id": about["Id"], "Names": [about["Name"].lstrip("/")], "Labels": labels, "Pid": pid}
        return {}


def _run(argv: list[str], env: dict[str, str], stdin: str = "") -> str:
    environment = {**os.environ, **env}
    result = subprocess.run(
        argv, env=environment, input=stdin, capture_output=True, text=True, timeout=_COMMAND_TIMEOUT_S
    )
    assert result.returncode == 0, f"{argv}\n{result.stdout[-2000:]}\n{result.stderr[-2000:]}"
    return result.stdout
