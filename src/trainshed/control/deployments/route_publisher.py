"""Publishes routes from the rows of a model and the fleets of its versions."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from trainshed.buckets.names import split_uri
from trainshed.control.deployments.fleet import Fleet
from trainshed.domain.models.hosting import ServingState
from trainshed.domain.models.model import Model
from trainshed.domain.models.version import Version, VersionState
from trainshed.errors import NotFoundError
from trainshed.gateway.routes import HostAddress, ModelRoute, RequestLogTarget, Routes, Shadow, VersionRoute
from trainshed.store.models import ModelStore


class RoutePublisher:
    """Publishes routes. Thread-safe. `fleet_of` returns the fleet of a version, if it has one, and its lock."""

    def __init__(
        self,
        models: ModelStore,
        routes: Routes,
        fleet_of: Callable[[Version], tuple[threading.RLock, Fleet | None]],
    ) -> None:
        self._models = models
        self._routes = routes
        self._fleet_of = fleet_of
        self._lock = threading.Lock()
        self._announced: dict[str, Version] = {}  #: versions that are routed before their row is READY, by name

    @contextmanager
    def announcing(self, version: Version) -> Iterator[None]:
        """Inside this block, route a version by this row instead of its stored one, which is not READY yet."""
        with self._lock:
            self._announced[version.name] = version
        try:
            self.publish(version.project, version.model)
            yield
        finally:
            with self._lock:
                del self._announced[version.name]

    def publish(self, project: str, model_id: str) -> ModelRoute | None:
        """Publish the routes of a model from its rows, before this returns. Returns None if the model is gone."""
        with self._lock:  # so that an older read never replaces a newer one
            try:
                model = self._models.get(project, model_id)
            except NotFoundError:
                self._routes.withdraw(project, model_id)
                return None
            versions = [self._with_announced(version) for version in self._models.versions(project, model_id)]
            for version in versions:
                model = model.with_ready_version(version)
            route = self._route(model, versions)
            if self._routes.models.get((project, model_id)) != route:
                self._routes.publish(route)
            return route

    def _with_announced(self, version: Version) -> Version:
        return self._announced.get(version.name, version) if version.state is VersionState.CREATING else version

    def _route(self, model: Model, versions: Sequence[Version]) -> ModelRoute:
        return ModelRoute(
            project=model.project,
            model=model.id,
            default=model.default_version,
            split=tuple(sorted(model.split.items())),
            versions={
                version.id: self._version_route(model, version)
                for version in versions
                if version.state is not VersionState.DELETING
            },
        )

    def _version_route(self, model: Model, version: Version) -> VersionRoute:
        state, reason = ServingState.STARTING, ""
        hosts: tuple[HostAddress, ...] = ()
        if version.state is VersionState.FAILED:
            state, reason = ServingState.UNHEALTHY, version.error
        elif version.state is VersionState.CREATING:
            reason = f"Version {version.id} of model {version.model} is being created."
        else:
            lock, fleet = self._fleet_of(version)
            with lock:
                if fleet is not None:
                    state, reason = fleet.serving_state(version), fleet.reason
                    hosts = fleet.addresses()
                elif version.nodes == 0:
                    state = ServingState.SLEEPING
        return VersionRoute(
            project=version.project,
            model=version.model,
            version=version.id,
            state=state,
            reason=reason if state is not ServingState.READY else "",
            hosts=hosts,
            access_log=model.access_log,
            log=_request_log(version),
            shadow=_shadow(model, version),
        )


def _shadow(model: Model, version: Version) -> Shadow | None:
    """The shadow of a version: the new version of a rollout, while that gets shadow traffic of this one."""
    rollout = model.rollout
    if rollout is None or not rollout.current.shadow or rollout.baseline != version.id:
        return None
    return Shadow(version=rollout.version, share=rollout.current.percent / 100)


def _request_log(version: Version) -> RequestLogTarget | None:
    logging = version.request_logging
    if logging is None:
        return None
    bucket, folder = split_uri(logging.folder)
    return RequestLogTarget(bucket=bucket, folder=folder.rstrip("/"), share=logging.share)
