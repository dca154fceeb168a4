"""Quotas: what a limit counts, which limits apply to whom, and the sentences of refusals. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from trainshed.errors import InvalidArgumentError, QuotaExceededError, StorageQuotaExceededError

EACH = "*"  #: as a project or a user: each one that has no limit of its own
MAX_VALUE = 2**62
MAX_DAYS = 100_000


class QuotaName(StrEnum):
    """What is limited."""

    RUNNING_REPLICAS = "running-replicas"
    QUEUED_REPLICAS = "queued-replicas"
    JOBS_PER_DAY = "jobs-per-day"
    HIGHEST_PRIORITY = "highest-priority"
    VERSIONS = "versions"
    HOSTS = "hosts"
    BUCKET_BYTES = "bucket-bytes"
    REQUESTS_PER_SECOND = "requests-per-second"
    LOG_DAYS = "log-days"
    ATTEMPT_DAYS = "attempt-days"
    TRIAL_DAYS = "trial-days"
    REQUEST_LOG_DAYS = "request-log-days"


#: what each limit counts, for people
WORDS: Mapping[QuotaName, str] = {
    QuotaName.RUNNING_REPLICAS: "replicas that run or start",
    QuotaName.QUEUED_REPLICAS: "replicas in the queue",
    QuotaName.JOBS_PER_DAY: "jobs that were submitted in the last 24 hours",
    QuotaName.HIGHEST_PRIORITY: "the highest priority of a job",
    QuotaName.VERSIONS: "versions of models",
    QuotaName.HOSTS: "hosts of versions",
    QuotaName.BUCKET_BYTES: "of objects in buckets",
    QuotaName.REQUESTS_PER_SECOND: "predictions a second",
    QuotaName.LOG_DAYS: "days for which the output of a job is kept after its end",
    QuotaName.ATTEMPT_DAYS: "days for which the files of a job's attempts are kept after its end",
    QuotaName.TRIAL_DAYS: "days for which the folders of trials are kept after the end of their search",
    QuotaName.REQUEST_LOG_DAYS: "days for which logged requests are kept",
}
#: how long something is kept. An owner of the project sets it, because it takes from nobody else
RETENTION = frozenset({QuotaName.LOG_DAYS, QuotaName.ATTEMPT_DAYS, QuotaName.TRIAL_DAYS, QuotaName.REQUEST_LOG_DAYS})
#: limits that nothing counts towards: each job is compared with them by itself
LEVELS = frozenset({QuotaName.HIGHEST_PRIORITY})
#: limits of projects alone: versions, hosts and objects have no user
PROJECTS_ONLY = frozenset({QuotaName.VERSIONS, QuotaName.HOSTS, QuotaName.BUCKET_BYTES}) | RETENTION
_BYTE_UNITS = (("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("KB", 10**3))


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """One limit as an owner set it. An empty user is the project as a whole."""

    project: str
    user: str
    name: QuotaName
    value: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AppliedLimit:
    """A limit that applies to a project, or to a user of it."""

    name: QuotaName
    value: int
    project: str
    user: str = ""  #: empty: the project as a whole
    default: bool = False  #: set for each project or each user, and not for this one

    @property
    def subject(self) -> str:
        return f"User {self.user} of project {self.project}" if self.user else f"Project {self.project}"

    @property
    def resource(self) -> str:
        """The subject as a resource name."""
        return f"projects/{self.project}" + (f"/users/{self.user}" if self.user else "")

    @property
    def remedy(self) -> str:
        """Who can raise the limit, and how."""
        who = "An owner of the project" if self.user else "An owner of all projects"
        option = f" --user {self.user}" if self.user else ""
        return f"{who} can raise it: `trainshed quotas set {self.name} NUMBER --project {self.project}{option}`."


def check_quota(name: str, value: int, *, user: str) -> QuotaName:
    """Return the name of a limit. Raises `InvalidArgumentError` if there is none, or the value or the user is wrong."""
    if name not in list(QuotaName):
        raise InvalidArgumentError(f"A limit is one of {', '.join(QuotaName)}; {name[:40]!r} is not.", field="name")
    quota = QuotaName(name)
    if not -MAX_VALUE < value < MAX_VALUE or (value < 0 and quota not in LEVELS):
        raise InvalidArgumentError(f"The limit {quota} must be 0 or more, and not {value}.", field="value")
    if quota in RETENTION and not 1 <= value <= MAX_DAYS:
        raise InvalidArgumentError(
            f"{quota} is 1 to {MAX_DAYS:,} days, and not {value}. Remove it to keep everything.", field="value"
        )
    if user and quota in PROJECTS_ONLY:
        raise InvalidArgumentError(f"The limit {quota} is of a project as a whole. Leave out the user.", field="user")
    return quota


def applied(quotas: Sequence[Quota], project: str, user: str = "") -> tuple[AppliedLimit, ...]:
    """Return the limits of a project, and of a user of it if one is named. The most specific one counts."""
    limits = list(_first(quotas, project, "", ((project, ""), (EACH, ""))))
    if user:
        limits += _first(quotas, project, user, ((project, user), (project, EACH), (EACH, user), (EACH, EACH)))
    return tuple(limits)


def _first(
    quotas: Sequence[Quota], project: str, user: str, scopes: Iterable[tuple[str, str]]
) -> Iterable[AppliedLimit]:
    values = {(quota.project, quota.user, quota.name): quota.value for quota in quotas}
    ordered = tuple(scopes)
    for name in QuotaName:
        for scope in ordered:
            if (*scope, name) in values:
                default = scope != (project, user)
                yield AppliedLimit(name=name, value=values[*scope, name], project=project, user=user, default=default)
                break


def check_limit(limit: AppliedLimit, used: int, wanted: int) -> None:
    """Raise `QuotaExceededError` if `used` and what is `wanted` besides are more than the limit."""
    if used + wanted <= limit.value:
        return
    if limit.name in LEVELS:
        message = f"{limit.subject} may ask for priority {limit.value} at most ({limit.name}), and not for {wanted}."
    else:
        message = (
            f"{limit.subject} has reached a limit: {_used_words(limit, used)} are in use ({limit.name}), "
            f"and this needs {amount(limit.name, wanted)} more."
        )
    kind = StorageQuotaExceededError if limit.name is QuotaName.BUCKET_BYTES else QuotaExceededError
    raise kind(
        f"{message} {limit.remedy}",
        subject=limit.resource,
        quota=limit.name,
        limit=limit.value,
        used=used,
        retry_after_s=1 if limit.name is QuotaName.REQUESTS_PER_SECOND and limit.value else 0,
    )


def amount(name: QuotaName, value: int) -> str:
    """Return a number as people read it, such as `1.5 GB`. What is rounded is never shown as less than it is."""
    if name is not QuotaName.BUCKET_BYTES:
        return str(value)
    for unit, size in _BYTE_UNITS:
        if value >= size:
            return f"{-(-value * 100 // size) / 100:g} {unit}"
    return f"{value} bytes"


def exceeded_words(limit: AppliedLimit, used: int) -> str:
    """Return that more is in use than the limit, and who can raise it."""
    whose = f"{limit.subject} is beyond a limit: {_used_words(limit, used)} are in use ({limit.name})."
    return f"{whose} Delete what is no longer needed. {limit.remedy}"


def running_reason(limit: AppliedLimit, used: int) -> str:
    """Return why a queued job waits for a limit."""
    whose = f"It waits for a limit: {limit.subject.lower()} has {_used_words(limit, used)} in use ({limit.name})."
    return f"{whose} {limit.remedy}"


def _used_words(limit: AppliedLimit, used: int) -> str:
    return f"{amount(limit.name, used)} of {amount(limit.name, limit.value)} {WORDS[limit.name]}"
