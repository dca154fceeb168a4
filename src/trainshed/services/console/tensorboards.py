"""TensorBoards of jobs: started on demand, served at an unguessable path."""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from trainshed.background import BackgroundLoop
from trainshed.config import Home
from trainshed.domain.iam import ALL_PROJECTS
from trainshed.domain.jobs.board_folder import BoardFolder
from trainshed.domain.jobs.job import Job
from trainshed.domain.jobs.training import Training
from trainshed.errors import (
    DeadlineExceededError,
    EngineUnavailableError,
    FailedPreconditionError,
    NotFoundError,
    UnavailableError,
)
from trainshed.services.jobs import output_folders
from trainshed.services.ports import TensorBoardLauncher, TensorBoardProcess
from trainshed.services.runtimes import RuntimeService
from trainshed.services.storage.mirrors import Mirrors
from trainshed.store.jobs import JobStore

LOG = logging.getLogger("trainshed.tensorboards")

PREFIX = "/tensorboard"
MAX_CONCURRENT_BOARDS = 4  #: the least recently used one is stopped
IDLE_TTL_S = 600.0
START_TIMEOUT_S = 120.0
_POLL_INTERVAL_S = 0.1
_SWEEP_INTERVAL_S = 10.0
_SWEEP_TIMEOUT_S = 5.0  #: at shutdown, for one that waits for a cloud
_RUNTIMES = ("2.21", "2.15")  #: runtimes whose TensorBoard reads the event files of all others, best first


@dataclass(slots=True)
class _Board:
    key: str
    job: tuple[str, str]
    process: TensorBoardProcess
    last_used_s: float  #: time of the last request
    mirrored: tuple[str, ...]  #: the cloud folder whose mirror it shows; empty if none
    awaited: Path | None  #: what was not there when it started, and so is not seen in its sandbox


