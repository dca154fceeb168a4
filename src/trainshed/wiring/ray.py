"""The Ray cluster as a place for jobs and hosts: its engine, the link that it works by, and how attempts are prepared
for it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from trainshed.artifacts.manifest import ArtifactAccess
from trainshed.config import Home, Settings
from trainshed.control.jobs.credentials import RemoteCredentials
from trainshed.control.jobs.engines import RegisteredEngine
from trainshed.control.jobs.remote_attempt import RemoteAttemptBuilder, runtime_recipe
from trainshed.control.uri_resolver import UriResolver
from trainshed.domain.capacity.machine_types import MachineTypes
from trainshed.domain.capacity.placement import ResourceShares
from trainshed.domain.jobs.accelerators import gpu_fields
from trainshed.domain.jobs.job import RAY_ENGINE, Job
from trainshed.domain.jobs.training import TRAINING, TRAINING_IN_CONTAINERS, Training
from trainshed.domain.models.version import HOSTED
from trainshed.engines.hosts.spec import HostSpec
from trainshed.engines.local.engine import LocalEngine
from trainshed.engines.ray.bridge_process import BridgeProcess
from trainshed.engines.ray.engine import PlacementConfig, RayEngine
from trainshed.engines.ray.hosts import RayHostConfig, RayHostEngine
from trainshed.errors import CannotProceedError
from trainshed.proxy.node_endpoint import NodeEndpoint, check_reachable
from trainshed.runtimes.catalogue import CATALOGUE, DEFAULT, Runtime
from trainshed.runtimes.environments import Runtimes

LOG = logging.getLogger("trainshed.wiring.ray")

_NO_CLUSTER = (
    "This server knows no Ray cluster. Start it with --ray-address HOST:PORT, or with the setting ray_address."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RayDependencies:
    """What it stands on."""

    home: Home
    settings: Settings
    uv: Path
    machines: MachineTypes
    supervisors: LocalEngine
    nodes: NodeEndpoint  #: how the machines of the cluster reach this server
    credentials: RemoteCredentials
    addresses: UriResolver
    buckets: Callable[[str], Iterable[str]]  #: the names of a project's buckets that are folders
    way: Callable[[HostSpec], ArtifactAccess]  #: how they get the files of the version of a host
    folder: Callable[[Job], Path]  #: of the current attempt of a job


class RayIntegration:
    """There is one also for a server that was given no cluster: jobs may be left from one that was."""

    def __init__(self, ground: RayDependencies) -> None:
        settings = ground.settings
        self._offered = bool(settings.ray_address)
        self._builds = Runtimes(
            ground.home.runtimes,
            ground.uv,
            catalogue={RAY_ENGINE: ray_runtime(settings.ray_version, settings.ray_python)},
        )
        self._link = BridgeProcess(
            ground.home, address=settings.ray_address, python=self._python, ship=ground.supervisors.ship
        )
        shares = ResourceShares(cpu=settings.ray_cpu_share, memory=settings.ray_memory_share)
        rules = PlacementConfig(
            address=settings.ray_address,
            strategy=settings.ray_placement.upper(),
            machines=ground.machines,
            shares=shares,
        )
        self._engine = RayEngine(rules, ground.supervisors, self._link, gangs=ground.home.bridge_folder / "gangs")
        launches = RemoteAttemptBuilder(
            home=ground.home,
            settings=settings,
            addresses=ground.addresses,
            buckets=ground.buckets,
            folder=ground.folder,
            credentials=ground.credentials,
            serves_gs=ground.nodes.serves_gs,
            machines=ground.machines,
            shares=shares,
        )
        self.site = RegisteredEngine(
            engine=self._engine,
            prepare=launches.prepare,
            supports=frozenset({TRAINING, TRAINING_IN_CONTAINERS, HOSTED}),
            unavailable_reason=_lacking(settings, ground.nodes),
            gpus=True,
            shortfall=partial(_without_cuda, machines=ground.machines),
        )
        host_rules = RayHostConfig(
            machines=ground.machines,
            shares=shares,
            way=ground.way,
            recipe=lambda runtime: runtime_recipe(CATALOGUE[runtime]),
            body_limit=settings.body_limit_mb << 20,
            lacking=self.site.unavailable_reason,
        )
        self.hosts = RayHostEngine(ground.home, ship=ground.supervisors.ship, link=self._link, rules=host_rules)

    def begin(self, wake: Callable[[], None]) -> None:
        """Start the link, if there is something to link to. `wake`: there is news of room."""
        if self._offered:
            self._link.begin()
            self._engine.begin(wake)

    def close(self) -> None:
        """End the link. What runs on the cluster goes on."""
        self._builds.close()
        self._link.close()
        self._engine.close()

    def _python(self) -> Path:
        """The interpreter that has Ray, which is built first if need be."""
        return self._builds.ensure(
            RAY_ENGINE, lambda fraction, text: LOG.info("ray.built fraction=%.2f %s", fraction, text)
        )


def _without_cuda(training: Training, machines: MachineTypes) -> str:
    """What to say of a job that asks for GPUs which the framework of its runtime can't use."""
    runtime = CATALOGUE.get(training.runtime_version or DEFAULT)
    has_no_framework = runtime is not None and not runtime.warm
    if has_no_framework or next(gpu_fields(training.input, machines), None) is None:
        return ""
    return (
        "The TensorFlow of this server's runtimes computes on CPUs. What the trainer brings along, such as PyTorch or "
        "JAX, finds its GPUs in CUDA_VISIBLE_DEVICES."
    )


def _lacking(settings: Settings, nodes: NodeEndpoint) -> str:
    if not settings.ray_address:
        return _NO_CLUSTER
    try:
        check_reachable(urlsplit(nodes.tls_url).hostname or "", settings.ray_host)
    except CannotProceedError as exc:
        return str(exc)
    return ""


def ray_runtime(version: str, python: str) -> Runtime:
    """Not for jobs: the environment of the link to a Ray cluster, which must have the cluster's own versions."""
    return Runtime(
        name="ray",
        python=python,
        summary=f"Ray {version}, as the cluster has it",
        unpacked_mb=260,
        pins=(f"ray[client]=={version}",),
        resolved=False,
    )
