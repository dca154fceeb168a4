"""The history of a run: what each client asked for, when, and what came of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

NEVER_S = float("inf")


class OperationOutcome(StrEnum):
    """What a client knows of an operation."""

    OK = "ok"  #: acknowledged
    FAIL = "fail"  #: refused, with a reason that tells about the state: not found, already there, condition not met
    UNKNOWN = "unknown"  #: the connection was lost, or the server could not say: it may have happened or not


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOperation:
    """One request of one client. Times are of the monotonic clock, which all processes of a machine share."""

    client: int
    key: str  #: the resource, such as `object/bucket/name`; its first part is the kind
    action: str  #: create, read, put, delete, cancel
    outcome: OperationOutcome
    invoked_s: float
    ended_s: float  #: later than this it takes no effect; `NEVER_S` if that is not known
    args: Mapping[str, Any] = field(default_factory=dict)
    value: Any = None  #: what was read, or what the acknowledgement tells; None for a resource that is not there

    @property
    def kind(self) -> str:
        return self.key.partition("/")[0]

    def __str__(self) -> str:
        args = "".join(f" {name}={value}" for name, value in self.args.items())
        span = f"{self.invoked_s:.3f}..{self.ended_s:.3f}"
        return f"{span} client {self.client}: {self.action} {self.key}{args} -> {self.outcome} {self.value!r}"


class History:
    """The operations of all clients, in no order. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._operations: list[ClientOperation] = []
        self.server_errors: list[str] = []  #: responses that are the server's own fault

    def add(self, *operations: ClientOperation) -> None:
        with self._lock:
            self._operations.extend(operations)

    def add_server_error(self, text: str) -> None:
        with self._lock:
            self.server_errors.append(text)

    @property
    def operations(self) -> list[ClientOperation]:
        with self._lock:
            return list(self._operations)

    def by_key(self) -> dict[str, list[ClientOperation]]:
        """The operations of each resource, the earliest first."""
        return by_key(self.operations)


def by_key(operations: Iterable[ClientOperation]) -> dict[str, list[ClientOperation]]:
    keys: dict[str, list[ClientOperation]] = {}
    for each in sorted(operations, key=lambda each: (each.invoked_s, each.ended_s)):
        keys.setdefault(each.key, []).append(each)
    return keys


def now_s() -> float:
    return time.monotonic()