class TensorBoards:
    """The TensorBoards of all jobs. Thread-safe. `owner` returns the project of a bucket, or raises `NotFoundError`."""

    def __init__(
        self,
        jobs: JobStore,
        home: Home,
        launcher: TensorBoardLauncher,
        runtimes: RuntimeService,
        mirrors: Mirrors,
        *,
        owner: Callable[[str], str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._jobs = jobs
        self._home = home
        self._launcher = launcher
        self._runtimes = runtimes
        self._mirrors = mirrors
        self._owner = owner
        self._clock = clock
        self._numbers = count(1)
        self._starting = threading.Lock()
        self._lock = threading.Lock()
        self._boards: dict[str, _Board] = {}  #: by key
        self._sweeper = BackgroundLoop("tensorboards", self._sweep_step)

    def begin(self) -> None:
        self._launcher.begin()
        self._sweeper.start()

    def open(self, project: str, job_id: str) -> str:
        """Return the path of a job's TensorBoard. Blocks until it responds.

        Raises `UnavailableError` while its runtime is built, and `EngineUnavailableError` if it exits.
        """
        job = self._jobs.get(project, job_id)
        events, mirrored = self._folder(job)
        with self._starting:
            board = self._find(job) or self._start_board(job, events, mirrored)
        deadline = time.monotonic() + START_TIMEOUT_S
        try:
            while not board.process.address():
                if time.monotonic() > deadline:
                    raise DeadlineExceededError(
                        f"TensorBoard did not answer within {START_TIMEOUT_S:g} s. Try again when less is going on."
                    )
                if self._sweeper.stopping.wait(_POLL_INTERVAL_S):
                    raise UnavailableError("The server is stopping.")
        except (EngineUnavailableError, DeadlineExceededError):
            self._end(board.key)
            raise
        return f"{PREFIX}/{board.key}/"

    def address(self, key: str) -> int | Path:
        """Return the port or unix socket of a TensorBoard. Raises `NotFoundError` if it has ended or never was."""
        board = self._boards.get(key)
        if board is not None:
            board.last_used_s = self._clock()
            try:
                if address := board.process.address():
                    return address
            except EngineUnavailableError:
                self._end(key)
        raise NotFoundError("This TensorBoard has ended. Open it again from the page of its job.")

    def sweep(self) -> None:
        """Stop idle TensorBoards, and refresh the mirrors of the others."""
        for board in list(self._boards.values()):
            if self._clock() - board.last_used_s > IDLE_TTL_S:
                self._end(board.key)
            elif board.mirrored:
                self._mirrors.refresh(board.mirrored)

    def end_of(self, project: str) -> None:
        """Stop the TensorBoards of a project, or all with `ALL_PROJECTS`. Authorized users can open them again."""
        for board in list(self._boards.values()):
            if project in (board.job[0], ALL_PROJECTS):
                self._end(board.key)

    def close(self) -> None:
        self._sweeper.stop()
        for key in list(self._boards):
            self._end(key)
        self._sweeper.join(_SWEEP_TIMEOUT_S)

    def _sweep_step(self) -> float:
        self.sweep()
        return _SWEEP_INTERVAL_S

    def _find(self, job: Job) -> _Board | None:
        """Return the job's TensorBoard. One that can't see what it should by now is stopped."""
        with self._lock:
            found = next((each for each in self._boards.values() if each.job == (job.project, job.id)), None)
            if found is not None:
                found.last_used_s = self._clock()
        if found is not None and found.awaited is not None and found.awaited.exists():
            self._end(found.key)
            return None
        return found

    def _start_board(self, job: Job, events: BoardFolder, mirrored: tuple[str, ...]) -> _Board:
        python = self._python()
        while len(self._boards) >= MAX_CONCURRENT_BOARDS:
            self._end(min(self._boards.values(), key=lambda board: board.last_used_s).key)
        key = secrets.token_urlsafe(24)
        awaited = None if events.root.exists() else events.root
        process = self._launcher.start(python, events, number=next(self._numbers), prefix=f"{PREFIX}/{key}")
        board = _Board(key, (job.project, job.id), process, self._clock(), mirrored, awaited)
        with self._lock:
            self._boards[key] = board
        LOG.info("tensorboard.started project=%s job=%s", job.project, job.id)
        return board

    def _end(self, key: str) -> None:
        with self._lock:
            board = self._boards.pop(key, None)
        if board is not None:
            board.process.end()
            LOG.info("tensorboard.ended project=%s job=%s", *board.job)

    def _python(self) -> Path:
        for name in _RUNTIMES:
            if (python := self._runtimes.ready(name)) is not None:
                return python
        runtime = self._runtimes.install(_RUNTIMES[0])
        raise UnavailableError(
            f"TensorBoard comes with runtime {runtime['name']}, which is being built now ({runtime['fraction']:.0%}). "
            f"Try again in a minute.",
            retry_after_s=15,
        )

    def _folder(self, job: Job) -> tuple[BoardFolder, tuple[str, ...]]:
        """Return the log folder of a job and the cloud folder that it mirrors, if any.

        It is the job's own folder, else one in its arguments, else its working folder.
        """
        if not isinstance(job.workload, Training):
            raise FailedPreconditionError("TensorBoard shows what a training writes, and this job is a prediction.")
        output = next(output_folders.folders(job, self._owner), None)
        if output is None:
            work = self._home.jobs / job.project / job.id / str(job.attempt) / "work"
            return BoardFolder(project=job.project, path=work, root=work), ()
        if not self._mirrors.serves(output):
            return _below(self._home.buckets, job, output), ()
        self._mirrors.refresh(output)
        return _below(self._mirrors.root, job, output), output


def _below(buckets: Path, job: Job, output: tuple[str, ...]) -> BoardFolder:
    """Return a folder of a bucket, or of its mirror. The job may make it later; the bucket is there."""
    return BoardFolder(project=job.project, path=buckets.joinpath(*output), root=buckets / output[0])
