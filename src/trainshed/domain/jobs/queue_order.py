"""The order of the queue: a pure function of the queued jobs, what projects and users have in use, and the time."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

LOOKAHEAD_S = 10.0  #: seconds that a replica counts in advance, for those that run and those that go before

ProjectUser = tuple[str, str]  #: a project, and a user of it


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuePolicy:
    """The settings of the order."""

    half_life_s: float = 3600.0  #: after which a slot-second counts half
    max_passed_over_s: float = 600.0  #: how long others may start before a gang that does not fit


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedJob:
    """What the order needs to know of a queued job."""

    project: str
    id: str
    user: str = ""
    priority: int = 0
    replicas: int = 1
    order_us: int = 0  #: position in the order of creation
    passed_over_us: int | None = None  #: when a job behind it first started before it

    @property
    def key(self) -> tuple[str, str]:
        return self.project, self.id

    @property
    def age(self) -> tuple[int, str, str]:
        """Sorts by age, without ties."""
        return self.order_us, self.id, self.project

    def is_overdue(self, policy: QueuePolicy, now_us: int) -> bool:
        """Whether it was passed over for so long that nothing may overtake it any more."""
        return self.passed_over_us is not None and now_us - self.passed_over_us >= policy.max_passed_over_s * 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotUsage:
    """The slot-seconds that users of projects have in use lately, and `LOOKAHEAD_S` of each replica that runs."""

    users: Mapping[ProjectUser, float] = field(default_factory=dict)

    def by_project(self) -> dict[str, float]:
        projects: defaultdict[str, float] = defaultdict(float)
        for (project, _), slot_seconds in self.users.items():
            projects[project] += slot_seconds
        return dict(projects)


def queue_order(
    queued: Iterable[QueuedJob], usage: SlotUsage, policy: QueuePolicy, *, now_us: int
) -> tuple[QueuedJob, ...]:
    """The order in which queued jobs are offered capacity. A total order: the same jobs always give the same one.

    Jobs that are overdue come first, in the order in which they were passed over. Then the higher priority, then the
    project with the least slot-seconds, then its user with the least, then the older job. A job counts for those
    behind it as if it ran: so the jobs of projects, and of users within a project, take turns.
    """
    projects, users = defaultdict(float, usage.by_project()), defaultdict(float, usage.users)
    overdue: list[QueuedJob] = []
    by_priority: defaultdict[int, list[QueuedJob]] = defaultdict(list)
    for job in queued:
        if job.is_overdue(policy, now_us):
            overdue.append(job)
        else:
            by_priority[job.priority].append(job)
    overdue.sort(key=lambda job: (job.passed_over_us, job.age))
    for job in overdue:
        projects[job.project] += _charge(job)
        users[job.project, job.user] += _charge(job)
    order = overdue
    for priority in sorted(by_priority, reverse=True):
        order += _take_turns(by_priority[priority], projects, users)
    return tuple(order)


def _take_turns(
    jobs: list[QueuedJob], projects: defaultdict[str, float], users: defaultdict[ProjectUser, float]
) -> list[QueuedJob]:
    """Order jobs of one priority. Adds what they are taken to use to `projects` and `users`.

    Each job is labelled with what its user, and then its project, has in use when its turn comes. These numbers only
    grow along the jobs of one user and of one project. So sorting by them gives the same order as choosing the least
    one again and again, at the cost of a sort.
    """
    by_project: defaultdict[str, list[tuple[float, tuple[int, str, str], QueuedJob]]] = defaultdict(list)
    for job in sorted(jobs, key=lambda job: job.age):
        user = (job.project, job.user)
        by_project[job.project].append((users[user], job.age, job))
        users[user] += _charge(job)
    turns = []
    for project, entries in by_project.items():
        for of_user, age, job in sorted(entries, key=lambda entry: entry[:2]):
            turns.append((projects[project], of_user, age, job))
            projects[project] += _charge(job)
    turns.sort(key=lambda turn: turn[:3])
    return [job for *_, job in turns]


def _charge(job: QueuedJob) -> float:
    return LOOKAHEAD_S * max(1, job.replicas)


def decayed(slot_seconds: float, *, elapsed_s: float, half_life_s: float) -> float:
    """What slot-seconds count after a time: half of them after each half-life."""
    return slot_seconds * math.exp2(-max(0.0, elapsed_s) / half_life_s)


def accrued(slots: int, *, elapsed_s: float, half_life_s: float) -> float:
    """What slots that were in use for the whole of a time count at its end, decay included."""
    mean_life_s = half_life_s / math.log(2)
    return slots * mean_life_s * (1.0 - math.exp2(-max(0.0, elapsed_s) / half_life_s))
