"""Completion of a version's provisioning: recorded with its operation, never before the routes are published."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from trainshed.control.deployments.provisioner import ProvisionedVersion, ProvisioningContext
from trainshed.control.deployments.route_publisher import RoutePublisher
from trainshed.domain.models.version import Version, VersionState, version_body
from trainshed.domain.operations import Operation, response
from trainshed.domain.times import now_us
from trainshed.errors import WriteConflictError
from trainshed.node.crashpoints import crashpoint
from trainshed.store.database import retry_on_conflict
from trainshed.store.models import ModelStore
from trainshed.store.operations import OperationStore

LOG = logging.getLogger("trainshed.control.deployments.controller")

_CANCEL_POLL_INTERVAL_S = 0.2  #: between two checks whether the operation was cancelled


class ShutdownRequested(Exception):  # noqa: N818 - a signal, not an error
    """The server shuts down. The next one resumes the work."""


class CancelRequested(Exception):  # noqa: N818 - a signal, not an error
    """A user cancelled the operation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentStores:
    """The stores of versions and their operations."""

    models: ModelStore
    operations: OperationStore


@dataclass(frozen=True, slots=True)
class VersionCompletion:
    """Records outcomes of provisioning. Thread-safe. `stopping` is set when the server shuts down."""

    stores: DeploymentStores
    publisher: RoutePublisher
    stopping: threading.Event

    def context(self, version: Version, *, report: Callable[[str], None]) -> ProvisioningContext:
        """Return the context of one provisioning.

        Its `check_cancelled` raises `ShutdownRequested` or `CancelRequested`.
        """
        checked_s = 0.0

        def check() -> None:
            nonlocal checked_s
            if self.stopping.is_set():
                raise ShutdownRequested
            if time.monotonic() - checked_s > _CANCEL_POLL_INTERVAL_S:
                checked_s = time.monotonic()
                if self.stores.operations.get(version.project, version.operation).cancel_wanted:
                    raise CancelRequested

        return ProvisioningContext(report=report, check_cancelled=check)

    def mark_ready(self, version: Version, provisioned: ProvisionedVersion) -> None:
        """Publish the routes, then record READY. Raises `CancelRequested` if the operation was cancelled before."""

        def attempt() -> None:
            current = self.stores.models.version(version.project, version.model, version.id)
            operation = self.stores.operations.get(version.project, version.operation)
            if operation.cancel_wanted:
                raise CancelRequested
            details = replace(current.details, served=provisioned.served)
            ready = current.to(VersionState.READY, files=provisioned.files, details=details)
            with self.publisher.announcing(ready):
                crashpoint("version.ready.published")
                self.stores.models.record_version(ready, _succeeded(operation, ready))
                crashpoint("version.ready.recorded")

        retry_on_conflict(attempt)

    def updated(self, version: Version) -> None:
        """Record that the hosts match the update, which completes its operation.

        Does nothing on a write conflict: the version was updated again.
        """
        operation = self.stores.operations.get(version.project, version.operation)
        ready = version.to(VersionState.READY)
        try:
            self.stores.models.record_version(ready, _succeeded(operation, ready))
        except WriteConflictError:
            LOG.info("version.write_conflict version=%s", version.name)

    def fail(self, version: Version, code: int, message: str) -> None:
        """Record the failure. Raises `ShutdownRequested` during shutdown: the next server tries again."""
        if self.stopping.is_set():
            raise ShutdownRequested

        def attempt() -> None:
            current = self.stores.models.version(version.project, version.model, version.id)
            operation = self.stores.operations.get(version.project, version.operation)
            failed = current.to(VersionState.FAILED, error=message)
            self.stores.models.record_version(failed, operation.failed(code, message, now_us=now_us()))

        retry_on_conflict(attempt)
        self.publisher.publish(version.project, version.model)
        LOG.warning("version.failed version=%s reason=%r", version.name, message[:500])


def _succeeded(operation: Operation, ready: Version) -> Operation:
    body = version_body(replace(ready, generation=ready.generation + 1), default=False)
    return operation.succeeded(response("Version", body), now_us=now_us())
