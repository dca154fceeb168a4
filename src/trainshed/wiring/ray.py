"""The optional Ray engine: the bridge, the engines for jobs and hosts, and the builder of remote attempts."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from trainshed.artifacts.manifest import ArtifactAccess
from trainshed.config import Home, Settings, environment
from trainshed.control.jobs.credentials import RemoteCredentials
from trainshed.control.jobs.engines import RegisteredEngine
from trainshed.control.jobs.remote_attempt import RemoteAttemptBuilder, runtime_recipe
from trainshed.control.uri_resolver import UriResolver
from trainshed.domain.capacity.machine_types import MachineTypes
from trainshed.domain.capacity.placement import ResourceShares
from trainshed.domain.jobs.accelerators import gpu_fields
from trainshed.domain.jobs.job import Job
from trainshed.domain.jobs.training import TRAINING, TRAINING_IN_CONTAINERS, Training
from trainshed.domain.models.version import HOSTED_VERSION
from trainshed.domain.names import LOCAL_ENGINE, RAY_ENGINE
from trainshed.engines.hosts.spec import HostSpec
from trainshed.engines.local.engine import LocalEngine
from trainshed.engines.local.sandbox import FULL, LANDLOCK
from trainshed.engines.ray.bridge_process import BridgeProcess
from trainshed.engines.ray.engine import PlacementConfig, RayEngine
from trainshed.engines.ray.hosts import RayHostConfig, RayHostEngine
from trainshed.errors import CannotProceedError
from trainshed.proxy.node_endpoint import NodeEndpoint, check_reachable
from trainshed.runtimes.catalogue import CATALOGUE, DEFAULT_RUNTIME, Runtime
from trainshed.runtimes.environments import Runtimes
from trainshed.runtimes.find_links import find_links

LOG = logging.getLogger("trainshed.wiring.ray")

_NO_CLUSTER = (
    "This server knows no Ray cluster. Start it with --ray-address HOST:PORT, or with the setting ray_address."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RayDependencies:
    """What the Ray integration is constructed with."""

    home: Home
    settings: Settings
    uv: Path
    machines: MachineTypes
    supervisors: LocalEngine
    nodes: NodeEndpoint  #: the endpoint of this server for nodes of the cluster
    credentials: RemoteCredentials
    uri_resolver: UriResolver
    buckets: Callable[[str], Iterable[str]]  #: names the buckets of a project that are folders
    artifact_access: Callable[[HostSpec], ArtifactAccess]  #: returns how a node fetches the files of a host's version
    folder: Callable[[Job], Path]  #: returns the folder of a job's current attempt


class RayIntegration:
    """Exists also without a cluster: jobs of an earlier configuration may be left."""

    def __init__(self, deps: RayDependencies) -> None:
        settings = deps.settings
        self._enabled = bool(settings.ray_address)
        self._runtimes = Runtimes(
            deps.home.runtimes,
            deps.uv,
            catalogue={RAY_ENGINE: ray_runtime(settings.ray_version, settings.ray_python)},
            find_links=find_links(settings.runtime_find_links, environment()),
        )
        self._bridge = BridgeProcess(
            deps.home, address=settings.ray_address, python=self._python, ship=deps.supervisors.ship
        )
        shares = ResourceShares(cpu=settings.ray_cpu_share, memory=settings.ray_memory_share)
        placement = PlacementConfig(
            address=settings.ray_address,
            strategy=settings.ray_placement.upper(),
            machines=deps.machines,
            shares=shares,
            single_replica_share=settings.single_replica_share,
        )
        self._engine = RayEngine(placement, deps.supervisors, self._bridge, gangs=deps.home.bridge_folder / "gangs")
        builder = RemoteAttemptBuilder(
            home=deps.home,
            settings=settings,
            uri_resolver=deps.uri_resolver,
            buckets=deps.buckets,
            folder=deps.folder,
            credentials=deps.credentials,
            serves_gs=deps.nodes.serves_gs,
            machines=deps.machines,
            shares=shares,
        )
        self.registered_engine = RegisteredEngine(
            engine=self._engine,
            prepare=builder.prepare,
            supports=frozenset({TRAINING, TRAINING_IN_CONTAINERS, HOSTED_VERSION}),
            unavailable_reason=_unavailable_reason(settings, deps.nodes),
            gpus=True,
            shortfall=partial(_cuda_shortfall, machines=deps.machines),
        )
        host_config = RayHostConfig(
            machines=deps.machines,
            shares=shares,
            access=deps.artifact_access,
            recipe=lambda runtime: runtime_recipe(CATALOGUE[runtime]),
            body_limit=settings.body_limit_mb << 20,
            unavailable_reason=self.registered_engine.unavailable_reason,
        )
        self.hosts = RayHostEngine(deps.home, ship=deps.supervisors.ship, bridge=self._bridge, config=host_config)

    def begin(self, wake: Callable[[], None]) -> None:
        """Start the bridge, if a cluster is configured. `wake` is called when capacity changes."""
        if self._enabled:
            self._bridge.begin()
            self._engine.begin(wake)

    def close(self) -> None:
        """Stop the bridge. Replicas of jobs on the cluster keep running."""
        self._runtimes.close()
        self._bridge.close()
        self._engine.close()

    def _python(self) -> Path:
        """Return the interpreter that has Ray. Blocks while its environment is built."""
        return self._runtimes.ensure(
            RAY_ENGINE, lambda fraction, text: LOG.info("ray.built fraction=%.2f %s", fraction, text)
        )


def _cuda_shortfall(training: Training, machines: MachineTypes) -> str:
    """Return a warning for a job that requests GPUs that its runtime's framework cannot use; empty if none."""
    runtime = CATALOGUE.get(training.runtime_version or DEFAULT_RUNTIME)
    computes_on_cpus = runtime is None or (bool(runtime.warm) and not runtime.uses_gpus)
    if not computes_on_cpus or next(gpu_fields(training.input, machines), None) is None:
        return ""
    return (
        "The framework of this runtime computes on CPUs. What the trainer brings along, such as JAX, finds its GPUs in "
        "CUDA_VISIBLE_DEVICES."
    )


def _unavailable_reason(settings: Settings, nodes: NodeEndpoint) -> str:
    """Return why jobs cannot use the cluster, with a remedy. Returns "" if they can."""
    if not settings.ray_address:
        return _NO_CLUSTER
    if settings.sandbox in (FULL, LANDLOCK):
        return (
            f"Nodes of a cluster have no sandbox, and the setting sandbox is {settings.sandbox!r}. Use the engine "
            f"{LOCAL_ENGINE}, or set sandbox to 'auto'."
        )
    try:
        check_reachable(urlsplit(nodes.tls_url).hostname or "", settings.ray_host)
    except CannotProceedError as exc:
        return str(exc)
    return ""


def ray_runtime(version: str, python: str) -> Runtime:
    """Return the runtime of the bridge, which must have the cluster's own versions. It is not for jobs."""
    return Runtime(
        name="ray",
        python=python,
        summary=f"Ray {version}, as the cluster has it",
        unpacked_mb=260,
        pins=(f"ray[client]=={version}",),
        resolved=False,
    )
