"""Ports: the control plane, engines and attempts, as services call them. `wiring` passes what implements them."""

from __future__ import annotations

import signal
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from trainshed.attempts.batch_progress import BatchProgress
from trainshed.attempts.journal import HangRecord, RestartRecord
from trainshed.domain.jobs.board_folder import BoardFolder
from trainshed.domain.jobs.job import Job
from trainshed.domain.jobs.training import Training
from trainshed.domain.jobs.workload import Workload
from trainshed.domain.models.autoscaling import Scaling
from trainshed.domain.models.model import Model
from trainshed.domain.models.rollout_condition import StageMeasurement
from trainshed.domain.tuning.search import SearchRequest, SearchResult
from trainshed.domain.tuning.trial import TrialOutcome
from trainshed.runtimes.resolution import RuntimeChoice


class RuntimeResolver(Protocol):
    """Finds the runtime that a request names."""

    def resolve(self, runtime_version: str | None, python_version: str | None, *, what: str = "job") -> RuntimeChoice:
        """Return the runtime for `what`. Builds nothing. Raises `InvalidArgumentError` if no runtime matches."""


class HostPlacement(Protocol):
    """Chooses engines for the hosts of versions."""

    def choose_for_hosts(self, labels: Mapping[str, str], what: str) -> str:
        """Return the engine for a new version. `what` is a constant of `domain.models.version`.

        Raises `InvalidArgumentError` for an unknown engine, and for one that does not support `what`.
        """


class QueueStatus(Protocol):
    """The state of a job's queue and engine."""

    def quota_reason(self, job: Job) -> str:
        """Return why the limit of running replicas keeps a queued job waiting. Returns "" if it does not."""
        ...

    def pending_reason(self, job: Job) -> str:
        """Return what capacity the job at the head of the queue waits for, as the end of a sentence."""

    def positions(self, jobs: Iterable[Job]) -> Mapping[tuple[str, str], int]:
        """Return the queue positions, 1 for the head, of the queued ones among these jobs, by project and id.

        Reads no row.
        """

    def next_of(self, project: str, *, limit: int) -> Sequence[tuple[str, int]]:
        """Return ids and positions of the next queued jobs of a project, on any engine."""

    def outage(self, job: Job) -> str:
        """Return a sentence about an outage of the job's engine. Returns "" if there is none."""


class Scheduler(QueueStatus, Protocol):
    """The control plane of jobs. Thread-safe."""

    def wake(self) -> None:
        """Start the next pass immediately: a job was created or is to be cancelled."""

    def choose_engine(self, labels: Mapping[str, str], workload: Workload) -> str:
        """Return the engine for a new job.

        Raises `InvalidArgumentError` for an unknown engine, and for one that does not support the workload.
        """

    def shortfall(self, engine: str, training: Training) -> str:
        """Return a sentence about resources that the engine lacks for a training. Returns "" if it has all."""


class TuningControl(Protocol):
    """The control plane of tuning jobs. Thread-safe."""

    def wake(self) -> None:
        """Start the next pass immediately: a tuning job was created, or it or a trial is to be stopped."""

    def current(self, job: Job) -> TrialOutcome | None:
        """Return what a trial that runs has reported so far. Returns None if nothing was read yet."""


class AttemptReader(Protocol):
    """Reads the files of jobs' current attempts. Thread-safe."""

    def restarts(self, job: Job) -> Sequence[RestartRecord]:
        """Return the restarts so far, oldest first."""

    def hangs(self, job: Job) -> Sequence[HangRecord]:
        """Return the hangs of replicas so far, oldest first."""

    def batch_progress(self, job: Job) -> BatchProgress | None:
        """Return the progress of a batch prediction. Returns None for another workload, and before it has any."""


class ProgressReader(Protocol):
    """Reads how far trainings are. Thread-safe."""

    def of(self, job: Job) -> Mapping[str, Any] | None:
        """Return step, loss, accuracy, rate and time left, if known. Returns None if the job reported nothing."""


class DeploymentControl(Protocol):
    """The control plane of versions. Thread-safe."""

    def wake(self) -> None:
        """Start the next pass immediately: a version is to be created, changed or deleted."""

    def publish(self, project: str, model: str) -> None:
        """Publish the routes of a model from its rows, before this returns."""

    def hosts(self, project: str, model: str, version: str) -> Sequence[Mapping[str, Any]]:
        """Return the current hosts of a version as JSON objects."""

    def scaling(self, project: str, model: str, version: str) -> Scaling:
        """Return how many hosts a version is to have under its load, if that may change."""

    def progress(self, project: str, model: str, version: str) -> str:
        """Return what provisioning does now, or why a version does not serve. Returns "" if it serves."""

    def log_tail(self, project: str, model: str, version: str) -> str:
        """Return the last output of the version's first host."""


class RolloutControl(Protocol):
    """Carries out rollouts. Thread-safe."""

    def wake(self) -> None:
        """Start the next pass immediately: a rollout was started."""

    def measured(self, model: Model) -> tuple[StageMeasurement, StageMeasurement, str]:
        """Return what the new version and the baseline have answered in the present stage, and what it waits for."""


class Suggester(Protocol):
    """Finds the next points of hyperparameter searches. Thread-safe."""

    def suggest(self, request: SearchRequest) -> SearchResult:
        """Return the next points. Blocks for some seconds at most.

        Never fails: returns the next low-discrepancy points if the search process ends or is slow.
        """


class ReplicaKiller(Protocol):
    """Sends signals to replicas."""

    def kill_replica(self, job: Job, replica: str, number: signal.Signals) -> None:
        """Send a signal to one replica of a job that runs. Returns before it is delivered.

        Raises `EngineUnavailableError` if the job's engine is unreachable.
        """


class TensorBoardProcess(Protocol):
    """One TensorBoard. It ends on `end`, and with the server."""

    def address(self) -> int | Path | None:
        """Return its loopback port or its unix socket. Returns None if it does not listen yet.

        Raises `EngineUnavailableError` if it has exited.
        """

    def end(self) -> None:
        """Kill it. Blocks until it is gone. Idempotent."""


class TensorBoardLauncher(Protocol):
    """Starts TensorBoards."""

    def begin(self) -> None:
        """Remove what an earlier server left."""

    def start(self, python: Path, events: BoardFolder, *, number: int, prefix: str) -> TensorBoardProcess:
        """Start one on a folder. Returns immediately.

        Raises `EngineUnavailableError` if it fails.
        """
