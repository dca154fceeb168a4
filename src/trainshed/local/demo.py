"""The state folder of `trainshed demo`: its lock, the files of the sample, and its removal."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trainshed.config import Home
from trainshed.errors import CannotProceedError

MARKER = "demo.lock"  #: marks a state folder that the demo made and may remove
JOBS_END_TIMEOUT_S = 60.0
REMOVE_TIMEOUT_S = 20.0


def default_home() -> Path:
    """~/.trainshed-demo: never the state folder of the user's own server."""
    return Path.home() / ".trainshed-demo"


def check(home: Home) -> None:
    """Raises `CannotProceedError` unless the folder is new, empty or made by a demo."""
    path = home.path
    if path.exists() and not path.is_dir():
        raise CannotProceedError(f"{path} is not a folder. Choose another one with --home.")
    if path.is_dir() and not (path / MARKER).is_file() and any(path.iterdir()):
        raise CannotProceedError(
            f"The folder {path} is not empty, and no demo made it. Choose a new one with --home; nothing was changed."
        )


@contextmanager
def hold_lock(home: Home) -> Iterator[None]:
    """Hold the demo's lock. Creates the folder. Raises `CannotProceedError` if another demo holds it."""
    check(home)
    home.create(setting="--home")
    lock = os.open(home.path / MARKER, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise CannotProceedError(f"A demo runs in {home.path} already. Wait for it, or end it with Ctrl-C.") from None
    try:
        yield
    finally:
        os.close(lock)


def write_records(home: Home, sample: Path) -> Path:
    """Write MNIST as TFRecord files. Returns their folder, which `remove_records` removes."""
    folder = home.path / "demo" / "records"
    _run(sample / "scripts" / "create_records.py", "--output-dir", str(folder))
    return folder


def remove_records(home: Home) -> None:
    """Remove the files, which are in the bucket by then. Idempotent."""
    folder = home.path / "demo" / "records"
    if folder.exists():
        shutil.rmtree(folder)


def write_request(home: Home, sample: Path) -> Path:
    """Write the first ten test images, one instance a line. Returns the file."""
    path = home.path / "demo" / "request.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    _run(sample / "scripts" / "make_request.py", "--output", str(path))
    return path


def _run(script: Path, *words: str) -> None:
    """Run a script of the sample. -B: nothing is written beside it, which may be an installed package."""
    done = subprocess.run([sys.executable, "-B", script, *words], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        reason = done.stderr.strip().splitlines()[-1:] or [f"exit status {done.returncode}"]
        raise CannotProceedError(
            f"{script.name} of the sample failed: {reason[0]}. Make room on the disk, or choose --home."
        )


def end_jobs(home: Home) -> list[str]:
    """Cancel the jobs that run without a server and wait for their end. Returns their names."""
    from trainshed.domain.jobs.reconcile import AttemptPhase
    from trainshed.engines.local.engine import LocalEngine

    engine = LocalEngine(home, uv=Path("uv"))
    attempts = [folder for folder in home.jobs.glob("*/*/*") if folder.is_dir()]

    def alive() -> list[Path]:
        return [
            path
            for path, status in engine.observe(attempts).items()
            if status.phase in (AttemptPhase.PREPARING, AttemptPhase.RUNNING)
        ]

    running = alive()
    for attempt in running:
        engine.cancel(attempt)
    deadline = time.monotonic() + JOBS_END_TIMEOUT_S
    while left := alive():
        if time.monotonic() > deadline:
            raise CannotProceedError(
                f"Job {left[0].parent.name} has not ended within {JOBS_END_TIMEOUT_S:.0f} s. Try again."
            )
        time.sleep(0.1)
    return sorted({attempt.parent.name for attempt in running})


def remove(home: Home) -> None:
    """Remove the folder. The marker goes last, so an interrupted removal can be repeated."""
    deadline = time.monotonic() + REMOVE_TIMEOUT_S
    while True:
        try:
            for entry in home.path.iterdir():
                if entry.name != MARKER:
                    _remove(entry)
            (home.path / MARKER).unlink(missing_ok=True)
            home.path.rmdir()
        except OSError as exc:
            if time.monotonic() > deadline:  # until then a process that exits may still write its last lines
                raise CannotProceedError(
                    f"{exc.filename or home.path} can't be removed: {exc.strerror}. Remove {home.path} by hand."
                ) from exc
            time.sleep(0.1)
        else:
            return


def _remove(entry: Path) -> None:
    if entry.is_dir() and not entry.is_symlink():
        shutil.rmtree(entry)
    else:
        entry.unlink(missing_ok=True)
