"""Builds attempt specs for remote nodes, with placeholders for values that only a node knows."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from trainshed.config import Home, Settings
from trainshed.control.jobs.credentials import RemoteCredentials
from trainshed.control.jobs.local_attempt import (
    CONTAINER_BUCKETS_FOLDER,
    CONTAINER_HYPERTUNE_FOLDER,
    replica_container,
)
from trainshed.control.packages import FETCHED_FOLDER, PackageRequest, resolve_packages
from trainshed.control.uri_resolver import UriResolver
from trainshed.domain.capacity.machine_types import MachineTypes
from trainshed.domain.capacity.placement import CPU, ResourceShares
from trainshed.domain.image_registries import ImageRegistries
from trainshed.domain.jobs import gang as gangs
from trainshed.domain.jobs.job import Job
from trainshed.domain.jobs.training import Training
from trainshed.domain.uris import resolve_uris
from trainshed.engines.base import AttemptSpec, ContainerSettings, Mount, RemoteSpec, Replica
from trainshed.node.process.metric_reports import HYPERTUNE_FILE, HYPERTUNE_FOLDER, METRIC_FILE_VARIABLE
from trainshed.runtimes.catalogue import CATALOGUE, Runtime

_NODE_REPORTS = Path("@node@/work") / HYPERTUNE_FOLDER  #: in the workspace of a replica
_RESUBMIT = "Submit the job again to upload it anew."


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteAttemptBuilder:
    """Builds attempt specs for a cluster. `folder` returns the local folder of a job's current attempt."""

    home: Home
    settings: Settings
    uri_resolver: UriResolver
    buckets: Callable[[str], Iterable[str]]  #: names the buckets of a project that are folders
    folder: Callable[[Job], Path]
    credentials: RemoteCredentials
    serves_gs: bool  #: whether `gs://` in trainer code means this server's buckets
    machines: MachineTypes
    shares: ResourceShares

    def prepare(self, job: Job) -> AttemptSpec:
        """Build the attempt spec of a job. Builds no runtime: nodes build their own."""
        training = job.training
        folder = self.folder(job)
        request = PackageRequest(project=job.project, copies=folder / FETCHED_FOLDER, remedy=_RESUBMIT)
        spec = AttemptSpec(
            project=job.project,
            job=job.id,
            attempt=job.attempt,
            folder=folder,
            python=Path(sys.executable),  # of the supervisor and the replica proxies
            module=training.module,
            args=() if training.containers else self._args(job, training),
            packages=resolve_packages(training.package_uris, self.uri_resolver, request),
            site=folder / "site",
            replicas=self._replicas(job, training),
            env=gangs.common_environment(job, training, cpus=1),
            grace_s=self.settings.grace_s,
            max_running_s=training.max_running_s,
            log_limit_bytes=self.settings.log_limit_mb << 20,
            hang_timeout_s=self.settings.hang_timeout_s,
            hang_restart=self.settings.hang_restart,
            warm=False,
            containers=self._containers(job) if training.containers else None,
        )
        attempt = self.credentials.inject(spec)
        shutil.rmtree(request.copies, ignore_errors=True)  # they are staged
        runtime = {} if training.containers else runtime_recipe(CATALOGUE[job.runtime])
        remote = RemoteSpec(runtime=runtime, packages=attempt.packages, credentials=attempt.credentials)
        return replace(attempt.spec, remote=remote)

    def _args(self, job: Job, training: Training) -> tuple[str, ...]:
        serves_gs = self.serves_gs and CATALOGUE[job.runtime].can_use_gs
        path_of = self.uri_resolver.remote_path_resolver(job.project, self.settings.node_buckets, serves_gs=serves_gs)
        args = training.args + (("--job-dir", training.job_dir) if training.job_dir else ())
        return tuple(resolve_uris(arg, path_of) for arg in args)

    def _replicas(self, job: Job, training: Training) -> tuple[Replica, ...]:
        gang, types, gpus = gangs.gang(training), gangs.machine_types(training), gangs.accelerators(training)
        addresses = gangs.placeholder_addresses(gang)
        registries = ImageRegistries.parse(self.settings.image_registries)
        return tuple(
            Replica(
                name=replica.name,
                type=replica.type,
                index=replica.index,
                primary=replica.primary,
                env={
                    **gangs.replica_environment(job, training, replica, addresses),
                    "OMP_NUM_THREADS": str(self._threads(types[replica.name])),
                    **_metric_file(job),
                },
                machine=types[replica.name],
                container=replica_container(training, replica.type, self.machines, registries),
                gpus=gpus.get(replica.name, 0),
            )
            for replica in gang
        )

    def _containers(self, job: Job) -> ContainerSettings:
        """Mount the project's current buckets, if nodes see the buckets in a folder, and where a trial reports."""
        root, names = self.settings.node_buckets, self.buckets(job.project)
        mounts = [
            Mount(source=Path(root) / name, target=CONTAINER_BUCKETS_FOLDER / name, read_only=False)
            for name in (names if root else ())
        ]
        if job.trial:
            mounts.append(Mount(source=_NODE_REPORTS, target=CONTAINER_HYPERTUNE_FOLDER, read_only=False))
        return ContainerSettings(
            tool=self.settings.container_tool,
            read_only=self.settings.container_read_only,
            mounts=tuple(mounts),
        )

    def _threads(self, machine_type: str) -> int:
        """Return the number of whole cores, at least one."""
        return max(1, int(self.shares.bundle(machine_type, self.machines).get(CPU, 1)))


def _metric_file(job: Job) -> dict[str, str]:
    """Return where a replica of a trial reports metrics with hypertune: in its own workspace, on any node."""
    if not job.trial:
        return {}
    folder = CONTAINER_HYPERTUNE_FOLDER if job.training.containers else _NODE_REPORTS
    return {METRIC_FILE_VARIABLE: str(folder / HYPERTUNE_FILE)}


def runtime_recipe(runtime: Runtime) -> dict[str, object]:
    """Return all that a node needs to build the same environment."""
    return {
        "name": runtime.name,
        "key": runtime.key,
        "python": runtime.python,
        "lock": "".join(f"{pin}\n" for pin in runtime.pins),
        "stands_for": list(runtime.stands_for),
    }
