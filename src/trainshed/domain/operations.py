"""Long-running operations, as the API shows them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Self

from trainshed.domain.times import rfc3339

#: google.rpc.Status codes of failed operations
CANCELLED, INVALID_ARGUMENT, FAILED_PRECONDITION, INTERNAL = 1, 3, 9, 13

EMPTY: Mapping[str, Any] = {"@type": "type.googleapis.com/google.protobuf.Empty"}
METADATA_TYPE = "type.googleapis.com/google.cloud.ml.v1.OperationMetadata"


class OperationType(StrEnum):
    """The API's operation types, as VERB_RESOURCE."""

    CREATE_VERSION = "CREATE_VERSION"
    DELETE_VERSION = "DELETE_VERSION"
    UPDATE_VERSION = "UPDATE_VERSION"
    DELETE_MODEL = "DELETE_MODEL"
    UPDATE_MODEL = "UPDATE_MODEL"

    def id(self, *names: str, now_us: int) -> str:
        """An id of the form `create_MODEL_VERSION-MILLIS`, as AI Platform writes it."""
        return f"{'_'.join((self.partition('_')[0].lower(), *names))}-{now_us // 1000}"


def response(kind: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
    """A resource of the ml API, such as a `Version`, as the response of an operation."""
    return {"@type": f"type.googleapis.com/google.cloud.ml.v1.{kind}", **body}


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One operation. Immutable: a change returns a new one.

    A done operation has an error or a response and is final.
    """

    project: str
    id: str
    metadata: Mapping[str, Any]  #: the API's OperationMetadata
    done: bool = False
    error: Mapping[str, Any] | None = None  #: the API's Status
    response: Mapping[str, Any] | None = None
    created_us: int
    generation: int = 1
    order_us: int = field(default=0, compare=False)  #: position in the order of creation; assigned by the store

    @classmethod
    def begin(cls, project: str, operation_id: str, metadata: Mapping[str, Any], *, now_us: int) -> Self:
        """A new operation that starts now. `metadata` has everything but the type and the times."""
        head = {"@type": METADATA_TYPE, "createTime": rfc3339(now_us), "startTime": rfc3339(now_us)}
        return cls(project=project, id=operation_id, metadata={**head, **metadata}, created_us=now_us)

    @property
    def name(self) -> str:
        return f"projects/{self.project}/operations/{self.id}"

    @property
    def cancel_wanted(self) -> bool:
        return bool(self.metadata.get("isCancellationRequested"))

    def cancelling(self) -> Operation:
        """This operation with a cancellation request. Its executor decides whether to honour it."""
        return replace(self, metadata={**self.metadata, "isCancellationRequested": True})

    def succeeded(self, response: Mapping[str, Any], *, now_us: int) -> Operation:
        """This operation, done. The response has an `@type`: `EMPTY`, or a result of the function `response`."""
        return replace(self, done=True, response=response, metadata=self._metadata_at_end(now_us))

    def failed(self, code: int, message: str, *, now_us: int) -> Operation:
        """This operation, done with an error."""
        return replace(
            self, done=True, error={"code": code, "message": message}, metadata=self._metadata_at_end(now_us)
        )

    def _metadata_at_end(self, now_us: int) -> Mapping[str, Any]:
        return {**self.metadata, "endTime": rfc3339(max(now_us, self.created_us))}
