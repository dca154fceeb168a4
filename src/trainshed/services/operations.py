"""Long-running operations: looked at, listed, and asked to stop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trainshed.domain.filters import parser
from trainshed.domain.operations import Operation
from trainshed.services.paging import PageRequest, ResourcePage, scan
from trainshed.store.conflicts import retry_on_conflict
from trainshed.store.operations import OperationStore


class Operations:
    """Threads may share it."""

    def __init__(self, store: OperationStore, *, wake: Callable[[], None] = lambda: None) -> None:
        """`wake` tells those who carry operations out that one of them was asked to end."""
        self._store = store
        self._wake = wake

    def get(self, project: str, operation_id: str) -> dict[str, Any]:
        return operation_body(self._store.get(project, operation_id))

    def page(self, project: str, wanted: PageRequest) -> ResourcePage:
        """Operations that match the filter, newest first, as `scan` gives them."""
        query = parser.parse(wanted.query)
        found, cursor = scan(
            lambda before, limit: self._store.page(project, before=before, limit=limit),
            lambda operation: query.matches(operation_body(operation)),
            wanted,
        )
        return ResourcePage(items=[operation_body(operation) for operation in found], next=cursor)

    def cancel(self, project: str, operation_id: str) -> None:
        """Ask for an operation to end. One that is done, or was asked before, is left as it is."""

        def once() -> None:
            operation = self._store.get(project, operation_id)
            if not (operation.done or operation.cancel_wanted):
                self._store.record(operation.cancelling())
                self._wake()

        retry_on_conflict(once)


def operation_body(operation: Operation) -> dict[str, Any]:
    """An operation in the API's own form."""
    body: dict[str, Any] = {"name": operation.name, "metadata": operation.metadata}
    if operation.done:
        body["done"] = True
    if operation.error is not None:
        body["error"] = operation.error
    if operation.response is not None:
        body["response"] = operation.response
    return body
