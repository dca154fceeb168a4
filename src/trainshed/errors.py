"""Every error that Trainshed raises on purpose. Its message has the cause and, if there is one, a remedy.

TrainshedError
├── InvalidArgumentError         the request is invalid; `field` names the part
├── UnauthenticatedError         the token is missing, unknown, expired or revoked
├── PermissionDeniedError        the token is valid but lacks the permission
├── NotFoundError
├── ConflictError
│   ├── AlreadyExistsError
│   └── AbortedError             the resource changed since it was read (etag)
│       └── WriteConflictError   the row changed between read and write
├── FailedPreconditionError      the state of the resource forbids the request
├── ConditionNotMetError         an if-generation condition does not hold
├── NotModified                  an if-not condition: the caller has the current content
├── OutOfRangeError              the byte range is outside the object
├── PayloadTooLargeError         over a stated limit
├── UnimplementedError           a method of the API that this server does not offer
├── UnavailableError             retry after `retry_after_s` seconds
│   ├── DatabaseUnavailableError the database is busy or unreachable; a write may have happened
│   └── ResourceExhaustedError   too many concurrent requests
├── QuotaExceededError           a limit that an owner has set
├── DeadlineExceededError        took longer than allowed
├── RequestCancelledError        the client disconnected before the response
├── DiskFullError                the disk of the state folder is full
├── DataLossError                bytes differ from those that were stored or sent
├── EngineUnavailableError       an engine is unreachable
└── CannotProceedError           the program can't start or continue; nothing was changed
"""

from __future__ import annotations


class TrainshedError(Exception):
    """The root. Its message may be shown to users."""


class InvalidArgumentError(TrainshedError):
    """The request is invalid. `field` is the API's name of the part, such as `job.job_id`."""

    def __init__(self, message: str, *, field: str = "") -> None:
        self.field = field
        super().__init__(message)


class UnauthenticatedError(TrainshedError):
    """The token is missing or not valid."""


class PermissionDeniedError(TrainshedError):
    """The token is valid but lacks the permission."""


class NotFoundError(TrainshedError):
    """The resource does not exist, or the caller may not know that it does."""


class ConflictError(TrainshedError):
    """The request conflicts with the current state."""


class AlreadyExistsError(ConflictError):
    """The name is taken. `field` is the API's name of it."""

    def __init__(self, message: str, *, field: str = "") -> None:
        self.field = field
        super().__init__(message)


class AbortedError(ConflictError):
    """The etag is not the current one. Read the resource again, then write."""


class WriteConflictError(AbortedError):
    """A row changed since it was read. Nothing was written; retry from the read."""


class FailedPreconditionError(TrainshedError):
    """The state of the resource forbids the request."""

    def __init__(self, message: str, *, field: str = "") -> None:
        self.field = field
        super().__init__(message)


class ConditionNotMetError(TrainshedError):
    """An if-generation condition does not hold."""


class NotModified(TrainshedError):  # noqa: N818 - an outcome, not an error
    """The caller has the current content."""


class OutOfRangeError(TrainshedError):
    """The byte range is outside the object, which has `size` bytes."""

    def __init__(self, message: str, *, size: int) -> None:
        self.size = size
        super().__init__(message)


class PayloadTooLargeError(TrainshedError):
    """Over a stated limit."""


class UnimplementedError(TrainshedError):
    """A method of the API that this server does not offer."""


class UnavailableError(TrainshedError):
    """The request may succeed after `retry_after_s` seconds."""

    def __init__(self, message: str, *, retry_after_s: int = 1) -> None:
        self.retry_after_s = retry_after_s
        super().__init__(message)


class DatabaseUnavailableError(UnavailableError):
    """The database is busy or unreachable. A write that was about to be committed may have happened or not."""


class ResourceExhaustedError(UnavailableError):
    """Too many concurrent requests. This one was not started."""


class QuotaExceededError(TrainshedError):
    """A limit that an owner has set forbids the request.

    To try again helps after `retry_after_s` seconds. With 0 it helps only when something has ended.
    """

    def __init__(
        self, message: str, *, subject: str, quota: str, limit: int, used: int, retry_after_s: int = 0
    ) -> None:
        self.subject = subject  #: the resource name of whom the limit applies to
        self.quota = quota
        self.limit = limit
        self.used = used
        self.retry_after_s = retry_after_s
        super().__init__(message)


class StorageQuotaExceededError(QuotaExceededError):
    """A limit of bytes in buckets forbids the write. Clients of Cloud Storage do not try it again."""


class DeadlineExceededError(TrainshedError):
    """The request took longer than allowed. Its outcome is unknown."""


class RequestCancelledError(TrainshedError):
    """The client has disconnected. What it asked for was stopped, and nobody reads this."""


class DiskFullError(TrainshedError):
    """The disk is full. Nothing was written partially."""


class DataLossError(TrainshedError):
    """Bytes differ from those that were stored or sent."""


class EngineUnavailableError(TrainshedError):
    """An engine is unreachable. Its workloads may continue."""


class CannotProceedError(TrainshedError):
    """The program can't start or continue. Nothing was changed."""
