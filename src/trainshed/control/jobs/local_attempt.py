"""Builds attempt specs for this machine: runtime, packages, arguments and gang."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

from trainshed.config import Home, Settings
from trainshed.control.packages import FETCHED_FOLDER, PackageRequest, resolve_packages, site_name
from trainshed.control.uri_resolver import UriResolver
from trainshed.domain.capacity.machine_types import MachineTypes
from trainshed.domain.image_registries import ImageRegistries
from trainshed.domain.jobs import gang as gangs
from trainshed.domain.jobs.job import Job, JobEvent, JobEventKind
from trainshed.domain.jobs.states import JobState
from trainshed.domain.jobs.training import Training
from trainshed.domain.names import package_folder
from trainshed.domain.times import now_us
from trainshed.domain.uris import resolve_uris
from trainshed.engines.base import AttemptSpec, ContainerSettings, GangRequest, Mount, Replica, ReplicaContainer
from trainshed.errors import FailedPreconditionError, UnavailableError
from trainshed.node.process.metric_reports import HYPERTUNE_FILE, HYPERTUNE_FOLDER, METRIC_FILE_VARIABLE
from trainshed.node.process.ports import free_ports
from trainshed.runtimes.catalogue import CATALOGUE
from trainshed.runtimes.environments import Runtimes
from trainshed.store.jobs import JobStore

_PROGRESS_STEP = 0.1  #: fraction of a runtime's build between two events of the job
CONTAINER_BUCKETS_FOLDER = Path("/gcs")  #: where a container sees the buckets
CONTAINER_HYPERTUNE_FOLDER = Path("/var/hypertune")  #: where a container of a trial reports metrics
_RESUBMIT = "Submit the job again to upload it anew."


class LocalAttemptBuilder:
    """Builds attempt specs for this machine.

    `buckets` names the buckets of a project that are folders. With `serves_gs`, `gs://` in trainer code means this
    server's buckets.
    """

    def __init__(
        self,
        home: Home,
        settings: Settings,
        *,
        jobs: JobStore,
        runtimes: Runtimes,
        uri_resolver: UriResolver,
        buckets: Callable[[str], Iterable[str]],
        serves_gs: bool,
        cpus: int,
        machines: MachineTypes,
    ) -> None:
        self._home = home
        self._settings = settings
        self._jobs = jobs
        self._runtimes = runtimes
        self._uri_resolver = uri_resolver
        self._buckets = buckets
        self._serves_gs = serves_gs
        self._cpus = cpus
        self._machines = machines

    def folder(self, job: Job) -> Path:
        """Return the folder of a job's current attempt."""
        return self._home.jobs / job.project / job.id / str(job.attempt)

    def gang(self, job: Job) -> GangRequest:
        """Return the gang request of a job's current attempt."""
        return GangRequest(
            project=job.project,
            job=job.id,
            attempt=job.attempt,
            folder=self.folder(job),
            machines=gangs.machine_types(job.workload),
            gpus=gangs.accelerators(job.workload),
        )

    def prepare(self, job: Job) -> AttemptSpec:
        """Build the attempt spec of a job. Blocks while its runtime is built."""
        training = job.training
        spec = AttemptSpec(
            project=job.project,
            job=job.id,
            attempt=job.attempt,
            folder=self.folder(job),
            python=Path(sys.executable),
            module=training.module,
            args=(),
            packages=(),
            site=self.folder(job) / "site",
            replicas=self._replicas(job, training),
            env=gangs.common_environment(job, training, cpus=max(1, self._cpus // len(gangs.gang(training)))),
            grace_s=self._settings.grace_s,
            max_running_s=training.max_running_s,
            log_limit_bytes=self._settings.log_limit_mb << 20,
            hang_timeout_s=self._settings.hang_timeout_s,
            hang_restart=self._settings.hang_restart,
        )
        return self._in_containers(spec, job) if training.containers else self._in_runtime(spec, job, training)

    def _in_runtime(self, spec: AttemptSpec, job: Job, training: Training) -> AttemptSpec:
        python = self._runtimes.ensure(job.runtime, report_build(self._jobs, job))
        serves_gs = self._serves_gs and (job.runtime not in CATALOGUE or CATALOGUE[job.runtime].can_use_gs)
        path_of = self._uri_resolver.path_resolver(job.project, serves_gs=serves_gs)
        request = PackageRequest(project=job.project, copies=spec.folder / FETCHED_FOLDER, remedy=_RESUBMIT)
        packages = resolve_packages(training.package_uris, self._uri_resolver, request)
        args = tuple(resolve_uris(arg, path_of) for arg in training.args)
        if training.job_dir:
            args += ("--job-dir", resolve_uris(training.job_dir, path_of))
        site = self._home.packages / package_folder(job.project) / site_name(python, packages)
        buckets = tuple(self._home.buckets / name for name in self._buckets(job.project))
        return replace(spec, python=python, args=args, packages=packages, site=site, writable=buckets)

    def _in_containers(self, spec: AttemptSpec, job: Job) -> AttemptSpec:
        """Add the buckets that are folders now, and the folder for the metrics of a trial.

        The supervisor resolves or pulls the images.
        """
        buckets = tuple(
            Mount(source=self._home.buckets / name, target=CONTAINER_BUCKETS_FOLDER / name, read_only=False)
            for name in self._buckets(spec.project)
        )
        settings = ContainerSettings(
            tool=self._settings.container_tool,
            read_only=self._settings.container_read_only,
            mounts=(*buckets, *self._metric_mounts(job)),
        )
        return replace(spec, containers=settings, warm=False)

    def _metric_mounts(self, job: Job) -> tuple[Mount, ...]:
        """Return the folder in which containers of a trial report metrics. It has a folder for each replica."""
        if not job.trial:
            return ()
        source = self.folder(job) / "work" / HYPERTUNE_FOLDER
        for replica in gangs.gang(job.workload):
            folder = source / replica.name
            folder.mkdir(parents=True, exist_ok=True)
            folder.chmod(0o777)  # the image's user may be any
        return (Mount(source=source, target=CONTAINER_HYPERTUNE_FOLDER, read_only=False),)

    def _replicas(self, job: Job, training: Training) -> tuple[Replica, ...]:
        gang, registries = gangs.gang(training), ImageRegistries.parse(self._settings.image_registries)
        listening = [replica for replica in gang if replica.type != gangs.EVALUATOR]
        try:
            addresses = gangs.loopback_addresses(gang, free_ports(len(listening)))
        except OSError as exc:
            raise UnavailableError(f"{exc.strerror}.") from exc
        return tuple(
            Replica(
                name=replica.name,
                type=replica.type,
                index=replica.index,
                primary=replica.primary,
                env=gangs.replica_environment(job, training, replica, addresses) | self._metric_file(job, replica.name),
                container=replica_container(training, replica.type, self._machines, registries),
            )
            for replica in gang
        )

    def _metric_file(self, job: Job, replica: str) -> dict[str, str]:
        """Return where a replica of a trial reports metrics with hypertune: a file of its own, in any sandbox."""
        if not job.trial:
            return {}
        folder = self.folder(job) / "work" / HYPERTUNE_FOLDER
        if job.training.containers:
            folder = CONTAINER_HYPERTUNE_FOLDER
        return {METRIC_FILE_VARIABLE: str(folder / replica / HYPERTUNE_FILE)}


def replica_container(
    training: Training, role: str, machines: MachineTypes, registries: ImageRegistries
) -> ReplicaContainer | None:
    """Return the container of a role's replicas, with the resources of its machine type.

    Returns None if they run a module. gs:// URIs stay unchanged: images are made for a service that passes them on.
    """
    if not training.containers:
        return None
    container, machine_type = training.containers[role], machines.of(gangs.machine_type_of(training, role))
    return ReplicaContainer(
        image=container.image,
        command=container.command,
        args=container.args + (("--job-dir", training.job_dir) if training.job_dir else ()),
        cpus=machine_type.cpu,
        memory_bytes=int(machine_type.memory_gb * 1e9),
        pull=registries.pulls(container.image),
    )


def report_build(jobs: JobStore, job: Job) -> Callable[[float, str], None]:
    """Return a callback that writes build progress to the job's events.

    It raises `FailedPreconditionError` if the job was cancelled meanwhile, which ends the build.
    """
    reported = -1.0

    def progress(fraction: float, text: str) -> None:
        nonlocal reported
        if jobs.get(job.project, job.id).state is not JobState.PREPARING:
            raise FailedPreconditionError(f"Job {job.id} was cancelled while its runtime was built.")
        if fraction - reported >= _PROGRESS_STEP:
            reported = fraction
            message = f"Runtime {job.runtime} is built once for all jobs: {fraction:.0%}. {text}"
            jobs.tell(job, JobEvent(kind=JobEventKind.PREPARING, message=message, time_us=now_us()))

    return progress
