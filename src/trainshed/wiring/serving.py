"""Builds what serves versions: routes, the gateway, the controllers of deployments and of rollouts."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace

from trainshed.config import Settings
from trainshed.control.deployments.completion import DeploymentStores
from trainshed.control.deployments.controller import DeploymentController
from trainshed.control.deployments.provisioner import VersionProvisioner
from trainshed.control.deployments.rollouts import RolloutController
from trainshed.domain.image_registries import ImageRegistries
from trainshed.gateway.gateway import PredictionGateway
from trainshed.gateway.request_log import RequestLogWriter
from trainshed.gateway.routes import Routes
from trainshed.gateway.shadow import TrafficCounts
from trainshed.services.access.projects import Projects
from trainshed.services.models.models import Models
from trainshed.services.models.replays import LoggedRequests
from trainshed.services.models.versions import VersionChecks, Versions
from trainshed.services.storage.uris import UriChecker
from trainshed.wiring import access as access_wiring
from trainshed.wiring.core import Core
from trainshed.wiring.jobs import JobPlane

LOG = logging.getLogger("trainshed.server")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingPlane:
    """The parts that serve versions."""

    routes: Routes
    logged_requests: LoggedRequests
    gateway: PredictionGateway
    deployments: DeploymentController
    rollouts: RolloutController


def with_possible_gateways(settings: Settings, fast_path_off_reason: str) -> Settings:
    """The settings with one gateway if the fast path is off, which is all that several ones have. Logs that."""
    if settings.gateways == 1 or not fast_path_off_reason:
        return settings
    LOG.warning(
        "server.one_gateway setting=%d reason=Gateways answer by the fast path alone. %s",
        settings.gateways,
        fast_path_off_reason,
    )
    return replace(settings, gateways=1)


def build_serving_plane(core: Core, provisioner: VersionProvisioner) -> ServingPlane:
    routes = Routes()
    logged_requests = LoggedRequests(core.objects, owner=core.buckets.owner)
    log, settings = RequestLogWriter(logged_requests.write), core.settings
    gateway = PredictionGateway(routes, log, timeout_s=settings.predict_timeout_s, gateways=settings.gateways)
    deployments = DeploymentController(
        DeploymentStores(models=core.models, operations=core.operations),
        provisioner,
        routes,
        gateway,
        sleep_after_s=core.settings.sleep_after_s,
        drain_s=core.settings.predict_timeout_s,
        check=core.database.check_fence,
    )
    counts = TrafficCounts(gateway.metrics, gateway.shadows)
    rollouts = RolloutController(core.models, counts, deployments.publish, check=core.database.check_fence)
    return ServingPlane(
        routes=routes, logged_requests=logged_requests, gateway=gateway, deployments=deployments, rollouts=rollouts
    )


def build_models_and_versions(
    core: Core, uri_checker: UriChecker, projects: Projects, job_plane: JobPlane, serving_plane: ServingPlane
) -> tuple[Models, Versions]:
    deployments, metrics = serving_plane.deployments, serving_plane.gateway.metrics
    checks = VersionChecks(
        runtimes=core.runtimes,
        placement=job_plane.registry,
        uri_checker=uri_checker,
        registries=ImageRegistries.parse(core.settings.image_registries),
        quotas=access_wiring.build_quotas(core),
        secrets=core.secrets,
    )
    versions = Versions(core.models, deployments, metrics, projects, checks)
    return Models(core.models, deployments, metrics, projects), versions
