"""Builds the job plane: attempt builders, the engine registry and the job controller."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from trainshed.control.deployments.artifact_access import ArtifactAccessIssuer
from trainshed.control.deployments.provisioner import VersionProvisioner
from trainshed.control.jobs.batch_attempt import BatchAttemptBuilder
from trainshed.control.jobs.controller import JobController
from trainshed.control.jobs.credentials import RemoteCredentials
from trainshed.control.jobs.engines import EngineRegistry, RegisteredEngine
from trainshed.control.jobs.local_attempt import LocalAttemptBuilder
from trainshed.control.jobs.queue import JobQueue
from trainshed.control.jobs.secret_files import SecretFiles
from trainshed.control.jobs.usage_ledger import UsageLedger
from trainshed.control.uri_resolver import UriResolver
from trainshed.domain.jobs.batch_prediction import BATCH_PREDICTION, BatchPrediction
from trainshed.domain.jobs.gang import shortfall
from trainshed.domain.jobs.job import Job
from trainshed.domain.jobs.queue_order import QueuePolicy
from trainshed.domain.jobs.training import TRAINING, TRAINING_IN_CONTAINERS
from trainshed.domain.models.version import HOSTED_CONTAINER, HOSTED_VERSION
from trainshed.domain.names import LOCAL_ENGINE, RAY_ENGINE
from trainshed.engines.base import AttemptSpec
from trainshed.engines.local.engine import SLOTS_PER_CORE
from trainshed.proxy.node_endpoint import NodeEndpoint
from trainshed.runtimes.uv import find_uv
from trainshed.store.slot_usage import SlotUsageStore
from trainshed.wiring.core import Core
from trainshed.wiring.ray import RayDependencies, RayIntegration

MAX_REMOTE_LAUNCHES = 8  #: concurrent launches of remote attempts, which are short on this machine


@dataclass(frozen=True, slots=True)
class RemoteAccess:
    """What remote jobs and hosts need to reach this server."""

    nodes: NodeEndpoint
    credentials: RemoteCredentials
    artifact_access: ArtifactAccessIssuer


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPlane:
    """The parts that run jobs."""

    builder: LocalAttemptBuilder
    registry: EngineRegistry
    ray: RayIntegration
    control: JobController
    secrets_of: Callable[[Job], Sequence[str]]  #: values that a job was given


def uri_resolver(core: Core) -> UriResolver:
    return UriResolver(
        buckets=core.home.buckets,
        backend=core.backend,
        owner=core.buckets.owner,
        is_guarded=core.buckets.are_guarded,
    )


def build_attempt_builder(core: Core, *, serves_gs: bool) -> LocalAttemptBuilder:
    return LocalAttemptBuilder(
        core.home,
        core.settings,
        jobs=core.jobs,
        runtimes=core.runtimes,
        uri_resolver=uri_resolver(core),
        buckets=_local_buckets(core),
        serves_gs=serves_gs,
        cpus=core.cpus,
        machines=core.machines,
    )


def build_job_plane(
    core: Core,
    provisioner: VersionProvisioner,
    inject: Callable[[AttemptSpec], AttemptSpec],
    builder: LocalAttemptBuilder,
    ray: RayIntegration,
) -> JobPlane:
    batch_builder = BatchAttemptBuilder(
        settings=core.settings,
        jobs=core.jobs,
        models=core.models,
        provisioner=provisioner,
        backend=core.backend,
        buckets=_local_buckets(core),
        ship=core.engine.ship,
    )

    secret_files = SecretFiles(core.secrets.values)

    def prepare(job: Job) -> AttemptSpec:
        if isinstance(job.workload, BatchPrediction):
            return secret_files.give(job, batch_builder.prepare(job, job.workload, builder.folder(job)))
        return secret_files.give(job, inject(builder.prepare(job)))

    local_engine = RegisteredEngine(
        engine=core.engine,
        prepare=prepare,
        clear=lambda job: secret_files.remove(job, builder.folder(job)),
        supports=frozenset({TRAINING, TRAINING_IN_CONTAINERS, BATCH_PREDICTION, HOSTED_VERSION, HOSTED_CONTAINER}),
        uniform_slots=True,
        shortfall=partial(shortfall, cpus=core.cpus, machines=core.machines),
    )
    registry = EngineRegistry(
        {LOCAL_ENGINE: local_engine, RAY_ENGINE: ray.registered_engine},
        default=core.settings.engine,
        machines=core.machines,
    )
    control = JobController(
        core.jobs,
        registry,
        gang=builder.gang,
        max_launches=(core.settings.slots or SLOTS_PER_CORE * core.cpus) + MAX_REMOTE_LAUNCHES,
        poll_s=core.settings.poll_s,
        queue=_job_queue(core),
        limits=core.quotas.applied,
        stored=core.stored.known,
        check=core.database.check_fence,
        give_up=lambda: os.kill(os.getpid(), signal.SIGTERM),
    )
    return JobPlane(builder=builder, registry=registry, ray=ray, control=control, secrets_of=secret_files.values_of)


def _job_queue(core: Core) -> JobQueue:
    policy = QueuePolicy(half_life_s=core.settings.usage_half_life_s, max_passed_over_s=core.settings.max_passed_over_s)
    return JobQueue(core.jobs, policy, UsageLedger(policy, SlotUsageStore(core.database)))


def _local_buckets(core: Core) -> Callable[[str], Iterable[str]]:
    """Return a function that names the buckets of a project that jobs get as folders."""

    def is_folder(name: str) -> bool:
        return not core.backend.cloud_of(name) and not core.buckets.are_guarded(name)

    return lambda project: filter(is_folder, core.buckets.names(project))


def build_ray(core: Core, builder: LocalAttemptBuilder, access: RemoteAccess) -> RayIntegration:
    return RayIntegration(
        RayDependencies(
            home=core.home,
            settings=core.settings,
            uv=find_uv(),
            machines=core.machines,
            supervisors=core.engine,
            nodes=access.nodes,
            credentials=access.credentials,
            artifact_access=access.artifact_access.of,
            uri_resolver=uri_resolver(core),
            buckets=_local_buckets(core),
            folder=builder.folder,
        )
    )


def unchanged(spec: AttemptSpec) -> AttemptSpec:
    return spec
