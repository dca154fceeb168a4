"""What each kind of resource may answer: small models that a history is replayed against.

A model is a function of the state and an operation. It returns the states that the resource may be in afterwards, none
if the operation could not have had its outcome in that state. States are hashable values.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace

from trainshed.domain.jobs.states import TERMINAL_STATES, TRANSITIONS, JobState
from trainshed.testing.reliability.history import ClientOperation, OperationOutcome

Model = Callable[[Hashable, ClientOperation], tuple[Hashable, ...]]


@dataclass(frozen=True, slots=True)
class Register:
    """Anything that is created, read and deleted: a bucket, a model, a token."""

    content: Hashable = None  #: None: it is not there


def register(state: Hashable, operation: ClientOperation) -> tuple[Hashable, ...]:
    """A resource with one content, which `create` sets and `delete` removes."""
    current = state if isinstance(state, Register) else Register()
    unknown, ok = operation.outcome is OperationOutcome.UNKNOWN, operation.outcome is OperationOutcome.OK
    match operation.action:
        case "create":
            created = Register(operation.args.get("content", True))
            if unknown:
                return (current,) if current.content is not None else (current, created)
            return (created if ok else current,) if ok == (current.content is None) else ()
        case "delete":
            if unknown:
                return (current, Register()) if current.content is not None else (current,)
            return (Register(),) if ok == (current.content is not None) else ()
        case "read":
            return (current,) if unknown or operation.value == current.content else ()
    raise ValueError(f"A register has no {operation.action}.")


@dataclass(frozen=True, slots=True)
class ObjectState:
    """An object, or the place where one was."""

    digest: str | None = None  #: None: it is not there
    generation: int | None = 0  #: of the object or of the last one; None if the write that set it was not acknowledged
    floor: int = 0  #: the generation is higher than this


def stored_object(state: Hashable, operation: ClientOperation) -> tuple[Hashable, ...]:
    """An object: `put` with a digest and perhaps `if_generation`, `read`, and `delete`. Generations only grow."""
    current = state if isinstance(state, ObjectState) else ObjectState()
    match operation.action:
        case "put":
            return _put(current, operation)
        case "delete":
            gone = ObjectState(None, 0, _last_generation(current))
            if operation.outcome is OperationOutcome.UNKNOWN:
                return (current, gone) if current.digest is not None else (current,)
            return ((gone if current.digest else current),) if _agrees(operation, current.digest) else ()
        case "read":
            if operation.outcome is OperationOutcome.UNKNOWN:
                return (current,)
            return _with_generation(current, operation.value)
    raise ValueError(f"An object has no {operation.action}.")


def _agrees(operation: ClientOperation, digest: str | None) -> bool:
    return (operation.outcome is OperationOutcome.OK) == (digest is not None)


def _last_generation(current: ObjectState) -> int:
    return max(current.floor, current.generation or 0)


def _put(current: ObjectState, operation: ClientOperation) -> tuple[Hashable, ...]:
    wanted: int | None = operation.args.get("if_generation")
    actual = current.generation if current.digest is not None else 0
    may_match = wanted is None or actual is None or actual == wanted
    may_differ = wanted is not None and (actual is None or actual != wanted)
    written = ObjectState(operation.args["digest"], None, _last_generation(current))
    match operation.outcome:
        case OperationOutcome.UNKNOWN:
            return (current, written) if may_match else (current,)
        case OperationOutcome.FAIL:
            return (current,) if may_differ else ()
    if not may_match or operation.value <= written.floor:
        return ()
    return (replace(written, generation=operation.value),)


def _with_generation(current: ObjectState, seen: tuple[str, int] | None) -> tuple[Hashable, ...]:
    if seen is None or current.digest is None:
        return (current,) if seen is None and current.digest is None else ()
    digest, generation = seen
    if digest != current.digest or current.generation not in (None, generation) or generation <= current.floor:
        return ()
    return (replace(current, generation=generation),)


def _reachable() -> dict[str, frozenset[str]]:
    found: dict[str, frozenset[str]] = {}
    for start in JobState:
        states, waiting = {start}, [start]
        while waiting:
            fresh = TRANSITIONS[waiting.pop()] - states
            states |= fresh
            waiting += fresh
        found[start.value] = frozenset(each.value for each in states)
    return found


#: From each job state all states that it can reach, itself included.
REACHABLE: Mapping[str, frozenset[str]] = _reachable()


@dataclass(frozen=True, slots=True)
class JobSeen:
    """A job as a client reads it."""

    state: str
    generation: int
    end_time: str = ""
    error: str = ""

    @property
    def ended(self) -> bool:
        return self.state in TERMINAL_STATES


@dataclass(frozen=True, slots=True)
class JobRow:
    """A job as it was last seen. It goes on by itself."""

    seen: JobSeen | None = None  #: None: it is not there
    cancelled: bool = False  #: a cancel was acknowledged


_CREATED = JobRow(JobSeen(JobState.QUEUED.value, 0))
_AFTER_CANCEL = frozenset({JobState.CANCELLING.value, JobState.CANCELLED.value})


def job(state: Hashable, operation: ClientOperation) -> tuple[Hashable, ...]:
    """A job: created once, never deleted, in states that follow each other, unchanged once it has ended."""
    current = state if isinstance(state, JobRow) else JobRow()
    there = current.seen is not None
    match operation.action, operation.outcome:
        case "create", OperationOutcome.UNKNOWN:
            return (current,) if there else (current, _CREATED)
        case "create", _:
            if (operation.outcome is OperationOutcome.OK) == there:
                return ()
            return (current if there else _CREATED,)
        case "cancel", OperationOutcome.OK:
            return (replace(current, cancelled=True),) if current.seen and not current.seen.ended else ()
        case "cancel", OperationOutcome.FAIL:  # it has ended, seen or not, or is not there
            return (current,)
        case "cancel", _:
            return (current,)
        case "read", OperationOutcome.UNKNOWN:
            return (current,)
        case "read", _:
            return _follow(current, operation.value)
    raise ValueError(f"A job has no {operation.action}.")


def _follow(current: JobRow, seen: JobSeen | None) -> tuple[Hashable, ...]:
    before = current.seen
    if seen is None or before is None:
        return (current,) if seen is before else ()
    if seen.state not in REACHABLE[before.state] or seen.generation < before.generation:
        return ()
    if before.ended and seen != before:
        return ()
    if seen.generation == before.generation and seen != before:
        return ()
    if current.cancelled and seen.state not in _AFTER_CANCEL:
        return ()
    return (replace(current, seen=seen),)


MODELS: Mapping[str, Model] = {
    "bucket": register,
    "job": job,
    "model": register,
    "object": stored_object,
    "token": register,
}
