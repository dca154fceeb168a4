"""One runtime's environment on disk: built in place under a lock, and whole only once its stamp is written."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainshed.errors import DiskFullError, FailedPreconditionError, UnavailableError
from trainshed.runtimes.catalogue import Runtime
from trainshed.runtimes.progress import BuildMeter, ProgressCallback
from trainshed.runtimes.uv import explain_failure, uv_command

_WAIT_S = 0.2  #: between two looks at a lock that another one holds
_LOOK_S = 0.5  #: between two looks at a build
_FULL = (errno.ENOSPC, errno.EDQUOT)


@dataclass(frozen=True, slots=True)
class EnvironmentDir:
    """Where the environment of one runtime lies, with the files beside it that outlive a failed build."""

    path: Path

    @property
    def python(self) -> Path:
        return self.path / "bin" / "python"

    @property
    def stamp(self) -> Path:
        """Written last. A folder without it is half-built."""
        return self.path / "complete.json"

    @property
    def lock(self) -> Path:
        return self._beside("lock")

    @property
    def news(self) -> Path:
        """What the builder last said: fraction, text, error."""
        return self._beside("news.json")

    @property
    def log(self) -> Path:
        """All that uv wrote in the last build."""
        return self._beside("log")

    def _beside(self, suffix: str) -> Path:
        return self.path.with_name(f"{self.path.name}.{suffix}")

    def ready(self) -> bool:
        """Whether it is whole, and the interpreter it was made from is still there."""
        return self.stamp.exists() and self.python.exists()

    def size(self) -> int:
        return int(_read(self.stamp).get("size", 0))

    def last_news(self) -> dict[str, Any]:
        return _read(self.news)

    def tell(self, *, fraction: float = 0.0, text: str = "", error: str = "") -> None:
        """Leave news for whoever waits, in this process or another."""
        fresh = self._beside(f"news-{os.getpid()}-{threading.get_ident()}")
        fresh.write_text(json.dumps({"fraction": fraction, "text": text, "error": error}))
        fresh.rename(self.news)

    def busy(self) -> bool:
        """Whether someone builds or removes it right now."""
        if not self.lock.exists():
            return False
        with open(self.lock, "rb") as file:
            return not _try_lock(file.fileno(), fcntl.LOCK_SH)

    def erase(self) -> None:
        """Remove the environment; the stamp first, so that it is never taken for a whole one. Needs the lock."""
        self.stamp.unlink(missing_ok=True)
        for attempt in range(10):
            try:
                shutil.rmtree(self.path)
            except FileNotFoundError:
                return
            except OSError as exc:  # the last write of a uv that was killed just now may land in between
                if exc.errno != errno.ENOTEMPTY or attempt == 9:
                    raise

    def erase_unless(self, in_use: Callable[[], bool]) -> bool:
        """Erase it and return True, or leave it whole if it is in use. Needs the lock.

        It is taken from view before the question, so that nobody can begin to use it between question and end.
        """
        hidden = self.stamp.with_suffix(".hidden")
        with contextlib.suppress(FileNotFoundError):  # half-built: nobody can use it as it is
            self.stamp.rename(hidden)
        try:
            keep = in_use()
        except BaseException:
            _show_again(hidden, self.stamp)
            raise
        if keep:
            _show_again(hidden, self.stamp)
        else:
            self.erase()
        return not keep

    @contextlib.contextmanager
    def locked(self, progress: ProgressCallback, stopping: threading.Event) -> Iterator[int]:
        """Hold the lock, having told `progress` the builder's news for as long as another one held it."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with open(self.lock, "ab") as file:
            told = (0.0, "")
            while not _try_lock(file.fileno(), fcntl.LOCK_EX):
                news = self.last_news()
                heard = (max(told[0], float(news.get("fraction", 0))), str(news.get("text", "")))
                if heard != told and not news.get("error"):
                    told = heard
                    progress(*told)
                if stopping.wait(_WAIT_S):
                    raise _stopping()
            yield file.fileno()

    @contextlib.contextmanager
    def locked_now(self) -> Iterator[None]:
        """Hold the lock without waiting for a build. `FailedPreconditionError` while there is one."""
        with open(self.lock, "ab") as file:
            for _ in range(20):  # someone's look at `busy` holds it for an instant
                if _try_lock(file.fileno(), fcntl.LOCK_EX):
                    yield
                    return
                time.sleep(0.02)
        raise FailedPreconditionError(
            f"{self.path.name} is being built. Wait until it is ready; `trainshed runtimes list` shows how far it is."
        )


