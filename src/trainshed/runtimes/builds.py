"""The environment of one runtime on disk. It is built in place under a lock, and complete once its stamp is written."""

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
from trainshed.node.files import write_file
from trainshed.runtimes.catalogue import Runtime
from trainshed.runtimes.keras_data import accept_mirrored_data
from trainshed.runtimes.progress import BuildMeter, ProgressCallback
from trainshed.runtimes.uv import explain_failure, uv_command

_LOCK_POLL_INTERVAL_S = 0.2  #: while another process holds the lock
_BUILD_POLL_INTERVAL_S = 0.5  #: while uv runs
_DISK_FULL_ERRNOS = (errno.ENOSPC, errno.EDQUOT)


@dataclass(frozen=True, slots=True)
class EnvironmentDir:
    """The folder of one runtime's environment, and the files beside it that survive a failed build."""

    path: Path

    @property
    def python(self) -> Path:
        return self.path / "bin" / "python"

    def site(self, python: str) -> Path:
        """The folder of its packages, for a Python as major.minor."""
        return self.path / "lib" / f"python{python}" / "site-packages"

    @property
    def stamp(self) -> Path:
        """Written last. A folder without it is incomplete."""
        return self.path / "complete.json"

    @property
    def lock(self) -> Path:
        return self._beside("lock")

    @property
    def news(self) -> Path:
        """The builder's last progress report: fraction, text, error."""
        return self._beside("news.json")

    @property
    def log(self) -> Path:
        """The output of uv in the last build."""
        return self._beside("log")

    def _beside(self, suffix: str) -> Path:
        return self.path.with_name(f"{self.path.name}.{suffix}")

    def ready(self) -> bool:
        """Whether it is complete and its base interpreter still exists."""
        return self.stamp.exists() and self.python.exists()

    def size(self) -> int:
        return int(_read(self.stamp).get("size", 0))

    def last_news(self) -> dict[str, Any]:
        return _read(self.news)

    def tell(self, *, fraction: float = 0.0, text: str = "", error: str = "") -> None:
        """Write a progress report for waiting callers, in this process or another."""
        write_file(self.news, json.dumps({"fraction": fraction, "text": text, "error": error}).encode())

    def busy(self) -> bool:
        """Whether a process builds or removes it now."""
        if not self.lock.exists():
            return False
        with open(self.lock, "rb") as file:
            return not _try_lock(file.fileno(), fcntl.LOCK_SH)

    def erase(self) -> None:
        """Remove the environment. The stamp goes first, so a partial one never looks complete. Needs the lock."""
        self.stamp.unlink(missing_ok=True)
        for attempt in range(10):
            try:
                shutil.rmtree(self.path)
            except FileNotFoundError:
                return
            except OSError as exc:  # a last write of a uv that was just killed can race with this
                if exc.errno != errno.ENOTEMPTY or attempt == 9:
                    raise

    def erase_unless(self, in_use: Callable[[], bool]) -> bool:
        """Remove it unless it is in use. Returns whether it was removed. Needs the lock.

        The stamp is hidden before `in_use` is called, so that nobody can start to use the environment in between.
        """
        hidden = self.stamp.with_suffix(".hidden")
        with contextlib.suppress(FileNotFoundError):  # incomplete: cannot be in use
            self.stamp.rename(hidden)
        try:
            keep = in_use()
        except BaseException:
            _restore_stamp(hidden, self.stamp)
            raise
        if keep:
            _restore_stamp(hidden, self.stamp)
        else:
            self.erase()
        return not keep

    @contextlib.contextmanager
    def locked(self, progress: ProgressCallback, stopping: threading.Event) -> Iterator[int]:
        """Take the lock. While another process holds it, forward its progress reports to `progress`."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with open(self.lock, "ab") as file:
            last = (0.0, "")
            while not _try_lock(file.fileno(), fcntl.LOCK_EX):
                status = self.last_news()
                current = (max(last[0], float(status.get("fraction", 0))), str(status.get("text", "")))
                if current != last and not status.get("error"):
                    last = current
                    progress(*last)
                if stopping.wait(_LOCK_POLL_INTERVAL_S):
                    raise _stopping_error()
            yield file.fileno()

    @contextlib.contextmanager
    def locked_now(self) -> Iterator[None]:
        """Take the lock without waiting for a build. Raises `FailedPreconditionError` during one."""
        with open(self.lock, "ab") as file:
            for _ in range(20):  # `busy` holds it for an instant
                if _try_lock(file.fileno(), fcntl.LOCK_EX):
                    yield
                    return
                time.sleep(0.02)
        raise FailedPreconditionError(
            f"{self.path.name} is being built. Wait until it is ready; `trainshed runtimes list` shows how far it is."
        )


def _restore_stamp(hidden: Path, stamp: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        hidden.rename(stamp)


def build(
    runtime: Runtime, directory: EnvironmentDir, *, tools: BuildTools, progress: ProgressCallback, lock: int
) -> None:
    """Build the environment.

    The caller holds `lock`, and uv inherits it. If this process is killed, the lock is held until its uv exits. Nobody
    rebuilds while that uv still writes. On any error, including one from `progress`, uv is killed and the incomplete
    folder is removed.
    """
    what = f"Building runtime {runtime.name}"
    try:
        directory.erase()
        with open(directory.log, "wb") as log:
            run = _UvRunner(tools=tools, log=log.fileno(), lock=lock, what=what, log_path=directory.log)
            _report(directory, progress, 0.0, f"Making an environment for Python {runtime.python}")
            run.wait(run.start("venv", "--no-config", "--no-project", "--python", tools.python, directory.path))
            _install(runtime, directory, run=run, progress=progress)
        os.sync()  # a power failure must not leave a stamp on files that never reached the disk
        _write_stamp(runtime, directory, tools.python)
    except OSError as exc:
        error = explain_failure(what, os.strerror(exc.errno)) if exc.errno in _DISK_FULL_ERRNOS else exc
        _clean_up_failed_build(directory, error=str(error))
        raise error from exc
    except (DiskFullError, UnavailableError) as exc:
        _clean_up_failed_build(directory, error="" if tools.stopping.is_set() else str(exc))
        raise
    except BaseException:
        _clean_up_failed_build(directory)
        raise
    directory.news.unlink(missing_ok=True)
    progress(1.0, "Ready")


def _clean_up_failed_build(directory: EnvironmentDir, *, error: str = "") -> None:
    """Free the space of a failed build, and record its error."""
    with contextlib.suppress(OSError):  # a disk too full for the report must not hide the error itself
        directory.erase()
        directory.news.unlink(missing_ok=True)
        if error:
            directory.tell(error=error)


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildTools:
    """Inputs of a build: the uv program, the base interpreter, where packages are besides the index, the stop event."""

    uv: Path
    python: Path
    find_links: tuple[str, ...] = ()
    stopping: threading.Event


@dataclass(frozen=True, slots=True, kw_only=True)
class _UvRunner:
    """Runs uv for one build, with its output in the log."""

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
        """Block until uv succeeds. uv is killed if the server stops or `progress` raises."""
        try:
            while not _has_exited(process):
                if self.tools.stopping.is_set():
                    raise _stopping_error()
                if meter and progress:
                    progress(*meter.look(process.pid))
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)  # uv and its compiler processes
                process.wait()
        if process.returncode != 0:
            raise explain_failure(self.what, self.log_path.read_text(errors="replace"))


def _install(runtime: Runtime, directory: EnvironmentDir, *, run: _UvRunner, progress: ProgressCallback) -> None:
    pins = directory.path / "requirements.txt"
    links = (f"--find-links {link}" for link in run.tools.find_links)  # added to those of uv's own settings
    pins.write_text("".join(f"{line}\n" for line in (*links, *runtime.pins)))
    site = directory.site(runtime.python)
    meter = BuildMeter(site=site, packages=len(runtime.pins), unpacked_bytes=runtime.unpacked_mb << 20)
    options = ("--no-deps",) if runtime.resolved else ()
    process = run.start("pip", "install", "--compile-bytecode", *options, "--python", directory.python, "-r", pins)
    last: list[tuple[float, str]] = []

    def report(fraction: float, text: str) -> None:
        if last[-1:] != [(fraction, text)]:
            last[:] = [(fraction, text)]
            _report(directory, progress, fraction, text)

    run.wait(process, meter, report)
    for package in runtime.stands_for:
        _write_dist_info(package, site)
    accept_mirrored_data(site)


def _write_dist_info(package: str, site: Path) -> None:
    """Make installers see a package as installed. `tensorflow` is large, and its code comes from `tensorflow-cpu`."""
    name, _, version = package.partition("==")
    info = site / f"{name}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "INSTALLER").write_text("trainshed\n")
    (info / "RECORD").write_text("".join(f"{info.name}/{file},,\n" for file in ("METADATA", "INSTALLER", "RECORD")))


def _report(directory: EnvironmentDir, progress: ProgressCallback, fraction: float, text: str) -> None:
    directory.tell(fraction=fraction, text=text)
    progress(fraction, text)


def _write_stamp(runtime: Runtime, directory: EnvironmentDir, python: Path) -> None:
    stamp = {"runtime": runtime.name, "digest": runtime.digest, "python": str(python), "size": _size(directory.path)}
    write_file(directory.stamp, json.dumps(stamp).encode())


def _has_exited(process: subprocess.Popen[bytes]) -> bool:
    try:
        process.wait(_BUILD_POLL_INTERVAL_S)
    except subprocess.TimeoutExpired:
        return False
    return True


def _stopping_error() -> UnavailableError:
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
    """Disk usage of a folder in bytes, including files shared with uv's cache."""
    return sum(Path(parent, name).lstat().st_blocks * 512 for parent, _, files in os.walk(folder) for name in files)
