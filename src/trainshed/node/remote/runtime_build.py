"""Builds runtimes on a node with uv, from the pinned requirements in the spec.

The folders have the layout of `trainshed.runtimes` on a server, so the two can share a disk.
"""

from __future__ import annotations

import fcntl
import glob
import json
import os
import shutil
import subprocess
import sys
import time

from ..files import write_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

STAMP = "complete.json"  #: written last. A folder without it is incomplete
_POLL_INTERVAL_S = 0.5
_PROGRESS_STEP = 0.1  #: share of the build between two progress lines
_FOREIGN_VARIABLES = (
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
    "PYTHONHOME",
    "PYTHONPATH",
    "UV_PROJECT",
    "UV_PYTHON",
    "UV_SYSTEM_PYTHON",
)
_OUTPUT_MAX_CHARS = 3000


class NodeSetupError(Exception):
    """The node can't be set up. The message is the reason."""


class RuntimeBuildError(NodeSetupError):
    """The runtime can't be built here. The message has the reason and a remedy."""


def find_uv(cache: str, log: Callable[[str], None]) -> str:
    """Path of uv on this node. Downloads it into `cache` if it is missing. Raises `RuntimeBuildError` if that fails."""
    folder = os.path.join(cache, "uv")
    installed = os.path.join(folder, "bin", "uv")
    for path in (os.path.join(os.path.dirname(sys.executable), "uv"), shutil.which("uv"), installed):
        if path and os.path.isfile(path):
            return path
    log("uv is not on this node: it is fetched.")
    os.makedirs(cache, mode=0o700, exist_ok=True)
    draft = "%s-%d" % (folder, os.getpid())
    error = ""
    for python in dict.fromkeys((sys.executable, os.path.join(sys.base_prefix, "bin", "python3"), "python3")):
        error = _pip_install(python, draft)
        if not error:
            break
    else:
        shutil.rmtree(draft, ignore_errors=True)
        raise RuntimeBuildError(
            "The program uv, which builds the environments of jobs, is not on this node, and can't be fetched: install "
            "it there with `python -m pip install uv`. pip said: %s" % error[-500:]
        )
    try:
        os.rename(draft, folder)
    except OSError:  # another replica was faster
        shutil.rmtree(draft, ignore_errors=True)
    return installed


def _pip_install(python: str, target: str) -> str:
    """Install uv with the pip of a Python. Returns pip's output if that fails."""
    command = [python, "-m", "pip", "install", "--quiet", "--target", target, "uv"]
    try:
        process = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
        )
    except OSError as exc:
        return "%s: %s" % (python, exc.strerror)
    return (process.stdout.decode("utf-8", "replace") or "nothing") if process.returncode != 0 else ""


