"""Long-running operations: get, list and cancel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trainshed.domain.filters.parser import parse
from trainshed.domain.filters.server import SERVER
from trainshed.domain.operations import Operation
from trainshed.services.paging import PageRequest, ResourcePage, scan
from trainshed.store.database import retry_on_conflict
from trainshed.store.operations import OperationStore


class Operations:
    """The operations of all projects. Thread-safe."""

    def __init__(self, store: OperationStore, *, wake: Callable[[], None] = lambda: None) -> None:
        """`wake` is called after a cancellation, for the controller that runs the operation."""
        self._store = store
        self._wake = wake

    def get(self, project: str, operation_id: str) -> dict[str, Any]:
        return operation_body(self._store.get(project, operation_id))

    def page(self, project: str, request: PageRequest) -> ResourcePage:
        """Return operations that match the filter, newest first. See `scan`."""
        query = parse(request.query, SERVER)
        operations, cursor = scan(
            lambda before, limit: self._store.page(project, before=before, limit=limit),
            lambda operation: query.matches(operation_body(operation)),
            request,
        )
        return ResourcePage(items=[operation_body(operation) for operation in operations], next=cursor)

    def cancel(self, project: str, operation_id: str) -> None:
        """Request the cancellation of an operation. Idempotent. Does nothing if the operation is done."""

        def attempt() -> None:
            operation = self._store.get(project, operation_id)
            if not (operation.done or operation.cancel_wanted):
                self._store.record(operation.cancelling())
                self._wake()

        retry_on_conflict(attempt)


def operation_body(operation: Operation) -> dict[str, Any]:
    """Return an operation as a resource of the API."""
    body: dict[str, Any] = {"name": operation.name, "metadata": operation.metadata}
    if operation.done:
        body["done"] = True
    if operation.error is not None:
        body["error"] = operation.error
    if operation.response is not None:
        body["response"] = operation.response
    return body
