"""From a job to one attempt with nothing left to decide: its runtime, its packages, its arguments, its gang."""

from __future__ import annotations

import hashlib
import socket
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from trainshed.buckets.addresses import resolve_uris
from trainshed.buckets.names import object_path, split_uri
from trainshed.config import Home, Settings
from trainshed.domain import clusters
from trainshed.domain.jobs import Event, Job, JobState
from trainshed.domain.times import now_us
from trainshed.domain.training import Training
from trainshed.engines.base import Launch, Package, Replica
from trainshed.errors import FailedPrecondition, Invalid, NotFound
from trainshed.runtimes.environments import Runtimes
from trainshed.store.jobs import JobStore

_TOLD_EVERY = 0.1  #: of a runtime's build, between two lines in the job's log


class Launches:
    """Prepares attempts. `owner` says which project a bucket belongs to, or raises `NotFound`."""

    def __init__(
        self,
        home: Home,
        settings: Settings,
        *,
        jobs: JobStore,
        runtimes: Runtimes,
        owner: Callable[[str], str],
        cpus: int,
    ) -> None:
        self._home = home
        self._settings = settings
        self._jobs = jobs
        self._runtimes = runtimes
        self._owner = owner
        self._cpus = cpus

    def folder(self, job: Job) -> Path:
        """Where the current attempt of a job lives."""
        return self._home.jobs / job.project / job.id / str(job.attempt)

    def size(self, job: Job) -> int:
        """How many replicas a job has."""
        return len(clusters.gang(Training.parse(job.body["trainingInput"])))

    def prepare(self, job: Job) -> Launch:
        """Build the runtime if need be, and settle everything else. Blocks while a runtime is built."""
        training = Training.parse(job.body["trainingInput"])
        python = self._runtimes.ensure(job.runtime, self._told(job))
        packages = tuple(self._package(job, uri) for uri in training.package_uris)
        args = tuple(resolve_uris(arg, self._path_of(job)) for arg in training.args)
        if training.job_dir:
            args += ("--job-dir", resolve_uris(training.job_dir, self._path_of(job)))
        return Launch(
            project=job.project,
            job=job.id,
            attempt=job.attempt,
            folder=self.folder(job),
            python=python,
            module=training.module,
            args=args,
            packages=packages,
            site=self._home.packages / job.project / _digest(python, packages),
            replicas=self._replicas(job, training),
            env=clusters.common_environment(job, training, cpus=max(1, self._cpus // len(clusters.gang(training)))),
            grace_s=self._settings.grace_s,
            max_running_s=training.max_running_s,
            log_limit_bytes=self._settings.log_limit_mb << 20,
        )

    def _replicas(self, job: Job, training: Training) -> tuple[Replica, ...]:
        gang = clusters.gang(training)
        listening = [replica for replica in gang if replica.type != clusters.EVALUATOR]
        addresses = clusters.loopback_addresses(gang, free_ports(len(listening)))
        return tuple(
            Replica(
                name=replica.name,
                type=replica.type,
                index=replica.index,
                primary=replica.primary,
                env=clusters.replica_environment(job, training, replica, addresses),
            )
            for replica in gang
        )

    def _package(self, job: Job, uri: str) -> Package:
        path = self._path_of(job)(uri)
        if path is None or not path.is_file():
            raise FailedPrecondition(f"The package {uri} is no longer there. Submit the job again to upload it anew.")
        with path.open("rb") as file:
            return Package(uri=uri, path=path, sha256=hashlib.file_digest(file, "sha256").hexdigest())

    def _path_of(self, job: Job) -> Callable[[str], Path | None]:
        """Turns a gs:// address into a path, if its bucket belongs to the job's project."""

        def path_of(uri: str) -> Path | None:
            try:
                bucket, name = split_uri(uri)
                if self._owner(bucket) != job.project:
                    return None
                return object_path(self._home.buckets, bucket, name.rstrip("/"))
            except (Invalid, NotFound):
                return None

        return path_of

    def _told(self, job: Job) -> Callable[[float, str], None]:
        """Writes the progress of a build into the job's log, and gives up if the job was cancelled meanwhile."""
        told = -1.0

        def progress(fraction: float, text: str) -> None:
            nonlocal told
            if self._jobs.get(job.project, job.id).state is not JobState.PREPARING:
                raise FailedPrecondition(f"Job {job.id} was cancelled while its runtime was built.")
            if fraction - told >= _TOLD_EVERY:
                told = fraction
                line = f"Runtime {job.runtime} is built once for all jobs: {fraction:.0%}. {text}"
                self._jobs.tell(job, Event(text=line, time_us=now_us()))

        return progress


def free_ports(count: int) -> list[int]:
    """Ports of loopback that nobody listens on now, all different."""
    with ExitStack() as stack:
        listeners = [stack.enter_context(socket.socket()) for _ in range(count)]
        for listener in listeners:
            listener.bind(("127.0.0.1", 0))
        return [listener.getsockname()[1] for listener in listeners]


def _digest(python: Path, packages: tuple[Package, ...]) -> str:
    """Names an environment by its runtime and the contents of its packages, in their order."""
    total = hashlib.sha256(str(python).encode())
    for package in packages:
        total.update(f"\n{package.path.name} {package.sha256}".encode())
    return total.hexdigest()[:32]
