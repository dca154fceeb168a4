"""Checks a history: is there an order of each resource's operations that its model allows?

Operations overlap, so their order is searched for (as in Wing and Gong's algorithm): an operation that ended before
another was invoked comes before it. One with an unknown outcome may have happened within its span or not at all.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from trainshed.testing.reliability.history import ClientOperation, History, OperationOutcome
from trainshed.testing.reliability.models import MODELS, Model

_MAX_SHOWN = 12  #: operations before the one that does not fit, in a report
_MAX_CONFIGURATIONS = 200_000  #: that a search looks at before it gives up


@dataclass(frozen=True, slots=True)
class Violation:
    """Something that must not happen, in the words of a report."""

    count: str  #: what it counts as: a key of the figures
    text: str

    def __str__(self) -> str:
        return f"{self.count}: {self.text}"


def check_history(history: History, *, cuts_s: Sequence[float] = ()) -> list[Violation]:
    """Return a violation for each resource whose operations no order explains, and for each error of the server.

    `cuts_s` are the moments at which the power was cut.
    """
    found = [Violation("5xx", text) for text in history.server_errors]
    for key, operations in history.by_key().items():
        if key.startswith("object/"):
            operations = without_dirty_reads(operations, cuts_s)
        model = MODELS[key.partition("/")[0]]
        culprit = first_misfit(operations, model)
        if culprit is not None:
            found.append(Violation(_count(culprit), _report(operations, culprit)))
    return found


def without_dirty_reads(operations: Sequence[ClientOperation], cuts_s: Sequence[float]) -> list[ClientOperation]:
    """Leave out what clients saw of writes that a power cut ended.

    An object can be read a moment before its write is durable and acknowledged. A cut in that moment takes it back,
    which breaks no promise.
    """
    unfinished = [each for each in operations if each.outcome is OperationOutcome.UNKNOWN and each.action != "read"]

    def is_dirty(operation: ClientOperation) -> bool:
        if operation.action != "read" and operation.outcome is not OperationOutcome.FAIL:
            return False
        return any(
            write.invoked_s <= operation.ended_s and operation.invoked_s <= cut_s <= write.ended_s
            for write in unfinished
            for cut_s in cuts_s
        )

    return [each for each in operations if not is_dirty(each)]


def first_misfit(operations: Sequence[ClientOperation], model: Model) -> ClientOperation | None:
    """Return None if some order of the operations is legal, else the one at which the longest legal orders end."""
    ops = sorted(operations, key=lambda each: (each.invoked_s, each.ended_s))
    done_all = (1 << len(ops)) - 1
    furthest = 0
    waiting: list[tuple[int, Hashable]] = [(0, None)]
    known = set(waiting)
    while waiting:
        done, state = waiting.pop()
        if done == done_all:
            return None
        furthest = max(furthest, _prefix(done))
        for index in _next(ops, done):
            for after in model(state, ops[index]):
                step = (done | 1 << index, after)
                if step not in known:
                    known.add(step)
                    waiting.append(step)
        if len(known) > _MAX_CONFIGURATIONS:
            raise RuntimeError(f"{ops[0].key}: more orders of {len(ops)} operations than can be searched.")
    return ops[furthest]


def _prefix(done: int) -> int:
    """The number of leading operations that are done."""
    return (~done & (done + 1)).bit_length() - 1


def _next(ops: Sequence[ClientOperation], done: int) -> list[int]:
    """The operations that can come next: those invoked before any other one that is left has ended."""
    found: list[int] = []
    limit = float("inf")
    for index in range(_prefix(done), len(ops)):
        if done >> index & 1:
            continue
        if ops[index].invoked_s > limit:
            break
        found.append(index)
        limit = min(limit, ops[index].ended_s)
    return [index for index in found if ops[index].invoked_s <= limit]


def _count(culprit: ClientOperation) -> str:
    """A second acknowledgement of what can happen once is a double; anything else is a loss."""
    return "doubled" if culprit.action == "create" and culprit.outcome is OperationOutcome.OK else "lost"


def _report(operations: Sequence[ClientOperation], culprit: ClientOperation) -> str:
    position = operations.index(culprit)
    before = operations[max(0, position - _MAX_SHOWN) : position]
    lines = [f"{culprit.key}: no order explains this:", *map(str, before), f"> {culprit}"]
    return "\n    ".join(lines)
