"""From a job to one attempt with nothing left to decide: its runtime, its packages, its arguments, its gang."""

from __future__ import annotations

import random
import socket
import sys
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from trainshed.buckets.names import resolve_uris
from trainshed.config import Home, Settings
from trainshed.control.packages import FOLDER, PackageRequest, resolve_packages, site_name
from trainshed.control.uri_resolver import UriResolver
from trainshed.domain.capacity.machine_types import MachineTypes
from trainshed.domain.jobs import gang as gangs
from trainshed.domain.jobs.job import Job, JobEvent, JobState
from trainshed.domain.jobs.training import Training
from trainshed.domain.jobs.workload import workload_of
from trainshed.domain.times import now_us
from trainshed.engines.base import AttemptSpec, ContainerSettings, GangRequest, Mount, Replica, ReplicaContainer
from trainshed.errors import FailedPreconditionError, UnavailableError
from trainshed.runtimes.catalogue import CATALOGUE
from trainshed.runtimes.environments import Runtimes
from trainshed.store.jobs import JobStore

_EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LOWEST_PORT, _HIGHEST_PORT = 10_000, 65_535
_ENOUGH_PORTS = 1_000  #: to choose from
_TOLD_EVERY = 0.1  #: of a runtime's build, between two lines in the job's log
BUCKETS = Path("/gcs")  #: where a container sees them
_AGAIN = "Submit the job again to upload it anew."


class LocalAttemptBuilder:
    """Prepares attempts. `buckets` names those of a project that are folders here; `serves_gs` says whether `gs://`
    in the code of trainers means this server's buckets.
    """

    def __init__(
        self,
        home: Home,
        settings: Settings,
        *,
        jobs: JobStore,
        runtimes: Runtimes,
        addresses: UriResolver,
        buckets: Callable[[str], Iterable[str]],
        serves_gs: bool,
        cpus: int,
        machines: MachineTypes,
    ) -> None:
        self._home = home
        self._settings = settings
        self._jobs = jobs
        self._runtimes = runtimes
        self._addresses = addresses
        self._buckets = buckets
        self._serves_gs = serves_gs
        self._cpus = cpus
        self._machines = machines

    def folder(self, job: Job) -> Path:
        """Where the current attempt of a job lives."""
        return self._home.jobs / job.project / job.id / str(job.attempt)

    def gang(self, job: Job) -> GangRequest:
        """The current attempt of a job before it is prepared."""
        work = workload_of(job.body)
        return GangRequest(
            project=job.project,
            job=job.id,
            attempt=job.attempt,
            folder=self.folder(job),
            machines=gangs.machine_types(work),
            gpus=gangs.accelerators(work),
        )

    def prepare(self, job: Job) -> AttemptSpec:
        """Build the runtime if need be, and settle everything else. Blocks while a runtime is built."""
        training = Training.parse(job.body[Training.key])
        launch = AttemptSpec(
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
        )
        return self._in_containers(launch) if training.containers else self._in_runtime(launch, job, training)

    def _in_runtime(self, launch: AttemptSpec, job: Job, training: Training) -> AttemptSpec:
        python = self._runtimes.ensure(job.runtime, report_build(self._jobs, job))
        serves_gs = self._serves_gs and (job.runtime not in CATALOGUE or CATALOGUE[job.runtime].can_use_gs)
        path_of = self._addresses.path_resolver(job.project, serves_gs=serves_gs)
        wanted = PackageRequest(project=job.project, copies=launch.folder / FOLDER, remedy=_AGAIN)
        found = resolve_packages(training.package_uris, self._addresses, wanted)
        args = tuple(resolve_uris(arg, path_of) for arg in training.args)
        if training.job_dir:
            args += ("--job-dir", resolve_uris(training.job_dir, path_of))
        site = self._home.packages / job.project / site_name(python, found)
        return replace(launch, python=python, args=args, packages=found, site=site)

    def _in_containers(self, launch: AttemptSpec) -> AttemptSpec:
        """The images are found, or pulled, by the supervisor. They see the buckets that are folders now."""
        buckets = tuple(
            Mount(source=self._home.buckets / name, target=BUCKETS / name, read_only=False)
            for name in self._buckets(launch.project)
        )
        common = ContainerSettings(
            tool=self._settings.container_tool, read_only=self._settings.container_read_only, mounts=buckets
        )
        return replace(launch, containers=common, warm=False)

    def _replicas(self, job: Job, training: Training) -> tuple[Replica, ...]:
        gang = gangs.gang(training)
        listening = [replica for replica in gang if replica.type != gangs.EVALUATOR]
        addresses = gangs.loopback_addresses(gang, free_ports(len(listening)))
        return tuple(
            Replica(
                name=replica.name,
                type=replica.type,
                index=replica.index,
                primary=replica.primary,
                env=gangs.replica_environment(job, training, replica, addresses),
                container=replica_container(training, replica.type, self._machines),
            )
            for replica in gang
        )


def replica_container(training: Training, role: str, machines: MachineTypes) -> ReplicaContainer | None:
    """What the replicas of a role run, in the machine that they asked for; None if they run a module.

    gs:// addresses stay as they are: the image was made for a service that passes them on.
    """
    if not training.containers:
        return None
    spec, machine = training.containers[role], machines.of(gangs.machine_type_of(training, role))
    return ReplicaContainer(
        image=spec.image,
        command=spec.command,
        args=spec.args + (("--job-dir", training.job_dir) if training.job_dir else ()),
        cpus=machine.cpu,
        memory_bytes=int(machine.memory_gb * 1e9),
    )


def report_build(jobs: JobStore, job: Job) -> Callable[[float, str], None]:
    """Writes the progress of a build into the job's log, and gives up if the job was cancelled meanwhile."""
    told = -1.0

    def progress(fraction: float, text: str) -> None:
        nonlocal told
        if jobs.get(job.project, job.id).state is not JobState.PREPARING:
            raise FailedPreconditionError(f"Job {job.id} was cancelled while its runtime was built.")
        if fraction - told >= _TOLD_EVERY:
            told = fraction
            line = f"Runtime {job.runtime} is built once for all jobs: {fraction:.0%}. {text}"
            jobs.tell(job, JobEvent(message=line, time_us=now_us()))

    return progress


def free_ports(count: int) -> list[int]:
    """Ports of loopback that nobody listens on now, all different, picked at random.

    They are below those that the kernel gives to outgoing connections: one of those could be taken, by anybody, between
    now and the moment when the trainer listens.
    """
    below = _first_ephemeral_port()
    ports: list[int] = []
    with ExitStack() as stack:
        for port in random.sample(range(_LOWEST_PORT, below), _ENOUGH_PORTS):
            if len(ports) == count:
                break
            listener = stack.enter_context(socket.socket())
            try:
                listener.bind(("127.0.0.1", port))
            except OSError:  # somebody has it
                continue
            ports.append(port)
    if len(ports) < count:
        raise UnavailableError(
            f"Hardly any port from {_LOWEST_PORT} to {below - 1} is free. End programs that listen there."
        )
    return ports


def _first_ephemeral_port() -> int:
    """Where the kernel's own ports begin, but not so low that there would be hardly any below."""
    first = int(_EPHEMERAL.read_text().split()[0])
    return first if first >= _LOWEST_PORT + _ENOUGH_PORTS else _HIGHEST_PORT + 1
