"""Which service gets what: the one place where all parts of the server meet."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import psutil

from trainshed.buckets.tree import ObjectTree
from trainshed.buckets.uploads import Sessions
from trainshed.config import Home, Settings
from trainshed.control.batches import Batches
from trainshed.control.creations import Creations, Room, Supplies
from trainshed.control.credentials import Credentials, Reach
from trainshed.control.deployments import Deployments, alike, in_use
from trainshed.control.fleets import Habits
from trainshed.control.jobs import JobControl
from trainshed.control.launches import Launches
from trainshed.control.outcomes import Ledger
from trainshed.control.pinning import Pins
from trainshed.domain.jobs import ENDS, Job
from trainshed.domain.policies import JOBS, MODELS
from trainshed.domain.prediction import Prediction
from trainshed.engines.base import Launch
from trainshed.engines.hosts import LocalHosts
from trainshed.engines.installs import Installs
from trainshed.engines.local import LocalEngine
from trainshed.engines.predictions import predicted
from trainshed.engines.references import References
from trainshed.engines.restarts import restarts
from trainshed.engines.warm import WarmProcesses
from trainshed.errors import NotFound
from trainshed.gateway.predictions import Predictions
from trainshed.gateway.requestlog import RequestLogs
from trainshed.gateway.routes import Routes
from trainshed.runtimes.builds import Place
from trainshed.runtimes.catalogue import CATALOGUE
from trainshed.runtimes.environments import Runtimes
from trainshed.runtimes.uv import find_uv
from trainshed.services.buckets import Buckets
from trainshed.services.chaos import Chaos
from trainshed.services.jobs import Jobs, World
from trainshed.services.logs import Logs
from trainshed.services.models import Models, Serving
from trainshed.services.objects import Objects
from trainshed.services.operations import Operations
from trainshed.services.places import Places
from trainshed.services.policies import Policies
from trainshed.services.progress import Progress
from trainshed.services.projects import Projects
from trainshed.services.registry import Services
from trainshed.services.replays import LoggedRequests, Replays
from trainshed.services.runtimes import RuntimeService
from trainshed.services.server import ServerInfo
from trainshed.services.tokens import Tokens
from trainshed.services.versions import Versions
from trainshed.store.buckets import BucketStore
from trainshed.store.database import Database
from trainshed.store.jobs import JobStore
from trainshed.store.models import ModelStore
from trainshed.store.operations import OperationStore
from trainshed.store.policies import PolicyStore
from trainshed.store.projects import ProjectStore
from trainshed.store.tokens import TokenStore

SLOTS_PER_CORE = 4


@dataclass(frozen=True, slots=True)
class Assembly:
    """The services for the routes, and the loop that makes the world match the rows."""

    services: Services
    control: JobControl
    runtimes: Runtimes
    warm: WarmProcesses
    routes: Routes
    deployments: Deployments
    hosts: LocalHosts

    @contextmanager
    def running(self) -> Iterator[None]:
        """The loops run. On the way out, hosts are ended and builds of runtimes given up: the next server has both."""
        self.services.predictions.begin(self.deployments)
        self.warm.begin()
        self.hosts.begin(self.deployments.wake)
        self.deployments.start()
        self.control.start()
        self.runtimes.look_ahead()
        try:
            yield
        finally:
            self.services.predictions.close()
            self.control.stop()
            self.deployments.stop()
            self.services.runtimes.close()
            self.control.join()
            self.deployments.join()
            self.hosts.close()
            self.warm.close()


def assemble(
    home: Home, settings: Settings, database: Database, info: ServerInfo, reach: Reach | None = None
) -> Assembly:
    """Put the server together on a database that is ready. Starts nothing.

    With `reach`, `gs://` in the code of trainers leads to this server.
    """
    cpus = os.cpu_count() or 1
    uv = find_uv()
    jobs = JobStore(database)
    runtimes = Runtimes(home.runtimes, uv)
    tree = ObjectTree(home.buckets, home.uploads)
    buckets = Buckets(BucketStore(database), tree)
    objects = Objects(tree, Sessions(home.uploads), owner=buckets.owner)
    objects.sweep()
    launches = Launches(home, settings, jobs=jobs, runtimes=runtimes, owner=buckets.owner, cpus=cpus)
    tokens = Tokens(TokenStore(database), job_active=lambda project, job: _active(jobs, project, job))
    tokens.ensure_owner(home.token)
    equip = Credentials(reach, issue=tokens.issue_for_job).equip if reach else _as_it_is
    warm = {Place(home.runtimes / each.key).python: each.warm for each in CATALOGUE.values() if each.warm}
    engine = LocalEngine(home, uv, warm if settings.warm_start == "auto" else None)
    models, operations = ModelStore(database), OperationStore(database)
    hosts = LocalHosts(home, ship=engine.ship)
    pins = Pins(home.models, tree, home.buckets, used=models.files_used)
    pins.sweep()
    supplies = Supplies(
        home=home,
        pins=pins,
        runtimes=runtimes,
        installs=Installs(uv=uv, ship=engine.ship),
        references=References(engine.warm, ship=engine.ship),
        owner=buckets.owner,
        alike=alike(models),
    )
    creations = Creations(supplies, hosts, _room(settings, cpus))
    batches = Batches(settings=settings, jobs=jobs, models=models, creations=creations, tree=tree, ship=engine.ship)

    def prepare(job: Job) -> Launch:
        if Prediction.key in job.body:
            return batches.prepare(job, launches.folder(job))
        return equip(launches.prepare(job))

    control = JobControl(
        jobs,
        engine,
        folder=launches.folder,
        prepare=prepare,
        size=launches.size,
        slots=settings.slots or SLOTS_PER_CORE * cpus,
        poll_s=settings.poll_s,
        check=database.check_fence,
        give_up=lambda: os.kill(os.getpid(), signal.SIGTERM),
    )
    progress = Progress(jobs, home, owner=buckets.owner)
    places = Places(
        bucket_owner=buckets.owner,
        object_exists=objects.exists,
        folder_holds_files=objects.folder_holds_files,
        matches=objects.matches,
    )
    world = World(
        resolve_runtime=runtimes.resolve,
        places=places,
        model_runtime=lambda project, model, version: models.served(project, model, version).runtime,
        room=control.room,
        restarts=lambda job: [restart.sentence for restart in restarts(launches.folder(job))],
        progress=progress.of,
        predicted=lambda job: predicted(launches.folder(job)) if Prediction.key in job.body else None,
        cpus=cpus,
    )
    routes = Routes()
    logged = LoggedRequests(objects, owner=buckets.owner)
    predictions = Predictions(routes, RequestLogs(logged.write), timeout_s=settings.predict_timeout_s)
    deployments = Deployments(
        Ledger(models=models, operations=operations),
        creations,
        routes,
        predictions,
        habits=Habits(load_timeout_s=settings.load_timeout_s, sleep_after_s=settings.sleep_after_s),
        drain_s=settings.predict_timeout_s,
        check=database.check_fence,
    )
    serving = Serving(
        wake=deployments.wake,
        publish=deployments.publish,
        hosts=deployments.hosts,
        progress=deployments.progress,
        log_tail=deployments.log_tail,
        last_used_us=predictions.last_used_us,
        traffic=predictions.metrics.traffic,
    )
    projects, policies = Projects(ProjectStore(database)), PolicyStore(database)
    services = Services(
        tokens=tokens,
        projects=projects,
        jobs=Jobs(jobs, world, wake=control.wake),
        progress=progress,
        chaos=Chaos(jobs, engine, folder=launches.folder),
        models=Models(models, serving, project_number=projects.number),
        versions=Versions(
            models,
            serving,
            places,
            resolve_runtime=partial(runtimes.resolve, what="version"),
            project_number=projects.number,
        ),
        policies=Policies(policies, JOBS, jobs.get),
        model_policies=Policies(policies, MODELS, models.get),
        operations=Operations(operations, wake=deployments.wake),
        predictions=predictions,
        replays=Replays(routes, predictions, logged),
        logs=Logs(jobs, home),
        buckets=buckets,
        objects=objects,
        runtimes=RuntimeService(
            runtimes,
            in_use=lambda name: any(job.runtime == name for job in jobs.active()) or in_use(models, name),
        ),
        server=info,
    )
    return Assembly(services, control, runtimes, engine.warm, routes, deployments, hosts)


def _room(settings: Settings, cpus: int) -> Room:
    """What hosts may have of this machine."""
    return Room(
        cpus=cpus,
        memory_bytes=psutil.virtual_memory().total,
        load_timeout_s=settings.load_timeout_s,
        body_limit=settings.body_limit_mb << 20,
    )


def _as_it_is(launch: Launch) -> Launch:
    return launch


def _active(jobs: JobStore, project: str, job: str) -> bool:
    """Whether the job has not ended."""
    try:
        return jobs.get(project, job).state not in ENDS
    except NotFound:
        return False