def ensure(folder: str, runtime: dict[str, Any], uv: Callable[[], str], log: Callable[[str], None]) -> str:
    """Path of the runtime's interpreter. Builds the runtime if it is missing, or waits for another process that does.

    `uv` is called only if a build is needed.
    """
    target = os.path.join(folder, runtime["key"])
    python = os.path.join(target, "bin", "python")
    if _is_complete(target, python):
        return python
    os.makedirs(folder, mode=0o700, exist_ok=True)
    with open(target + ".lock", "ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            log("Runtime %s is being built on this node. Waiting for it." % runtime["name"])
            fcntl.flock(lock, fcntl.LOCK_EX)
        if not _is_complete(target, python):
            _build(target, python, runtime, _Uv(uv(), lock.fileno(), log))
    return python


def _is_complete(folder: str, python: str) -> bool:
    return os.path.exists(os.path.join(folder, STAMP)) and os.path.exists(python)


def _build(folder: str, python: str, runtime: dict[str, Any], uv: _Uv) -> None:
    if os.path.isdir(folder):
        shutil.rmtree(folder)
    uv.say("Runtime %s is built on this node, once for all jobs." % runtime["name"])
    try:
        uv.run(["venv", "--no-config", "--no-project", "--python", _interpreter(runtime["python"]), folder])
        pins = os.path.join(folder, "requirements.txt")
        with open(pins, "w") as out:
            out.write(runtime["lock"])
        names = [line for line in runtime["lock"].split("\n") if line.partition("#")[0].strip()]
        site = os.path.join(folder, "lib", "python%s" % runtime["python"], "site-packages")
        progress = _ProgressReporter(site, len(names), "Runtime %s is built on this node" % runtime["name"], uv.say)
        uv.run(["pip", "install", "--compile-bytecode", "--no-deps", "--python", python, "-r", pins], progress)
        for package in runtime.get("stands_for", ()):
            _declare(package, site)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    os.sync()  # else a power cut may leave the stamp without the files
    stamp = {"runtime": runtime["name"], "key": runtime["key"], "python": python}
    write_file(os.path.join(folder, STAMP), json.dumps(stamp).encode())


def _interpreter(version: str) -> str:
    """This Python if the version matches. Otherwise uv finds or downloads one."""
    path = os.path.join(sys.base_prefix, "bin", "python%s" % version)
    if version == "%d.%d" % sys.version_info[:2] and os.path.exists(path):
        return path
    return version


def _declare(package: str, site: str) -> None:
    """Write metadata for a package whose code another package contains, so that installers see it."""
    name, _, version = package.partition("==")
    info = os.path.join(site, "%s-%s.dist-info" % (name, version))
    os.mkdir(info)
    files = {
        "METADATA": "Metadata-Version: 2.1\nName: %s\nVersion: %s\n" % (name, version),
        "INSTALLER": "trainshed\n",
        "RECORD": "".join("%s/%s,,\n" % (os.path.basename(info), file) for file in ("METADATA", "INSTALLER", "RECORD")),
    }
    for file, content in files.items():
        with open(os.path.join(info, file), "w") as out:
            out.write(content)


class _ProgressReporter:
    """Logs how many packages are installed."""

    def __init__(self, site: str, packages: int, what: str, say: Callable[[str], None]) -> None:
        self._pattern = os.path.join(glob.escape(site), "*.dist-info")
        self._packages = max(packages, 1)
        self._subject = what
        self._say = say
        self._reported = 0.0

    def look(self) -> None:
        installed = len(glob.glob(self._pattern))
        if installed / self._packages - self._reported >= _PROGRESS_STEP:
            self._reported = installed / self._packages
            self._say("%s: %d of %d packages." % (self._subject, installed, self._packages))


class _Uv:
    """Runs uv. uv inherits the lock: if this process is killed, no other builds while uv still writes."""

    def __init__(self, path: str, lock: int, say: Callable[[str], None]) -> None:
        self._path = path
        self._lock = lock
        self.say = say

    def run(self, arguments: list[str], meter: Any = None) -> None:
        """Run uv to its end. Raises `RuntimeBuildError` with uv's last output if it fails."""
        env = {name: value for name, value in os.environ.items() if name not in _FOREIGN_VARIABLES}
        env.update(NO_COLOR="1", UV_NO_PROGRESS="1", TRAINSHED_BUILDING="1")
        process = subprocess.Popen(
            [self._path, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=(self._lock,),
            env=env,
            cwd="/",
        )
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        output = b""
        while process.poll() is None:
            output += process.stdout.read() or b""
            if meter is not None:
                meter.look()
            time.sleep(_POLL_INTERVAL_S if meter is not None else 0.02)
        output += process.stdout.read() or b""
        process.stdout.close()
        if process.returncode != 0:
            tail = output.decode("utf-8", "replace").strip()[-_OUTPUT_MAX_CHARS:]
            raise RuntimeBuildError(
                "The runtime can't be built on this node. Check its network, or name a package index that it can reach "
                "with UV_DEFAULT_INDEX in the environment of `ray start`. uv said: %s" % tail
            )
