"""A long-running operation: something that the server was asked to do and is still doing, or has done."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """A value: a change returns a new one. A done operation has an error or a response and never changes again."""

    project: str
    id: str
    metadata: Mapping[str, Any]  #: the API's OperationMetadata
    done: bool = False
    error: Mapping[str, Any] | None = None  #: the API's Status
    response: Mapping[str, Any] | None = None
    created_us: int
    generation: int = 1

    @property
    def name(self) -> str:
        return f"projects/{self.project}/operations/{self.id}"

    def cancelling(self) -> Operation:
        """This operation, with the wish that it be cancelled. Whoever carries it out decides what comes of it."""
        return replace(self, metadata={**self.metadata, "isCancellationRequested": True})