def _show_again(hidden: Path, stamp: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        hidden.rename(stamp)


def build(runtime: Runtime, place: EnvironmentDir, *, tools: BuildTools, progress: ProgressCallback, lock: int) -> None:
    """Make the environment. The caller holds `lock`, which uv inherits: should this process be killed, the lock
    stays until its uv has ended too, and nobody rebuilds under a uv that still writes.

    On any error, what `progress` raises included, uv is ended and the half-built folder removed.
    """
    what = f"Building runtime {runtime.name}"
    try:
        place.erase()
        with open(place.log, "wb") as log:
            run = _Run(tools=tools, log=log.fileno(), lock=lock, what=what, log_path=place.log)
            _announce(place, progress, 0.0, f"Making an environment for Python {runtime.python}")
            run.wait(run.start("venv", "--no-config", "--no-project", "--python", tools.python, place.path))
            _install(runtime, place, run=run, progress=progress)
        os.sync()  # a power cut must not leave a stamp on files that never reached the disk
        _write_stamp(runtime, place, tools.python)
    except OSError as exc:
        error = explain_failure(what, os.strerror(exc.errno)) if exc.errno in _FULL else exc
        _clear(place, error=str(error))
        raise error from exc
    except (DiskFullError, UnavailableError) as exc:
        _clear(place, error="" if tools.stopping.is_set() else str(exc))
        raise
    except BaseException:
        _clear(place)
        raise
    place.news.unlink(missing_ok=True)
    progress(1.0, "Ready")


def _clear(place: EnvironmentDir, *, error: str = "") -> None:
    """After a failed build: give its space back, and leave word of why."""
    with contextlib.suppress(OSError):  # a disk that can't hold the news must not hide the error itself
        place.erase()
        place.news.unlink(missing_ok=True)
        if error:
            place.tell(error=error)


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildTools:
    """What builds: the uv program, the interpreter to build on, and the sign to stop."""

    uv: Path
    python: Path
    stopping: threading.Event


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """Runs uv for one build, its output going to the log."""

    tools: BuildTools
    log: int
    lock: int
    what: str
    log_path: Path

    def start(self, *arguments: str | Path) -> subprocess.Popen[bytes]:
        command = uv_command(self.tools.uv, *arguments)
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=self.log,
            stderr=self.log,
            pass_fds=(self.lock,),
            cwd="/",
            start_new_session=True,
        )

    def wait(
        self,
        process: subprocess.Popen[bytes],
        meter: BuildMeter | None = None,
        progress: ProgressCallback | None = None,
    ) -> None:
        """Until uv has ended well. It is ended early if this process stops or `progress` raises."""
        try:
            while not _ended(process):
                if self.tools.stopping.is_set():
                    raise _stopping()
                if meter and progress:
                    progress(*meter.look(process.pid))
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)  # uv and the interpreters that compile for it
                process.wait()
        if process.returncode != 0:
            raise explain_failure(self.what, self.log_path.read_text(errors="replace"))


def _install(runtime: Runtime, place: EnvironmentDir, *, run: _Run, progress: ProgressCallback) -> None:
    pins = place.path / "requirements.txt"
    pins.write_text("".join(f"{pin}\n" for pin in runtime.pins))
    site = place.path / "lib" / f"python{runtime.python}" / "site-packages"
    meter = BuildMeter(site=site, packages=len(runtime.pins), unpacked_bytes=runtime.unpacked_mb << 20)
    extent = ("--no-deps",) if runtime.resolved else ()
    process = run.start("pip", "install", "--compile-bytecode", *extent, "--python", place.python, "-r", pins)
    told: list[tuple[float, str]] = []

    def tell(fraction: float, text: str) -> None:
        if told[-1:] != [(fraction, text)]:
            told[:] = [(fraction, text)]
            _announce(place, progress, fraction, text)

    run.wait(process, meter, tell)
    for package in runtime.stands_for:
        _declare(package, site)


def _declare(package: str, site: Path) -> None:
    """Tell installers that a package is there. `tensorflow` is big, and its code is here as `tensorflow-cpu`."""
    name, _, version = package.partition("==")
    info = site / f"{name}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "INSTALLER").write_text("trainshed\n")
    (info / "RECORD").write_text("".join(f"{info.name}/{file},,\n" for file in ("METADATA", "INSTALLER", "RECORD")))


def _announce(place: EnvironmentDir, progress: ProgressCallback, fraction: float, text: str) -> None:
    place.tell(fraction=fraction, text=text)
    progress(fraction, text)


def _write_stamp(runtime: Runtime, place: EnvironmentDir, python: Path) -> None:
    stamp = {"runtime": runtime.name, "digest": runtime.digest, "python": str(python), "size": _size(place.path)}
    fresh = place.stamp.with_suffix(".new")
    fresh.write_text(json.dumps(stamp))
    fresh.rename(place.stamp)


def _ended(process: subprocess.Popen[bytes]) -> bool:
    try:
        process.wait(_LOOK_S)
    except subprocess.TimeoutExpired:
        return False
    return True


def _stopping() -> UnavailableError:
    return UnavailableError("The server is stopping; the runtime is built at the next use.")


def _try_lock(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _read(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_bytes())
    except (FileNotFoundError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def _size(folder: Path) -> int:
    """Bytes on disk below a folder; those it shares with uv's cache are counted."""
    return sum(Path(at, name).lstat().st_blocks * 512 for at, _, files in os.walk(folder) for name in files)
