"""The composition root: builds every service, controller and engine, and passes each its dependencies."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import psutil

from trainshed.attempts.attempt_reader import AttemptFolders
from trainshed.config import Home, Settings
from trainshed.control.deployments.artifact_access import ArtifactAccessIssuer
from trainshed.control.deployments.controller import DeploymentController, find_parity, runtime_in_use
from trainshed.control.deployments.model_files import ModelFileStore
from trainshed.control.deployments.provisioner import HostResources, ImageResolver, ProvisionerDeps, VersionProvisioner
from trainshed.control.deployments.rollouts import RolloutController
from trainshed.control.jobs.controller import JobController
from trainshed.control.jobs.credentials import LocalCredentials, RemoteCredentials
from trainshed.control.jobs.orphans import end_orphans
from trainshed.control.jobs.secret_files import remove_left_secrets
from trainshed.control.tuning.controller import TuningController
from trainshed.domain.image_registries import ImageRegistries
from trainshed.domain.names import LOCAL_ENGINE, RAY_ENGINE
from trainshed.domain.policies import JOBS, MODELS
from trainshed.engines.hosts.base import HostEngine, HostEngineRouter
from trainshed.engines.local.containers import ContainerOptions, HostContainers
from trainshed.engines.local.hosts import LocalHostEngine
from trainshed.engines.local.package_installer import PackageInstaller
from trainshed.engines.local.reference_outputs import ReferenceOutputs
from trainshed.engines.local.sandbox import Sandbox
from trainshed.engines.local.search_process import SearchProcess
from trainshed.engines.local.tensorboards import LocalTensorBoardLauncher
from trainshed.engines.local.warm import WarmProcesses
from trainshed.gateway.routes import Routes
from trainshed.proxy.client_config import ServerEndpoints
from trainshed.proxy.node_endpoint import NodeEndpoint
from trainshed.runtimes.environments import Runtimes
from trainshed.runtimes.uv import find_uv
from trainshed.services.access.policies import Policies
from trainshed.services.access.sessions import BrowserSessions
from trainshed.services.access.tokens import Tokens
from trainshed.services.artifacts import JobArtifacts, VersionArtifacts
from trainshed.services.console.machine_metrics import MachineMetrics
from trainshed.services.console.overview import LiveState, Overview, OverviewStores
from trainshed.services.console.tensorboards import TensorBoards
from trainshed.services.jobs.cancellations import Cancellations
from trainshed.services.jobs.chaos import Chaos
from trainshed.services.jobs.exports import Exports
from trainshed.services.jobs.failures import Failures
from trainshed.services.jobs.jobs import JobChecks, Jobs
from trainshed.services.jobs.progress import ProgressService
from trainshed.services.jobs.reports import JobReports
from trainshed.services.jobs.search import JobSearch
from trainshed.services.jobs.tuning import TuningJobs
from trainshed.services.logs.audit_entries import AuditedLogEntries
from trainshed.services.logs.entries import LogEntries
from trainshed.services.logs.pages import LogPages
from trainshed.services.logs.writes import LogEntryWriter
from trainshed.services.metrics import MetricSources, ServerMetrics
from trainshed.services.models.replays import Replays
from trainshed.services.models.rollouts import Rollouts
from trainshed.services.operations import Operations
from trainshed.services.registry import Services
from trainshed.services.runtimes import RuntimeService
from trainshed.services.server import ServerInfo
from trainshed.services.storage.mirrors import Mirrors
from trainshed.services.storage.uris import UriChecker
from trainshed.services.tuning.studies import Studies
from trainshed.services.tuning.suggestions import Suggestions
from trainshed.store.database import Database
from trainshed.store.job_search import JobSearchStore
from trainshed.store.policies import PolicyStore
from trainshed.store.tokens import TokenStore, UserStore
from trainshed.store.tuning.studies import StudyStore
from trainshed.wiring import access as access_wiring
from trainshed.wiring.core import Core, build_core
from trainshed.wiring.jobs import (
    JobPlane,
    RemoteAccess,
    build_attempt_builder,
    build_job_plane,
    build_ray,
    unchanged,
    uri_resolver,
)
from trainshed.wiring.public_data import build_public_data
from trainshed.wiring.ray import RayIntegration
from trainshed.wiring.serving import ServingPlane, build_models_and_versions, build_serving_plane
from trainshed.wiring.tuning import Sweeper, TuningPlane, build_tuning_plane

ORPHANS_END_TIMEOUT_S = 20.0  #: beyond the grace of their replicas


@dataclass(frozen=True, slots=True)
class Application:
    """The services for the routes, and the controllers."""

    services: Services
    control: JobController
    tuning: TuningController
    sweepers: tuple[Sweeper, ...]
    runtimes: Runtimes
    warm: WarmProcesses
    routes: Routes
    deployments: DeploymentController
    rollouts: RolloutController
    hosts: HostEngine
    machine: MachineMetrics
    ray: RayIntegration
    searcher: SearchProcess
    end_orphans: Callable[[], None]  #: of jobs that the database does not know

    @contextmanager
    def running(self) -> Iterator[None]:
        """Run all controllers and background threads inside the block.

        Attempts of jobs that the database does not know are ended first. At exit, hosts are stopped and runtime builds
        are cancelled. The next server starts them again.
        """
        self.end_orphans()
        self.services.audit.begin()
        if self.services.oidc is not None:
            self.services.oidc.begin()
        self.services.predictions.begin(self.deployments)
        self.services.tensorboards.begin()
        self.services.buckets.begin()
        self.runtimes.look_ahead()  # before any process of a runtime starts
        self.warm.begin()
        self.hosts.open(self.deployments.wake)
        self.deployments.start()
        self.rollouts.start()
        self.control.start()
        self.tuning.start()
        for sweeper in self.sweepers:
            sweeper.start()
        self.ray.begin(self.control.wake)
        self.machine.begin()
        try:
            yield
        finally:
            self.machine.close()
            if self.services.oidc is not None:
                self.services.oidc.close()
            self.services.predictions.close()
            self.services.tensorboards.close()
            self.services.buckets.close()
            self.tuning.stop()
            for sweeper in self.sweepers:
                sweeper.stop()
            self.control.stop()
            self.rollouts.stop()
            self.deployments.stop()
            self.services.runtimes.close()
            self.warm.stop()
            self.tuning.join()
            for sweeper in self.sweepers:
                sweeper.join()
            self.control.join()
            self.rollouts.join()
            self.deployments.join()
            self.hosts.close()
            self.ray.close()  # after `hosts.close`, which stops remote hosts through the bridge
            self.warm.close()
            self.searcher.close()
            self.services.audit.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Readers:
    """The parts that read what jobs write."""

    mirrors: Mirrors
    progress: ProgressService


def build_application(
    home: Home,
    settings: Settings,
    database: Database,
    info: ServerInfo,
    nodes: NodeEndpoint,
    endpoints: ServerEndpoints | None = None,
    sandbox: Sandbox | None = None,
) -> Application:
    """Build the server on a migrated database. Starts nothing.

    `nodes` is the endpoint for nodes of a cluster. With `endpoints`, `gs://` in trainer code means this server's
    buckets. Without `sandbox`, user code runs as the server does.
    """
    core = build_core(home, settings, database, sandbox)
    core.sweep()
    remove_left_secrets(home.jobs, core.jobs.is_active)
    tokens = Tokens(
        TokenStore(database),
        job_active=core.jobs.is_active,
        version_there=core.models.has_version,
        user_disabled=UserStore(database).is_disabled,
    )
    tokens.ensure_owner(home.token)
    inject = LocalCredentials(endpoints, issue=tokens.issue_for_job).inject if endpoints else unchanged
    credentials = RemoteCredentials(nodes, issue=tokens.issue_for_job, issue_fetch_token=tokens.issue_job_fetch_token)
    builder = build_attempt_builder(core, serves_gs=nodes.serves_gs)
    ray = build_ray(
        core,
        builder,
        RemoteAccess(nodes, credentials, ArtifactAccessIssuer(nodes, issue=tokens.issue_version_fetch_token)),
    )
    hosts = HostEngineRouter({LOCAL_ENGINE: _local_hosts(core), RAY_ENGINE: ray.hosts})
    provisioner = _build_provisioner(core, hosts)
    job_plane = build_job_plane(core, provisioner, inject, builder, ray)
    serving_plane = build_serving_plane(core, provisioner)
    readers = _build_readers(core)
    tuning_plane = build_tuning_plane(core, job_plane.control, readers.progress)
    return Application(
        _build_services(core, job_plane, serving_plane, tuning_plane, readers, tokens, info),
        job_plane.control,
        tuning_plane.control,
        tuning_plane.sweepers,
        core.runtimes,
        core.engine.warm,
        serving_plane.routes,
        serving_plane.deployments,
        serving_plane.rollouts,
        hosts,
        core.machine,
        job_plane.ray,
        core.searcher,
        partial(
            end_orphans, home.jobs, core.engine, core.jobs.keys, timeout_s=settings.grace_s + ORPHANS_END_TIMEOUT_S
        ),
    )


def _local_hosts(core: Core) -> LocalHostEngine:
    return LocalHostEngine(
        core.home,
        ship=core.engine.ship,
        warm=core.engine.warm,
        containers=_host_containers(core.home, core.settings),
        env=core.engine.user_environment,
        sandbox=core.sandbox,
        secrets=core.secrets.values,
    )


def _build_readers(core: Core) -> _Readers:
    mirrors = Mirrors(core.home.mirrors, core.backend)
    mirrors.clear()
    return _Readers(mirrors=mirrors, progress=ProgressService(core.jobs, core.home, mirrors, owner=core.buckets.owner))


def _build_services(
    core: Core,
    job_plane: JobPlane,
    serving_plane: ServingPlane,
    tuning_plane: TuningPlane,
    readers: _Readers,
    tokens: Tokens,
    info: ServerInfo,
) -> Services:
    """Build the services that routes call."""
    control, deployments = job_plane.control, serving_plane.deployments
    uri_checker = UriChecker(buckets=core.buckets, objects=core.objects, backend=core.backend)
    runtimes = RuntimeService(
        core.runtimes,
        in_use=lambda name: core.jobs.runtime_in_use(name) or runtime_in_use(core.models, name),
    )
    progress, projects, audit = readers.progress, access_wiring.build_projects(core), access_wiring.build_audit(core)
    policies = PolicyStore(core.database)
    models, versions = build_models_and_versions(core, uri_checker, projects, job_plane, serving_plane)
    reports = JobReports(attempts=AttemptFolders(core.home.jobs), progress=progress, failures=Failures(core.home))
    return Services(
        tokens=tokens,
        account_keys=access_wiring.build_account_keys(core, tokens),
        networks=core.networks,
        quotas=access_wiring.build_quotas(core),
        rates=core.rates,
        secrets=core.secrets,
        users=access_wiring.build_users(core, tokens, Cancellations(core.jobs, control, tuning_plane.jobs)),
        oidc=access_wiring.build_oidc(core.home, tokens),
        audit=audit,
        sessions=BrowserSessions(tokens),
        projects=projects,
        jobs=_jobs(core, uri_checker, control, reports, tuning_plane.jobs),
        tuning=tuning_plane.jobs,
        job_rows=JobSearch(JobSearchStore(core.database)),
        progress=progress,
        overview=_overview(core, control, serving_plane, reports),
        exports=Exports(core.jobs, core.backend, owner=core.buckets.owner),
        chaos=Chaos(core.jobs, control),
        packages=JobArtifacts(core.jobs, core.home),
        version_files=VersionArtifacts(core.models, core.home),
        models=models,
        versions=versions,
        rollouts=Rollouts(core.models, deployments, serving_plane.rollouts),
        policies=Policies(policies, JOBS, core.jobs.get),
        model_policies=Policies(policies, MODELS, core.models.get),
        operations=Operations(core.operations, wake=deployments.wake),
        studies=Studies(StudyStore(core.database)),
        suggestions=Suggestions(StudyStore(core.database), core.searcher),
        searches=tuning_plane.searches,
        steering=tuning_plane.steering,
        predictions=serving_plane.gateway,
        replays=Replays(serving_plane.routes, serving_plane.gateway, serving_plane.logged_requests),
        logs=AuditedLogEntries(LogEntries(core.jobs, core.home), audit),
        log_writer=LogEntryWriter(core.jobs, core.home, job_plane.secrets_of),
        log_pages=LogPages(core.jobs, core.home),
        buckets=core.buckets,
        objects=core.objects,
        part_uploads=core.part_uploads,
        public_data=build_public_data(core),
        runtimes=runtimes,
        tensorboards=_tensorboards(core, runtimes, readers.mirrors),
        server=info,
        settings=core.effective_settings(),
        metrics=_metrics(core, serving_plane, info),
    )


def _tensorboards(core: Core, runtimes: RuntimeService, mirrors: Mirrors) -> TensorBoards:
    launcher = LocalTensorBoardLauncher(
        core.home.tensorboards, ship=core.engine.ship, env=core.engine.user_environment, sandbox=core.sandbox
    )
    return TensorBoards(core.jobs, core.home, launcher, runtimes, mirrors, owner=core.buckets.owner)


def _host_containers(home: Home, settings: Settings) -> HostContainers:
    options = ContainerOptions(
        network=settings.container_network,
        read_only=settings.container_read_only,
        load_timeout_s=settings.load_timeout_s,
        predict_timeout_s=settings.predict_timeout_s,
    )
    return HostContainers(home, options)


def _build_provisioner(core: Core, hosts: HostEngine) -> VersionProvisioner:
    model_files = ModelFileStore(core.home.models, core.backend, used=core.models.files_used)
    model_files.sweep()
    deps = ProvisionerDeps(
        home=core.home,
        model_files=model_files,
        runtimes=core.runtimes,
        installer=PackageInstaller(
            uv=find_uv(), ship=core.engine.ship, env=core.engine.build_environment, sandbox=core.sandbox
        ),
        references=ReferenceOutputs(
            core.engine.warm, ship=core.engine.ship, env=core.engine.user_environment, sandbox=core.sandbox
        ),
        uri_resolver=uri_resolver(core),
        images=ImageResolver(
            tool=core.settings.container_tool,
            registries=ImageRegistries.parse(core.settings.image_registries),
            number=access_wiring.build_projects(core).number,
        ),
        find_parity=find_parity(core.models),
    )
    resources = HostResources(
        cpus=core.cpus,
        memory_bytes=psutil.virtual_memory().total,
        load_timeout_s=core.settings.load_timeout_s,
        body_limit=core.settings.body_limit_mb << 20,
        available_bytes=lambda: psutil.virtual_memory().available,
    )
    return VersionProvisioner(deps, hosts, resources)


def _jobs(core: Core, uri_checker: UriChecker, control: JobController, reports: JobReports, tuning: TuningJobs) -> Jobs:
    checks = JobChecks(
        secrets=core.secrets,
        runtimes=core.runtimes,
        uri_checker=uri_checker,
        models=core.models,
        machines=core.machines,
        registries=ImageRegistries.parse(core.settings.image_registries),
        quotas=access_wiring.build_quotas(core),
    )
    return Jobs(core.jobs, control, checks, reports, tuning)


def _overview(core: Core, control: JobController, serving_plane: ServingPlane, reports: JobReports) -> Overview:
    stores = OverviewStores(jobs=core.jobs, job_search=JobSearchStore(core.database), models=core.models)
    live = LiveState(
        machine=core.machine,
        routes=serving_plane.routes,
        metrics=serving_plane.gateway.metrics,
        queue_status=control,
    )
    return Overview(stores, live, reports)


def _metrics(core: Core, serving_plane: ServingPlane, info: ServerInfo) -> ServerMetrics:
    sources = MetricSources(
        version=info.version,
        gateway=serving_plane.gateway,
        routes=serving_plane.routes,
        deployments=serving_plane.deployments,
        jobs=core.jobs,
        job_search=JobSearchStore(core.database),
        engines=(LOCAL_ENGINE, RAY_ENGINE),
        machine=core.machine,
    )
    return ServerMetrics(sources)
