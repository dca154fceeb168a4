"""Every error Trainshed raises on purpose. Each is a sentence with its cause and, where there is one, a remedy.

TrainshedError
├── Invalid              what was asked makes no sense; `field` names the part
├── Unauthenticated      no token, or one that is unknown, expired or revoked
├── Denied               the token is good but may not do this
├── NotFound
├── Conflict
│   ├── AlreadyExists
│   └── Aborted          someone else changed it since it was read (etag)
│       └── Overtaken    someone else wrote it between our reading and our writing
├── FailedPrecondition   the thing is in a state that forbids this
├── ConditionNotMet      an if-generation condition of a request does not hold
├── NotModified          an if-not condition says that the caller has it already
├── RangeNotMet          a byte range lies outside the object
├── TooLarge             over a stated limit
├── NotServed            a method of the API that this server does not offer
├── Unavailable          try again: `retry_after_s` says when
│   └── Busy             too many at once
├── TimedOut             it took longer than it may
├── OutOfSpace           the disk under the state folder is full
├── Damaged              bytes that are not those that were stored or sent
├── EngineDown           an engine cannot be reached
└── Refused              the program cannot start or go on here; nothing was changed
"""

from __future__ import annotations


class TrainshedError(Exception):
    """The root. `str()` of any of these may be shown to a user as it is."""


class InvalidArgumentError(TrainshedError):
    """A request that cannot be right. `field` is the API's own name for the part, such as `job.job_id`."""

    def __init__(self, message: str, *, field: str = "") -> None:
        self.field = field
        super().__init__(message)


class UnauthenticatedError(TrainshedError):
    """No token, or one that does not open anything."""


class PermissionDeniedError(TrainshedError):
    """A good token that may not do this."""


class NotFoundError(TrainshedError):
    """There is no such thing, or the caller may not know that there is."""


class ConflictError(TrainshedError):
    """Two requests cannot both be true."""


class AlreadyExistsError(ConflictError):
    """The name is taken. `field` is the API's own name for it."""

    def __init__(self, message: str, *, field: str = "") -> None:
        self.field = field
        super().__init__(message)


class AbortedError(ConflictError):
    """The etag sent is not the current one: read again, then write."""


class WriteConflictError(AbortedError):
    """A row is not the one that was read any more: nothing was written. Read again and try again."""


class FailedPreconditionError(TrainshedError):
    """The thing is in a state that forbids this."""

    def __init__(self, message: str, *, field: str = "") -> None:
        self.field = field
        super().__init__(message)


class ConditionNotMetError(TrainshedError):
    """An if-generation condition does not hold."""


class NotModified(TrainshedError):  # noqa: N818 - an outcome, not an error
    """The caller already has what it asks for."""


class OutOfRangeError(TrainshedError):
    """The byte range lies outside the object, which is `size` bytes long."""

    def __init__(self, message: str, *, size: int) -> None:
        self.size = size
        super().__init__(message)


class PayloadTooLargeError(TrainshedError):
    """Over a stated limit."""


class UnimplementedError(TrainshedError):
    """A method of the API that this server does not offer."""


class UnavailableError(TrainshedError):
    """Not now. The same request may work in `retry_after_s` seconds."""

    def __init__(self, message: str, *, retry_after_s: int = 1) -> None:
        self.retry_after_s = retry_after_s
        super().__init__(message)


class ResourceExhaustedError(UnavailableError):
    """Too many at once; this one was not begun."""


class DeadlineExceededError(TrainshedError):
    """It took longer than it may. Whether anything came of it is not known."""


class DiskFullError(TrainshedError):
    """The disk is full. Nothing was half-written."""


class DataLossError(TrainshedError):
    """Bytes that are not those that were stored or sent."""


class EngineUnavailableError(TrainshedError):
    """An engine cannot be reached; what it runs may go on."""


class CannotProceedError(TrainshedError):
    """The program cannot start or go on here. Nothing was changed."""
