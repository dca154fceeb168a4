"""Which service gets what: the one place where all parts of the server meet."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import psutil

from trainshed.attempts.batch_progress import predicted
from trainshed.attempts.restarts import restarts
from trainshed.config import Home, Settings, default_project, environment
from trainshed.control.deployments.artifact_access import HostWays
from trainshed.control.deployments.completion import Ledger
from trainshed.control.deployments.container_versions import Images
from trainshed.control.deployments.controller import Deployments, alike, in_use
from trainshed.control.deployments.model_files import Pins
from trainshed.control.deployments.provisioner import Creations, Room, Supplies
from trainshed.control.jobs.batch_attempt import Batches
from trainshed.control.jobs.controller import JobControl
from trainshed.control.jobs.credentials import Credentials, NodeCredentials
from trainshed.control.jobs.engines import Site, Sites
from trainshed.control.jobs.local_attempt import Launches, free_ports
from trainshed.control.uri_resolver import Addresses
from trainshed.domain.jobs.batch_prediction import PREDICTION, Prediction
from trainshed.domain.jobs.gang import shortfall
from trainshed.domain.jobs.job import LOCAL, RAY, Job
from trainshed.domain.jobs.training import TRAINING, TRAINING_IN_CONTAINERS
from trainshed.domain.models.version import HOSTED, HOSTED_CONTAINER
from trainshed.domain.policies import JOBS, MODELS
from trainshed.engines.base import Launch
from trainshed.engines.hosts.base import Hosts, PlacedHosts
from trainshed.engines.local.containers import ServedContainers, Surroundings
from trainshed.engines.local.engine import SLOTS_PER_CORE
from trainshed.engines.local.hosts import LocalHosts
from trainshed.engines.local.package_installer import Installs
from trainshed.engines.local.reference_outputs import References
from trainshed.engines.local.tensorboards import TensorBoardStarter
from trainshed.engines.local.warm import WarmProcesses
from trainshed.gateway.gateway import Predictions
from trainshed.gateway.request_log import RequestLogs
from trainshed.gateway.routes import Routes
from trainshed.proxy.client_config import Reach
from trainshed.proxy.node_endpoint import NodeReach
from trainshed.runtimes.environments import Runtimes
from trainshed.runtimes.uv import find_uv
from trainshed.services.access.policies import Policies
from trainshed.services.access.projects import Projects
from trainshed.services.access.sessions import BrowserSessions
from trainshed.services.access.tokens import Tokens
from trainshed.services.artifacts import Packages, VersionFiles
from trainshed.services.console.machine_metrics import MachineHistory
from trainshed.services.console.overview import Overview, Rows, Sights
from trainshed.services.console.tensorboards import TensorBoards
from trainshed.services.jobs.chaos import Chaos
from trainshed.services.jobs.exports import Exports
from trainshed.services.jobs.failures import Failures
from trainshed.services.jobs.jobs import Jobs, World
from trainshed.services.jobs.progress import Progress
from trainshed.services.jobs.search import JobRows
from trainshed.services.logs.entries import Logs
from trainshed.services.logs.pages import Lines
from trainshed.services.models.models import Models, Serving
from trainshed.services.models.replays import LoggedRequests, Replays
from trainshed.services.models.versions import Versions
from trainshed.services.operations import Operations
from trainshed.services.registry import Services
from trainshed.services.runtimes import RuntimeService
from trainshed.services.server import ServerInfo
from trainshed.services.settings import SettingsInForce
from trainshed.services.storage.mirrors import Mirrors
from trainshed.services.storage.uris import Places
from trainshed.store.database import Database
from trainshed.store.job_search import JobTable
from trainshed.store.policies import PolicyStore
from trainshed.store.projects import ProjectStore
from trainshed.store.tokens import TokenStore
from trainshed.wiring.core import Ground, lay_ground
from trainshed.wiring.ray import Ground as RayGround
from trainshed.wiring.ray import RaySite

AT_ONCE_ELSEWHERE = 8  #: launches on other machines, which take a moment here


@dataclass(frozen=True, slots=True)
class Assembly:
    """The services for the routes, and the loop that makes the world match the rows."""

    services: Services
    control: JobControl
    runtimes: Runtimes
    warm: WarmProcesses
    routes: Routes
    deployments: Deployments
    hosts: Hosts
    machine: MachineHistory
    ray: RaySite

    @contextmanager
    def running(self) -> Iterator[None]:
        """The loops run. On the way out, hosts are ended and builds of runtimes given up: the next server has both."""
        self.services.predictions.begin(self.deployments)
        self.services.tensorboards.begin()
        self.warm.begin()
        self.hosts.begin(self.deployments.wake)
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
class _Away:
    """What jobs and hosts on other machines need of this one."""

    nodes: NodeReach
    credentials: NodeCredentials
    ways: HostWays


@dataclass(frozen=True, slots=True, kw_only=True)
class _Working:
    """What makes jobs run."""

    launches: Launches
    sites: Sites
    ray: RaySite
    control: JobControl


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answering:
    """What makes versions answer."""

    routes: Routes
    logged: LoggedRequests
    predictions: Predictions
    deployments: Deployments


def assemble(
    home: Home,
    settings: Settings,
    database: Database,
    info: ServerInfo,
    nodes: NodeReach,
    reach: Reach | None = None,
) -> Assembly:
    """Put the server together on a database that is ready. Starts nothing.

    `nodes` is how other machines get to it. With `reach`, `gs://` in the code of trainers leads to this server.
    """
    ground = lay_ground(home, settings, database)
    ground.objects.sweep()
    tokens = Tokens(TokenStore(database), job_active=ground.jobs.is_active, version_there=ground.models.has_version)
    tokens.ensure_owner(home.token)
    equip = Credentials(reach, issue=tokens.issue_for_job).equip if reach else _as_it_is
    away = NodeCredentials(nodes, issue=tokens.issue_for_job, issue_courier=tokens.issue_for_packages)
    launches = _launches(ground, leads=nodes.leads)
    ray = _ray(ground, launches, _Away(nodes, away, HostWays(nodes, issue=tokens.issue_for_version)))
    here = LocalHosts(
        home, ship=ground.engine.ship, warm=ground.engine.warm, containers=_served_containers(home, settings)
    )
    hosts = PlacedHosts({LOCAL: here, RAY: ray.hosts})
    creations = _creations(ground, hosts)
    working = _working(ground, creations, equip, launches, ray)
    answering = _answering(ground, creations)
    return Assembly(
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


def _answering(ground: Ground, creations: Creations) -> _Answering:
    routes = Routes()
    logged = LoggedRequests(ground.objects, owner=ground.buckets.owner)
    predictions = Predictions(routes, RequestLogs(logged.write), timeout_s=ground.settings.predict_timeout_s)
    deployments = Deployments(
        Ledger(models=ground.models, operations=ground.operations),
        creations,
        routes,
        predictions,
        sleep_after_s=ground.settings.sleep_after_s,
        drain_s=ground.settings.predict_timeout_s,
        check=ground.database.check_fence,
    )
    return _Answering(routes=routes, logged=logged, predictions=predictions, deployments=deployments)


def _services(ground: Ground, working: _Working, answering: _Answering, tokens: Tokens, info: ServerInfo) -> Services:
    """What routes call."""
    launches, control, deployments = working.launches, working.control, answering.deployments
    places = Places(
        bucket_owner=ground.buckets.owner,
        object_exists=ground.objects.exists,
        folder_holds_files=ground.objects.folder_holds_files,
        matches=ground.objects.matches,
        cloud_of=ground.tree.cloud_of,
    )
    runtimes = RuntimeService(
        ground.runtimes,
        in_use=lambda name: any(job.runtime == name for job in ground.jobs.active()) or in_use(ground.models, name),
    )
    boards = TensorBoardStarter(ground.home.tensorboards, ship=ground.engine.ship)
    mirrors = Mirrors(ground.home.mirrors, ground.tree)
    mirrors.clear()
    progress = Progress(ground.jobs, ground.home, mirrors, owner=ground.buckets.owner)
    projects = _projects(ground)
    policies = PolicyStore(ground.database)
    models, versions = _registry(ground, places, projects, working, answering)
    world = _world(ground, places, working, progress)
    return Services(
        tokens=tokens,
        sessions=BrowserSessions(tokens),
        projects=projects,
        jobs=Jobs(ground.jobs, world, wake=control.wake),
        job_rows=JobRows(JobTable(ground.database)),
        progress=progress,
        overview=_overview(ground, answering, world),
        exports=Exports(ground.jobs, ground.tree, owner=ground.buckets.owner),
        chaos=Chaos(ground.jobs, engine=lambda job: working.sites.of(job).engine, folder=launches.folder),
        packages=Packages(ground.jobs, ground.home),
        version_files=VersionFiles(ground.models, ground.home),
        models=models,
        versions=versions,
        policies=Policies(policies, JOBS, ground.jobs.get),
        model_policies=Policies(policies, MODELS, ground.models.get),
        operations=Operations(ground.operations, wake=deployments.wake),
        predictions=answering.predictions,
        replays=Replays(answering.routes, answering.predictions, answering.logged),
        logs=Logs(ground.jobs, ground.home),
        lines=Lines(ground.jobs, ground.home),
        buckets=ground.buckets,
        objects=ground.objects,
        runtimes=runtimes,
        tensorboards=TensorBoards(ground.jobs, ground.home, boards, runtimes, mirrors, owner=ground.buckets.owner),
        server=info,
        settings=SettingsInForce(
            ground.settings, ground.settings.sources(environment(), ground.home.file_settings().get("server"))
        ),
    )


def _addresses(ground: Ground) -> Addresses:
    return Addresses(buckets=ground.home.buckets, shelves=ground.tree, owner=ground.buckets.owner)


def _projects(ground: Ground) -> Projects:
    return Projects(ProjectStore(ground.database), default=default_project(ground.home, environment()))


def _served_containers(home: Home, settings: Settings) -> ServedContainers:
    surroundings = Surroundings(
        network=settings.container_network,
        read_only=settings.container_read_only,
        load_timeout_s=settings.load_timeout_s,
        predict_timeout_s=settings.predict_timeout_s,
    )
    return ServedContainers(home, surroundings, free_port=lambda: free_ports(1)[0])


def _creations(ground: Ground, hosts: Hosts) -> Creations:
    pins = Pins(ground.home.models, ground.tree, used=ground.models.files_used)
    pins.sweep()
    supplies = Supplies(
        home=ground.home,
        pins=pins,
        runtimes=ground.runtimes,
        installs=Installs(uv=find_uv(), ship=ground.engine.ship),
        references=References(ground.engine.warm, ship=ground.engine.ship),
        addresses=_addresses(ground),
        images=Images(tool=ground.settings.container_tool, number=_projects(ground).number),
        alike=alike(ground.models),
    )
    room = Room(
        cpus=ground.cpus,
        memory_bytes=psutil.virtual_memory().total,
        load_timeout_s=ground.settings.load_timeout_s,
        body_limit=ground.settings.body_limit_mb << 20,
    )
    return Creations(supplies, hosts, room)


def _launches(ground: Ground, *, leads: bool) -> Launches:
    return Launches(
        ground.home,
        ground.settings,
        jobs=ground.jobs,
        runtimes=ground.runtimes,
        addresses=_addresses(ground),
        buckets=_folders(ground),
        leads=leads,
        cpus=ground.cpus,
        machines=ground.machines,
    )


def _working(
    ground: Ground, creations: Creations, equip: Callable[[Launch], Launch], launches: Launches, ray: RaySite
) -> _Working:
    batches = Batches(
        settings=ground.settings,
        jobs=ground.jobs,
        models=ground.models,
        creations=creations,
        tree=ground.tree,
        ship=ground.engine.ship,
    )

    def prepare(job: Job) -> Launch:
        if Prediction.key in job.body:
            return batches.prepare(job, launches.folder(job))
        return equip(launches.prepare(job))

    here = Site(
        engine=ground.engine,
        prepare=prepare,
        takes=frozenset({TRAINING, TRAINING_IN_CONTAINERS, PREDICTION, HOSTED, HOSTED_CONTAINER}),
        shortfall=partial(shortfall, cpus=ground.cpus, machines=ground.machines),
    )
    sites = Sites({LOCAL: here, RAY: ray.site}, default=ground.settings.engine, machines=ground.machines)
    control = JobControl(
        ground.jobs,
        sites,
        gang=launches.gang,
        at_once=(ground.settings.slots or SLOTS_PER_CORE * ground.cpus) + AT_ONCE_ELSEWHERE,
        poll_s=ground.settings.poll_s,
        check=ground.database.check_fence,
        give_up=lambda: os.kill(os.getpid(), signal.SIGTERM),
    )
    return _Working(launches=launches, sites=sites, ray=ray, control=control)


def _folders(ground: Ground) -> Callable[[str], Iterable[str]]:
    """Names the buckets of a project that are folders, and not kept in a cloud."""
    return lambda project: (name for name in ground.buckets.names(project) if not ground.tree.cloud_of(name))


def _ray(ground: Ground, launches: Launches, away: _Away) -> RaySite:
    return RaySite(
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


def _world(ground: Ground, places: Places, working: _Working, progress: Progress) -> World:
    launches = working.launches
    return World(
        resolve_runtime=ground.runtimes.resolve,
        places=places,
        model_runtime=lambda project, model, version: ground.models.served(project, model, version).runtime,
        choose_engine=working.sites.choose,
        prospects=working.control,
        restarts=lambda job: [restart.sentence for restart in restarts(launches.folder(job))],
        progress=progress.of,
        predicted=lambda job: predicted(launches.folder(job)) if Prediction.key in job.body else None,
        failure=Failures(ground.home).of,
        shortfall=lambda engine, training: working.sites.table[engine].shortfall(training),
        machines=ground.machines,
    )


def _overview(ground: Ground, answering: _Answering, world: World) -> Overview:
    rows = Rows(jobs=ground.jobs, table=JobTable(ground.database), models=ground.models)
    sights = Sights(
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
    ground: Ground, places: Places, projects: Projects, working: _Working, answering: _Answering
) -> tuple[Models, Versions]:
    deployments, predictions = answering.deployments, answering.predictions
    serving = Serving(
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


def _as_it_is(launch: Launch) -> Launch:
    return launch
