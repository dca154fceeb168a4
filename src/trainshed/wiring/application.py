"""Which service gets what: the one place where all parts of the server meet."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import psutil

from trainshed.attempts.batch_progress import read_batch_progress
from trainshed.attempts.journal import restarts
from trainshed.config import Home, Settings, default_project, environment
from trainshed.control.deployments.artifact_access import ArtifactAccessIssuer
from trainshed.control.deployments.completion import DeploymentStores
from trainshed.control.deployments.controller import DeploymentController, find_parity_twin, runtime_in_use
from trainshed.control.deployments.model_files import ModelFileStore
from trainshed.control.deployments.provisioner import HostResources, ImageResolver, ProvisionerDeps, VersionProvisioner
from trainshed.control.jobs.batch_attempt import BatchAttemptBuilder
from trainshed.control.jobs.controller import JobController
from trainshed.control.jobs.credentials import LocalCredentials, RemoteCredentials
from trainshed.control.jobs.engines import EngineRegistry, RegisteredEngine
from trainshed.control.jobs.local_attempt import LocalAttemptBuilder, free_ports
from trainshed.control.uri_resolver import UriResolver
from trainshed.domain.jobs.batch_prediction import PREDICTION, BatchPrediction
from trainshed.domain.jobs.gang import shortfall
from trainshed.domain.jobs.job import LOCAL_ENGINE, RAY_ENGINE, Job
from trainshed.domain.jobs.training import TRAINING, TRAINING_IN_CONTAINERS
from trainshed.domain.models.version import HOSTED, HOSTED_CONTAINER
from trainshed.domain.policies import JOBS, MODELS
from trainshed.engines.base import AttemptSpec
from trainshed.engines.hosts.base import HostEngine, HostEngineRouter
from trainshed.engines.local.containers import ContainerOptions, HostContainers
from trainshed.engines.local.engine import SLOTS_PER_CORE
from trainshed.engines.local.hosts import LocalHostEngine
from trainshed.engines.local.package_installer import PackageInstaller
from trainshed.engines.local.reference_outputs import ReferenceOutputs
from trainshed.engines.local.tensorboards import TensorBoardStarter
from trainshed.engines.local.warm import WarmProcesses
from trainshed.gateway.gateway import PredictionGateway
from trainshed.gateway.request_log import RequestLogWriter
from trainshed.gateway.routes import Routes
from trainshed.proxy.client_config import ServerEndpoints
from trainshed.proxy.node_endpoint import NodeEndpoint
from trainshed.runtimes.environments import Runtimes
from trainshed.runtimes.uv import find_uv
from trainshed.services.access.policies import Policies
from trainshed.services.access.projects import Projects
from trainshed.services.access.sessions import BrowserSessions
from trainshed.services.access.tokens import Tokens
from trainshed.services.artifacts import JobArtifacts, VersionArtifacts
from trainshed.services.console.machine_metrics import MachineMetrics
from trainshed.services.console.overview import Overview, OverviewSources, OverviewStores
from trainshed.services.console.tensorboards import TensorBoards
from trainshed.services.jobs.chaos import Chaos
from trainshed.services.jobs.exports import Exports
from trainshed.services.jobs.failures import Failures
from trainshed.services.jobs.jobs import JobDependencies, Jobs
from trainshed.services.jobs.progress import ProgressService
from trainshed.services.jobs.search import JobSearch
from trainshed.services.logs.entries import LogEntries
from trainshed.services.logs.pages import LogPages
from trainshed.services.models.models import Models, ServingDependencies
from trainshed.services.models.replays import LoggedRequests, Replays
from trainshed.services.models.versions import Versions
from trainshed.services.operations import Operations
from trainshed.services.registry import Services
from trainshed.services.runtimes import RuntimeService
from trainshed.services.server import EffectiveSettings, ServerInfo
from trainshed.services.storage.mirrors import Mirrors
from trainshed.services.storage.uris import UriChecker
from trainshed.store.database import Database
from trainshed.store.job_search import JobSearchStore
from trainshed.store.policies import PolicyStore
from trainshed.store.projects import ProjectStore
from trainshed.store.tokens import TokenStore
from trainshed.wiring.core import Core, build_core
from trainshed.wiring.ray import RayDependencies as RayGround
from trainshed.wiring.ray import RayIntegration

MAX_REMOTE_LAUNCHES = 8  #: launches on other machines, which take a moment here


@dataclass(frozen=True, slots=True)
class Application:
    """The services for the routes, and the loop that makes the world match the rows."""

    services: Services
    control: JobController
    runtimes: Runtimes
    warm: WarmProcesses
    routes: Routes
    deployments: DeploymentController
    hosts: HostEngine
    machine: MachineMetrics
    ray: RayIntegration

    @contextmanager
    def running(self) -> Iterator[None]:
        """The loops run. On the way out, hosts are ended and builds of runtimes given up: the next server has both."""
        self.services.predictions.begin(self.deployments)
        self.services.tensorboards.begin()
        self.warm.begin()
        self.hosts.open(self.deployments.wake)
        self.deployments.start()
        self.control.start()
        self.ray.begin(self.control.wake)
        self.runtimes.look_ahead()
        self.machine.begin()
        try:
            yield
        finally:
            self.machine.close()
            self.services.predictions.close()
            self.services.tensorboards.close()
            self.control.stop()
            self.deployments.stop()
            self.services.runtimes.close()
            self.control.join()
            self.deployments.join()
            self.hosts.close()
            self.ray.close()  # by which hosts are ended too
            self.warm.close()


@dataclass(frozen=True, slots=True)
class _RemoteAccess:
    """What jobs and hosts on other machines need of this one."""

    nodes: NodeEndpoint
    credentials: RemoteCredentials
    ways: ArtifactAccessIssuer


@dataclass(frozen=True, slots=True, kw_only=True)
class _JobPlane:
    """What makes jobs run."""

    launches: LocalAttemptBuilder
    sites: EngineRegistry
    ray: RayIntegration
    control: JobController


@dataclass(frozen=True, slots=True, kw_only=True)
class _ServingPlane:
    """What makes versions answer."""

    routes: Routes
    logged: LoggedRequests
    predictions: PredictionGateway
    deployments: DeploymentController


def build_application(
    home: Home,
    settings: Settings,
    database: Database,
    info: ServerInfo,
    nodes: NodeEndpoint,
    reach: ServerEndpoints | None = None,
) -> Application:
    """Put the server together on a database that is ready. Starts nothing.

    `nodes` is how other machines get to it. With `reach`, `gs://` in the code of trainers leads to this server.
    """
    ground = build_core(home, settings, database)
    ground.objects.sweep()
    tokens = Tokens(TokenStore(database), job_active=ground.jobs.is_active, version_there=ground.models.has_version)
    tokens.ensure_owner(home.token)
    equip = LocalCredentials(reach, issue=tokens.issue_for_job).inject if reach else _as_it_is
    away = RemoteCredentials(nodes, issue=tokens.issue_for_job, issue_fetch_token=tokens.issue_job_fetch_token)
    launches = _launches(ground, serves_gs=nodes.serves_gs)
    ray = _ray(
        ground,
        launches,
        _RemoteAccess(nodes, away, ArtifactAccessIssuer(nodes, issue=tokens.issue_version_fetch_token)),
    )
    here = LocalHostEngine(
        home, ship=ground.engine.ship, warm=ground.engine.warm, containers=_served_containers(home, settings)
    )
    hosts = HostEngineRouter({LOCAL_ENGINE: here, RAY_ENGINE: ray.hosts})
    creations = _creations(ground, hosts)
    working = _working(ground, creations, equip, launches, ray)
    answering = _answering(ground, creations)
    return Application(
        _services(ground, working, answering, tokens, info),
        working.control,
        ground.runtimes,
        ground.engine.warm,
        answering.routes,
        answering.deployments,
        hosts,
        ground.machine,
        working.ray,
    )


def _answering(ground: Core, creations: VersionProvisioner) -> _ServingPlane:
    routes = Routes()
    logged = LoggedRequests(ground.objects, owner=ground.buckets.owner)
    predictions = PredictionGateway(routes, RequestLogWriter(logged.write), timeout_s=ground.settings.predict_timeout_s)
    deployments = DeploymentController(
        DeploymentStores(models=ground.models, operations=ground.operations),
        creations,
        routes,
        predictions,
        sleep_after_s=ground.settings.sleep_after_s,
        drain_s=ground.settings.predict_timeout_s,
        check=ground.database.check_fence,
    )
    return _ServingPlane(routes=routes, logged=logged, predictions=predictions, deployments=deployments)


def _services(ground: Core, working: _JobPlane, answering: _ServingPlane, tokens: Tokens, info: ServerInfo) -> Services:
    """What routes call."""
    launches, control, deployments = working.launches, working.control, answering.deployments
    places = UriChecker(
        bucket_owner=ground.buckets.owner,
        object_exists=ground.objects.exists,
        folder_holds_files=ground.objects.folder_holds_files,
        matches=ground.objects.matches,
        cloud_of=ground.tree.cloud_of,
    )
    runtimes = RuntimeService(
        ground.runtimes,
        in_use=lambda name: (
            any(job.runtime == name for job in ground.jobs.active()) or runtime_in_use(ground.models, name)
        ),
    )
    boards = TensorBoardStarter(ground.home.tensorboards, ship=ground.engine.ship)
    mirrors = Mirrors(ground.home.mirrors, ground.tree)
    mirrors.clear()
    progress = ProgressService(ground.jobs, ground.home, mirrors, owner=ground.buckets.owner)
    projects = _projects(ground)
    policies = PolicyStore(ground.database)
    models, versions = _registry(ground, places, projects, working, answering)
    world = _world(ground, places, working, progress)
    return Services(
        tokens=tokens,
        sessions=BrowserSessions(tokens),
        projects=projects,
        jobs=Jobs(ground.jobs, world, wake=control.wake),
        job_rows=JobSearch(JobSearchStore(ground.database)),
        progress=progress,
        overview=_overview(ground, answering, world),
        exports=Exports(ground.jobs, ground.tree, owner=ground.buckets.owner),
        chaos=Chaos(ground.jobs, engine=lambda job: working.sites.of(job).engine, folder=launches.folder),
        packages=JobArtifacts(ground.jobs, ground.home),
        version_files=VersionArtifacts(ground.models, ground.home),
        models=models,
        versions=versions,
        policies=Policies(policies, JOBS, ground.jobs.get),
        model_policies=Policies(policies, MODELS, ground.models.get),
        operations=Operations(ground.operations, wake=deployments.wake),
        predictions=answering.predictions,
        replays=Replays(answering.routes, answering.predictions, answering.logged),
        logs=LogEntries(ground.jobs, ground.home),
        lines=LogPages(ground.jobs, ground.home),
        buckets=ground.buckets,
        objects=ground.objects,
        runtimes=runtimes,
        tensorboards=TensorBoards(ground.jobs, ground.home, boards, runtimes, mirrors, owner=ground.buckets.owner),
        server=info,
        settings=EffectiveSettings(
            ground.settings, ground.settings.sources(environment(), ground.home.file_settings().get("server"))
        ),
    )


def _addresses(ground: Core) -> UriResolver:
    return UriResolver(buckets=ground.home.buckets, shelves=ground.tree, owner=ground.buckets.owner)


def _projects(ground: Core) -> Projects:
    return Projects(ProjectStore(ground.database), default=default_project(ground.home, environment()))


def _served_containers(home: Home, settings: Settings) -> HostContainers:
    surroundings = ContainerOptions(
        network=settings.container_network,
        read_only=settings.container_read_only,
        load_timeout_s=settings.load_timeout_s,
        predict_timeout_s=settings.predict_timeout_s,
    )
    return HostContainers(home, surroundings, free_port=lambda: free_ports(1)[0])


def _creations(ground: Core, hosts: HostEngine) -> VersionProvisioner:
    pins = ModelFileStore(ground.home.models, ground.tree, used=ground.models.files_used)
    pins.sweep()
    supplies = ProvisionerDeps(
        home=ground.home,
        pins=pins,
        runtimes=ground.runtimes,
        installs=PackageInstaller(uv=find_uv(), ship=ground.engine.ship),
        references=ReferenceOutputs(ground.engine.warm, ship=ground.engine.ship),
        addresses=_addresses(ground),
        images=ImageResolver(tool=ground.settings.container_tool, number=_projects(ground).number),
        alike=find_parity_twin(ground.models),
    )
    room = HostResources(
        cpus=ground.cpus,
        memory_bytes=psutil.virtual_memory().total,
        load_timeout_s=ground.settings.load_timeout_s,
        body_limit=ground.settings.body_limit_mb << 20,
    )
    return VersionProvisioner(supplies, hosts, room)


def _launches(ground: Core, *, serves_gs: bool) -> LocalAttemptBuilder:
    return LocalAttemptBuilder(
        ground.home,
        ground.settings,
        jobs=ground.jobs,
        runtimes=ground.runtimes,
        addresses=_addresses(ground),
        buckets=_folders(ground),
        serves_gs=serves_gs,
        cpus=ground.cpus,
        machines=ground.machines,
    )


def _working(
    ground: Core,
    creations: VersionProvisioner,
    equip: Callable[[AttemptSpec], AttemptSpec],
    launches: LocalAttemptBuilder,
    ray: RayIntegration,
) -> _JobPlane:
    batches = BatchAttemptBuilder(
        settings=ground.settings,
        jobs=ground.jobs,
        models=ground.models,
        creations=creations,
        tree=ground.tree,
        ship=ground.engine.ship,
    )

    def prepare(job: Job) -> AttemptSpec:
        if BatchPrediction.key in job.body:
            return batches.prepare(job, launches.folder(job))
        return equip(launches.prepare(job))

    here = RegisteredEngine(
        engine=ground.engine,
        prepare=prepare,
        supports=frozenset({TRAINING, TRAINING_IN_CONTAINERS, PREDICTION, HOSTED, HOSTED_CONTAINER}),
        shortfall=partial(shortfall, cpus=ground.cpus, machines=ground.machines),
    )
    sites = EngineRegistry(
        {LOCAL_ENGINE: here, RAY_ENGINE: ray.site}, default=ground.settings.engine, machines=ground.machines
    )
    control = JobController(
        ground.jobs,
        sites,
        gang=launches.gang,
        at_once=(ground.settings.slots or SLOTS_PER_CORE * ground.cpus) + MAX_REMOTE_LAUNCHES,
        poll_s=ground.settings.poll_s,
        check=ground.database.check_fence,
        give_up=lambda: os.kill(os.getpid(), signal.SIGTERM),
    )
    return _JobPlane(launches=launches, sites=sites, ray=ray, control=control)


def _folders(ground: Core) -> Callable[[str], Iterable[str]]:
    """Names the buckets of a project that are folders, and not kept in a cloud."""
    return lambda project: (name for name in ground.buckets.names(project) if not ground.tree.cloud_of(name))


def _ray(ground: Core, launches: LocalAttemptBuilder, away: _RemoteAccess) -> RayIntegration:
    return RayIntegration(
        RayGround(
            home=ground.home,
            settings=ground.settings,
            uv=find_uv(),
            machines=ground.machines,
            supervisors=ground.engine,
            nodes=away.nodes,
            credentials=away.credentials,
            way=away.ways.of,
            addresses=_addresses(ground),
            buckets=_folders(ground),
            folder=launches.folder,
        )
    )


def _world(ground: Core, places: UriChecker, working: _JobPlane, progress: ProgressService) -> JobDependencies:
    launches = working.launches
    return JobDependencies(
        resolve_runtime=ground.runtimes.resolve,
        places=places,
        model_runtime=lambda project, model, version: ground.models.served(project, model, version).runtime,
        choose_engine=working.sites.choose,
        prospects=working.control,
        restarts=lambda job: [restart.sentence for restart in restarts(launches.folder(job))],
        progress=progress.of,
        predicted=lambda job: read_batch_progress(launches.folder(job)) if BatchPrediction.key in job.body else None,
        failure=Failures(ground.home).of,
        shortfall=lambda engine, training: working.sites.table[engine].shortfall(training),
        machines=ground.machines,
    )


def _overview(ground: Core, answering: _ServingPlane, world: JobDependencies) -> Overview:
    rows = OverviewStores(jobs=ground.jobs, table=JobSearchStore(ground.database), models=ground.models)
    sights = OverviewSources(
        machine=ground.machine,
        routes=answering.routes,
        metrics=answering.predictions.metrics,
        prospects=world.prospects,
        progress=world.progress,
        predicted=world.predicted,
        restarts=world.restarts,
        diagnosed=Failures(ground.home).diagnosed,
    )
    return Overview(rows, sights)


def _registry(
    ground: Core, places: UriChecker, projects: Projects, working: _JobPlane, answering: _ServingPlane
) -> tuple[Models, Versions]:
    deployments, predictions = answering.deployments, answering.predictions
    serving = ServingDependencies(
        wake=deployments.wake,
        publish=deployments.publish,
        hosts=deployments.hosts,
        progress=deployments.progress,
        log_tail=deployments.log_tail,
        last_used_us=predictions.last_used_us,
        choose_engine=working.sites.choose_for_hosts,
        traffic=predictions.metrics.traffic,
    )
    versions = Versions(
        ground.models,
        serving,
        places,
        resolve_runtime=partial(ground.runtimes.resolve, what="version"),
        project_number=projects.number,
    )
    return Models(ground.models, serving, project_number=projects.number), versions


def _as_it_is(launch: AttemptSpec) -> AttemptSpec:
    return launch
