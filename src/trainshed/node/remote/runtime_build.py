"""Runtimes on a node that has nothing of ours installed: built by uv from the pins that come with the order.

The folders are those that `trainshed.runtimes` makes on a server, so the two can share a disk.
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

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

STAMP = "complete.json"  #: written last. A folder without it is half-built
_LOOK_S = 0.5
_TOLD_EVERY = 0.1  #: of a build, between two lines about it
_FOREIGN = ("VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONHOME", "PYTHONPATH", "UV_PROJECT", "UV_PYTHON", "UV_SYSTEM_PYTHON")
_LAST_WORDS = 3000


class NodeSetupError(Exception):
    """A node can't be got ready. The text says why."""


class RuntimeBuildError(NodeSetupError):
    """The runtime can't be built here. The text says why, and what to do."""


def find_uv(cache: str, say: Callable[[str], None]) -> str:
    """The uv of this node; if it has none, one that is fetched into `cache`. `RuntimeBuildError` if it can't be."""
    own = os.path.join(cache, "uv")
    installed = os.path.join(own, "bin", "uv")
    for path in (os.path.join(os.path.dirname(sys.executable), "uv"), shutil.which("uv"), installed):
        if path and os.path.isfile(path):
            return path
    say("uv is not on this node: it is fetched.")
    os.makedirs(cache, mode=0o700, exist_ok=True)
    draft = "%s-%d" % (own, os.getpid())
    said = ""
    for python in dict.fromkeys((sys.executable, os.path.join(sys.base_prefix, "bin", "python3"), "python3")):
        said = _pip_install(python, draft)
        if not said:
            break
    else:
        shutil.rmtree(draft, ignore_errors=True)
        raise RuntimeBuildError(
            "The program uv, which builds the environments of jobs, is not on this node, and can't be fetched: install "
            "it there with `python -m pip install uv`. pip said: %s" % said[-500:]
        )
    try:
        os.rename(draft, own)
    except OSError:  # another replica was faster
        shutil.rmtree(draft, ignore_errors=True)
    return installed


def _pip_install(python: str, target: str) -> str:
    """Have the pip of a Python fetch uv. What it said, if that failed."""
    command = [python, "-m", "pip", "install", "--quiet", "--target", target, "uv"]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
        )
    except OSError as exc:
        return "%s: %s" % (python, exc.strerror)
    return (done.stdout.decode("utf-8", "replace") or "nothing") if done.returncode != 0 else ""


def ensure(folder: str, runtime: dict[str, Any], uv: Callable[[], str], say: Callable[[str], None]) -> str:
    """The interpreter of the runtime, which is built first if it is not there, or waited for if another builds it.

    `uv` is asked for the program only if it is needed.
    """
    place = os.path.join(folder, runtime["key"])
    python = os.path.join(place, "bin", "python")
    if _ready(place, python):
        return python
    os.makedirs(folder, mode=0o700, exist_ok=True)
    with open(place + ".lock", "ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("Runtime %s is being built on this node. Waiting for it." % runtime["name"])
            fcntl.flock(lock, fcntl.LOCK_EX)
        if not _ready(place, python):
            _build(place, python, runtime, _Uv(uv(), lock.fileno(), say))
    return python


def _ready(place: str, python: str) -> bool:
    return os.path.exists(os.path.join(place, STAMP)) and os.path.exists(python)


def _build(place: str, python: str, runtime: dict[str, Any], uv: _Uv) -> None:
    if os.path.isdir(place):
        shutil.rmtree(place)
    uv.say("Runtime %s is built on this node, once for all jobs." % runtime["name"])
    try:
        uv.run(["venv", "--no-config", "--no-project", "--python", _interpreter(runtime["python"]), place])
        pins = os.path.join(place, "requirements.txt")
        with open(pins, "w") as out:
            out.write(runtime["lock"])
        names = [line for line in runtime["lock"].split("\n") if line.partition("#")[0].strip()]
        site = os.path.join(place, "lib", "python%s" % runtime["python"], "site-packages")
        meter = _Meter(site, len(names), "Runtime %s is built on this node" % runtime["name"], uv.say)
        uv.run(["pip", "install", "--compile-bytecode", "--no-deps", "--python", python, "-r", pins], meter)
        for package in runtime.get("stands_for", ()):
            _declare(package, site)
    except BaseException:
        shutil.rmtree(place, ignore_errors=True)
        raise
    os.sync()  # a power cut must not leave a stamp on files that never reached the disk
    draft = os.path.join(place, STAMP + ".new")
    with open(draft, "w") as out:
        json.dump({"runtime": runtime["name"], "key": runtime["key"], "python": python}, out)
    os.rename(draft, os.path.join(place, STAMP))


def _interpreter(version: str) -> str:
    """The Python that this runs on, if it is the right one; else uv finds or fetches one."""
    own = os.path.join(sys.base_prefix, "bin", "python%s" % version)
    if version == "%d.%d" % sys.version_info[:2] and os.path.exists(own):
        return own
    return version


def _declare(package: str, site: str) -> None:
    """Tell installers that a package is there, whose code another package holds."""
    name, _, version = package.partition("==")
    info = os.path.join(site, "%s-%s.dist-info" % (name, version))
    os.mkdir(info)
    files = {
        "METADATA": "Metadata-Version: 2.1\nName: %s\nVersion: %s\n" % (name, version),
        "INSTALLER": "trainshed\n",
        "RECORD": "".join("%s/%s,,\n" % (os.path.basename(info), file) for file in ("METADATA", "INSTALLER", "RECORD")),
    }
    for file, text in files.items():
        with open(os.path.join(info, file), "w") as out:
            out.write(text)


class _Meter:
    """Tells how many packages are in place."""

    def __init__(self, site: str, packages: int, what: str, say: Callable[[str], None]) -> None:
        self._pattern = os.path.join(glob.escape(site), "*.dist-info")
        self._packages = max(packages, 1)
        self._what = what
        self._say = say
        self._told = 0.0

    def look(self) -> None:
        done = len(glob.glob(self._pattern))
        if done / self._packages - self._told >= _TOLD_EVERY:
            self._told = done / self._packages
            self._say("%s: %d of %d packages." % (self._what, done, self._packages))


class _Uv:
    """Runs uv. It inherits the lock: should this process be killed, nobody rebuilds under a uv that still writes."""

    def __init__(self, path: str, lock: int, say: Callable[[str], None]) -> None:
        self._path = path
        self._lock = lock
        self.say = say

    def run(self, arguments: list[str], meter: Any = None) -> None:
        """Until it has ended well. `RuntimeBuildError`, with its last words, if it fails."""
        env = {name: value for name, value in os.environ.items() if name not in _FOREIGN}
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
            time.sleep(_LOOK_S if meter is not None else 0.02)
        output += process.stdout.read() or b""
        process.stdout.close()
        if process.returncode != 0:
            said = output.decode("utf-8", "replace").strip()[-_LAST_WORDS:]
            raise RuntimeBuildError(
                "The runtime can't be built on this node. Check its network, or name a package index that it can reach "
                "with UV_DEFAULT_INDEX in the environment of `ray start`. uv said: %s" % said
            )
