"""How the creation of a version ends: written down with its operation, and never before the routes agree."""

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
from trainshed.store.conflicts import retry_on_conflict
from trainshed.store.models import ModelStore
from trainshed.store.operations import OperationStore

LOG = logging.getLogger("trainshed.control.deployments.controller")

_ASKED_S = 0.2  #: between two looks at whether a creation was cancelled


class ShutdownRequested(Exception):
    """The server stops; the next one goes on with it."""


class CancelRequested(Exception):
    """Someone asked for the operation to end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentStores:
    """The rows that this works by."""

    models: ModelStore
    operations: OperationStore


@dataclass(frozen=True, slots=True)
class VersionCompletion:
    """Threads may share it. `stopping` is set when the server stops."""

    ledger: DeploymentStores
    publisher: RoutePublisher
    stopping: threading.Event

    def context(self, version: Version, *, tell: Callable[[str], None]) -> ProvisioningContext:
        """What a creation tells and hears: its `check` raises `ShutdownRequested` or `CancelRequested`."""
        asked_s = 0.0

        def check() -> None:
            nonlocal asked_s
            if self.stopping.is_set():
                raise ShutdownRequested
            if time.monotonic() - asked_s > _ASKED_S:
                asked_s = time.monotonic()
                if self.ledger.operations.get(version.project, version.operation).cancel_wanted:
                    raise CancelRequested

        return ProvisioningContext(report=tell, check_cancelled=check)

    def mark_ready(self, version: Version, built: ProvisionedVersion) -> None:
        """Into the routes, then READY. `CancelRequested` if someone asked for that before."""

        def once() -> None:
            current = self.ledger.models.version(version.project, version.model, version.id)
            operation = self.ledger.operations.get(version.project, version.operation)
            if operation.cancel_wanted:
                raise CancelRequested
            ready = current.to(VersionState.READY, files=built.files, details={**current.details, **built.details})
            with self.publisher.announcing(ready):
                self.ledger.models.record_version(ready, _done(operation, ready))

        retry_on_conflict(once)

    def updated(self, version: Version) -> None:
        """The hosts match what was asked for: that is the end of the operation that asked, unless more was asked."""
        operation = self.ledger.operations.get(version.project, version.operation)
        ready = version.to(VersionState.READY)
        try:
            self.ledger.models.record_version(ready, _done(operation, ready))
        except WriteConflictError:
            LOG.info("version.write_conflict version=%s", version.name)

    def fail(self, version: Version, code: int, message: str) -> None:
        """Write down that nothing came of it, unless the server stops: then the next one tries again."""
        if self.stopping.is_set():
            raise ShutdownRequested

        def once() -> None:
            current = self.ledger.models.version(version.project, version.model, version.id)
            operation = self.ledger.operations.get(version.project, version.operation)
            failed = current.to(VersionState.FAILED, error=message)
            self.ledger.models.record_version(failed, operation.failed(code, message, now_us=now_us()))

        retry_on_conflict(once)
        self.publisher.publish(version.project, version.model)
        LOG.warning("version.failed version=%s reason=%r", version.name, message[:500])


def _done(operation: Operation, ready: Version) -> Operation:
    shown = version_body(replace(ready, generation=ready.generation + 1), default=False)
    return operation.succeeded(response("Version", shown), now_us=now_us())
