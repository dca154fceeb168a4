"""The core of a server that all other parts depend on: stores, buckets, runtimes and the local engine."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from trainshed.buckets.backend import BackendRouter
from trainshed.buckets.cloud.backend import CloudBackend
from trainshed.buckets.cloud.config import CloudBucketConfig, read_cloud_buckets
from trainshed.buckets.file_backend import FileBackend
from trainshed.buckets.noncurrent import bytes_of_versions
from trainshed.buckets.uploads import PartSessions, UploadSessions
from trainshed.config import Home, Settings, default_project, environment
from trainshed.domain.capacity.machine_types import MachineTypes
from trainshed.domain.objects import ListQuery
from trainshed.engines.local.engine import LocalEngine
from trainshed.engines.local.sandbox import Sandbox
from trainshed.engines.local.search_process import SearchProcess
from trainshed.errors import CannotProceedError
from trainshed.runtimes.builds import EnvironmentDir
from trainshed.runtimes.catalogue import CATALOGUE
from trainshed.runtimes.environments import Runtimes
from trainshed.runtimes.find_links import find_links
from trainshed.runtimes.uv import find_uv
from trainshed.services.access.networks import ProjectNetworks
from trainshed.services.access.projects import Projects
from trainshed.services.access.request_rates import RequestRates
from trainshed.services.access.secret_key import SecretKey
from trainshed.services.access.secrets import Secrets
from trainshed.services.console.machine_metrics import MachineMetrics, sample_machine
from trainshed.services.server import EffectiveSettings
from trainshed.services.storage.bucket_bytes import BucketBytes
from trainshed.services.storage.buckets import Buckets
from trainshed.services.storage.objects import Objects
from trainshed.services.storage.part_uploads import PartUploads
from trainshed.store.access.networks import NetworkStore
from trainshed.store.access.quotas import QuotaStore
from trainshed.store.access.secrets import SecretStore
from trainshed.store.buckets import BucketStore
from trainshed.store.database import Database
from trainshed.store.jobs import JobStore
from trainshed.store.models import ModelStore
from trainshed.store.operations import OperationStore
from trainshed.store.projects import ProjectStore

LOG = logging.getLogger("trainshed.wiring.core")


@dataclass(frozen=True, slots=True, kw_only=True)
class Core:
    """Built once and shared by all parts."""

    home: Home
    settings: Settings
    database: Database
    cpus: int
    jobs: JobStore
    models: ModelStore
    operations: OperationStore
    quotas: QuotaStore
    networks: ProjectNetworks
    rates: RequestRates
    stored: BucketBytes
    secrets: Secrets
    runtimes: Runtimes
    backend: BackendRouter
    buckets: Buckets
    objects: Objects
    part_uploads: PartUploads
    sandbox: Sandbox | None
    engine: LocalEngine
    machine: MachineMetrics
    machines: MachineTypes
    searcher: SearchProcess  #: of studies and of tuning jobs

    def effective_settings(self) -> EffectiveSettings:
        """The settings in force, with where each is from."""
        return EffectiveSettings(
            self.settings, self.settings.sources(environment(), self.home.file_settings().get("server"))
        )

    def sweep(self) -> None:
        """Remove what interrupted requests left of objects. Call it only before the first request."""
        self.objects.sweep()
        self.part_uploads.sweep()


def build_core(home: Home, settings: Settings, database: Database, sandbox: Sandbox | None = None) -> Core:
    """Build the core on a migrated database. Starts nothing."""
    uv, cpus = find_uv(), os.cpu_count() or 1
    bucket_store = BucketStore(database)
    file_backend = FileBackend(home.buckets, home.uploads, rules=bucket_store.rules)
    cloud_buckets = read_cloud_buckets(
        home.file_settings().get("buckets", {}), default_project=default_project(home, environment())
    )
    backend = BackendRouter(file_backend, {each.name: CloudBackend(each.cloud()) for each in cloud_buckets})
    _make_missing_folders(bucket_store, home.buckets, file_backend)
    parts = PartSessions(home.uploads / "parts")
    buckets = Buckets(bucket_store, backend, uploads=parts)
    _register_cloud_buckets(cloud_buckets, buckets, file_backend)
    quotas = QuotaStore(database)
    quotas.all()  # so that `known` has them
    stored = _build_bucket_bytes(home, backend, buckets, quotas)
    projects = Projects(ProjectStore(database), default=default_project(home, environment()))
    warm = {EnvironmentDir(home.runtimes / each.key).python: each.warm for each in CATALOGUE.values() if each.warm}
    networks = ProjectNetworks(NetworkStore(database), default=settings.network)
    if sandbox is not None:
        reached = sandbox.networks and replace(sandbox.networks, access=networks.of)
        sandbox = replace(sandbox, number=projects.number, networks=reached)
    objects = Objects(
        backend,
        UploadSessions(home.uploads),
        owner=buckets.owner,
        stored=stored,
        rules=bucket_store.rules,
        note_hold=buckets.note_hold,
    )
    return Core(
        home=home,
        settings=settings,
        database=database,
        cpus=cpus,
        jobs=JobStore(database),
        models=ModelStore(database),
        operations=OperationStore(database),
        networks=networks,
        quotas=quotas,
        rates=RequestRates(lambda: quotas.known),
        stored=stored,
        secrets=Secrets(SecretStore(database), SecretKey(home.secret_key)),
        runtimes=Runtimes(home.runtimes, uv, find_links=find_links(settings.runtime_find_links, environment())),
        backend=backend,
        buckets=buckets,
        objects=objects,
        part_uploads=PartUploads(objects, parts),
        sandbox=sandbox,
        engine=LocalEngine(
            home,
            uv,
            warm if settings.warm_start == "auto" else None,
            slots=settings.slots,
            passed=settings.passed_variables,
            single_replica_share=settings.single_replica_share,
            sandbox=sandbox,
            warm_idle_s=settings.warm_idle_s,
        ),
        machine=MachineMetrics(partial(sample_machine, home.path), cpus=cpus),
        machines=MachineTypes.read(home.file_settings().get("machines", {})),
        searcher=SearchProcess(),
    )


def _make_missing_folders(store: BucketStore, root: Path, file_backend: FileBackend) -> None:
    """Make the folders of buckets that have none, as after a restore without objects: they are empty, and usable."""
    for name in store.names():
        if not (root / name).is_dir():
            LOG.warning("bucket.folder_missing bucket=%s reason='It is empty from now on.'", name)
            file_backend.make_bucket(name)


def _register_cloud_buckets(
    cloud_buckets: tuple[CloudBucketConfig, ...], buckets: Buckets, file_backend: FileBackend
) -> None:
    """Register the buckets that are in clouds. Raises `CannotProceedError` if one would hide local objects."""
    for each in cloud_buckets:
        buckets.adopt(each.project, each.name, url=each.url)
        if file_backend.list(each.name, ListQuery(limit=1, checksums=False)).items:
            raise CannotProceedError(
                f"[buckets.{each.name}] in config.toml keeps gs://{each.name} in {each.url}, but there are objects in "
                f"this bucket's own folder, which nobody would see any more. Move them away first, or choose another "
                f"name for the bucket."
            )


def _build_bucket_bytes(home: Home, backend: BackendRouter, buckets: Buckets, quotas: QuotaStore) -> BucketBytes:
    """Build the counter of what projects have in buckets that are folders here. A cloud counts its own."""

    def scan(project: str) -> int:
        names = (name for name in buckets.names(project) if not backend.cloud_of(name))
        return sum(bytes_of_versions(home.buckets, name) for name in names)

    def owner(bucket: str) -> str:
        if not quotas.known or backend.cloud_of(bucket):  # without limits, no row is read
            return ""
        return buckets.owner(bucket)

    return BucketBytes(scan, quotas.applied, owner=owner)
