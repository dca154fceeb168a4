"""Deployments without hosts: versions become ready, fail and are deleted as a test decides, in the same rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from trainshed.domain.models.autoscaling import Scaling
from trainshed.domain.models.version import Version, VersionState, version_body
from trainshed.domain.models.version_details import ServedModel
from trainshed.domain.operations import CANCELLED, EMPTY, FAILED_PRECONDITION, Operation, response
from trainshed.domain.times import now_us
from trainshed.store.database import Database
from trainshed.store.models import ModelStore
from trainshed.store.operations import OperationStore


class FakeDeployments:
    """A `DeploymentControl` that carries out pending operations when it is woken.

    `hold` stops it; `failure` makes creations fail.
    """

    def __init__(self, database: Database, *, clock: Callable[[], int] = now_us) -> None:
        self._models = ModelStore(database)
        self._operations = OperationStore(database)
        self._clock = clock
        self.hold = False
        self.failure = ""
        self.published: list[tuple[str, str]] = []

    def wake(self) -> None:
        if self.hold:
            return
        for version in self._models.versions_to_serve().values:
            match version.state:
                case VersionState.CREATING:
                    self._create(version, self._operations.get(version.project, version.operation))
                case VersionState.UPDATING:
                    self._update(version, self._operations.get(version.project, version.operation))
                case VersionState.DELETING:
                    operation = self._operations.get(version.project, version.operation)
                    self._models.remove_version(version, operation.succeeded(EMPTY, now_us=self._clock()))

    def publish(self, project: str, model: str) -> None:
        self.published.append((project, model))

    def hosts(self, project: str, model: str, version: str) -> Sequence[Mapping[str, Any]]:
        return [{"pid": 7}]

    def scaling(self, project: str, model: str, version: str) -> Scaling:
        return Scaling(hosts=2, in_flight=11)

    def progress(self, project: str, model: str, version: str) -> str:
        return ""

    def log_tail(self, project: str, model: str, version: str) -> str:
        return ""

    def _update(self, version: Version, operation: Operation) -> None:
        body = response("Version", version_body(version.to(VersionState.READY), default=False))
        self._models.record_version(version.to(VersionState.READY), operation.succeeded(body, now_us=self._clock()))

    def _create(self, version: Version, operation: Operation) -> None:
        now = self._clock()
        if operation.cancel_wanted or self.failure:
            code = CANCELLED if operation.cancel_wanted else FAILED_PRECONDITION
            error = "The creation was cancelled." if operation.cancel_wanted else self.failure
            self._models.record_version(
                version.to(VersionState.FAILED, error=error), operation.failed(code, error, now_us=now)
            )
            return
        details = replace(version.details, served=ServedModel(loader="fake"))
        ready = version.to(VersionState.READY, files="f00", details=details)
        body = response("Version", version_body(ready, default=False))
        self._models.record_version(ready, operation.succeeded(body, now_us=now))
