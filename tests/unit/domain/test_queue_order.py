"""The order of the queue: total, the same for the same jobs, by its rules, and without starvation."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainshed.domain.jobs.queue_order import (
    LOOKAHEAD_S,
    QueuedJob,
    QueuePolicy,
    SlotUsage,
    accrued,
    decayed,
    queue_order,
)

POLICY = QueuePolicy(half_life_s=3600.0, max_passed_over_s=600.0)
NOW_US = 10**12
OVERDUE_US = NOW_US - 600_000_000

JOBS = st.lists(
    st.builds(
        QueuedJob,
        project=st.sampled_from("pqr"),
        id=st.text("abcdef", min_size=1, max_size=4),
        user=st.sampled_from(["ann", "bob", ""]),
        priority=st.integers(0, 2),
        replicas=st.integers(1, 9),
        order_us=st.integers(1, 30),
        passed_over_us=st.none() | st.integers(OVERDUE_US - 5, OVERDUE_US + 5),
    ),
    unique_by=lambda job: job.key,
    max_size=30,
)
USAGES = st.builds(
    SlotUsage,
    users=st.dictionaries(
        st.tuples(st.sampled_from("pqr"), st.sampled_from(["ann", "bob", ""])), st.floats(0, 1e6), max_size=9
    ),
)


def order(jobs: list[QueuedJob], usage: SlotUsage | None = None) -> list[QueuedJob]:
    return list(queue_order(jobs, usage or SlotUsage(), POLICY, now_us=NOW_US))


def names(jobs: list[QueuedJob], usage: SlotUsage | None = None) -> list[str]:
    return [job.id for job in order(jobs, usage)]


def reference(jobs: list[QueuedJob], usage: SlotUsage) -> list[QueuedJob]:
    """The rules word for word: choose the next job, count it as if it ran, and choose again."""
    users, left, chosen = dict(usage.users), list(jobs), []

    def used(job: QueuedJob) -> tuple[float, float]:
        of_project = [each for (project, _), each in users.items() if project == job.project]
        return sum(of_project), users.get((job.project, job.user), 0.0)

    while left:
        overdue = [job for job in left if job.is_overdue(POLICY, NOW_US)]
        if overdue:
            job = min(overdue, key=lambda job: (job.passed_over_us, job.age))
        else:
            first = [job for job in left if job.priority == max(each.priority for each in left)]
            poorest = min(used(job)[0] for job in first)
            # of each such project its user with the least, then the older job
            heads = [
                min((each for each in first if each.project == project), key=lambda each: (used(each)[1], each.age))
                for project in {each.project for each in first if used(each)[0] == poorest}
            ]
            job = min(heads, key=lambda job: (used(job)[1], job.age))
        left.remove(job)
        chosen.append(job)
        user = (job.project, job.user)
        users[user] = users.get(user, 0.0) + LOOKAHEAD_S * job.replicas
    return chosen


@given(jobs=JOBS, usage=USAGES, seed=st.integers(0, 99))
def test_it_is_total_and_does_not_depend_on_the_order_of_its_input(
    jobs: list[QueuedJob], usage: SlotUsage, seed: int
) -> None:
    result = order(jobs, usage)
    assert sorted(result, key=lambda job: job.key) == sorted(jobs, key=lambda job: job.key)
    shuffled = list(jobs)
    random.Random(seed).shuffle(shuffled)
    assert order(shuffled, usage) == result


@given(
    jobs=JOBS,
    users=st.dictionaries(
        st.tuples(st.sampled_from("pqr"), st.sampled_from(["ann", "bob", ""])), st.integers(0, 10_000).map(float)
    ),
)
def test_it_is_what_its_rules_say_word_for_word(jobs: list[QueuedJob], users: dict[tuple[str, str], float]) -> None:
    usage = SlotUsage(users=users)  # whole numbers: sums of them are exact, whatever their order
    assert order(jobs, usage) == reference(jobs, usage)


@given(jobs=JOBS, usage=USAGES)
def test_overdue_jobs_come_first_and_then_the_higher_priorities(jobs: list[QueuedJob], usage: SlotUsage) -> None:
    result = order(jobs, usage)
    ranks = [(not job.is_overdue(POLICY, NOW_US), -job.priority) for job in result]
    overdue = [rank for rank in ranks if not rank[0]]
    assert ranks[: len(overdue)] == overdue
    assert ranks[len(overdue) :] == sorted(ranks[len(overdue) :])


@given(jobs=JOBS, usage=USAGES)
def test_jobs_of_one_user_and_priority_keep_their_order(jobs: list[QueuedJob], usage: SlotUsage) -> None:
    fresh = [replace(job, passed_over_us=None) for job in jobs]
    result = order(fresh, usage)
    for one in {(job.project, job.user, job.priority) for job in fresh}:
        ages = [job.age for job in result if (job.project, job.user, job.priority) == one]
        assert ages == sorted(ages)


@given(
    counts=st.dictionaries(st.sampled_from("pqrs"), st.integers(1, 40), min_size=2),
    rounds=st.integers(1, 30),
    slots=st.integers(1, 4),
)
def test_no_project_starves_while_slots_become_free(counts: dict[str, int], rounds: int, slots: int) -> None:
    """Whatever a project queues: while all wait, none gets more than one start more than another."""
    queued = [
        QueuedJob(project=project, id=f"{project}{number}", order_us=number)
        for project, count in counts.items()
        for number in range(count)
    ]
    starts: Counter[str] = Counter(dict.fromkeys(counts, 0))
    for _ in range(rounds):
        usage = SlotUsage(users={(project, ""): LOOKAHEAD_S * each for project, each in starts.items()})
        if len({job.project for job in queued}) < len(counts):
            return
        for job in order(queued, usage)[:slots]:
            starts[job.project] += 1
            queued.remove(job)
        waiting = {job.project for job in queued}
        if waiting == set(counts):
            assert max(starts.values()) - min(starts.values()) <= 1


@pytest.mark.fault("F14")
def test_projects_take_turns_and_so_do_their_users() -> None:
    jobs = [QueuedJob(project="p", id=f"ann{number}", user="ann", order_us=number) for number in range(3)]
    jobs += [QueuedJob(project="p", id=f"bob{number}", user="bob", order_us=10 + number) for number in range(2)]
    jobs += [QueuedJob(project="q", id=f"eve{number}", user="eve", order_us=20 + number) for number in range(2)]
    assert names(jobs) == ["ann0", "eve0", "bob0", "eve1", "ann1", "bob1", "ann2"]


def test_who_used_less_lately_goes_first() -> None:
    jobs = [QueuedJob(project=project, id=project, user="u", order_us=number) for number, project in enumerate("pqr")]
    usage = SlotUsage(users={("p", "u"): 50.0, ("q", "u"): 10.0, ("q", "other"): 20.0, ("r", "u"): 20.0})
    assert names(jobs, usage) == ["r", "q", "p"]


def test_a_gang_counts_for_as_many_replicas_as_it_has() -> None:
    jobs = [
        QueuedJob(project="p", id="gang", replicas=4, order_us=1),
        QueuedJob(project="p", id="after", order_us=2),
        *(QueuedJob(project="q", id=f"q{number}", order_us=10 + number) for number in range(5)),
    ]
    assert names(jobs) == ["gang", "q0", "q1", "q2", "q3", "after", "q4"]


def test_a_gang_that_was_passed_over_too_long_goes_before_a_higher_priority() -> None:
    jobs = [
        QueuedJob(project="p", id="urgent", priority=9, order_us=1),
        QueuedJob(project="p", id="patient", passed_over_us=OVERDUE_US + 1, order_us=2),
        QueuedJob(project="p", id="later", passed_over_us=OVERDUE_US, order_us=3),
        QueuedJob(project="p", id="longest", passed_over_us=OVERDUE_US - 1, order_us=4),
    ]
    assert names(jobs) == ["longest", "later", "urgent", "patient"]


def test_slot_seconds_count_half_after_each_half_life() -> None:
    assert decayed(80.0, elapsed_s=7200.0, half_life_s=3600.0) == pytest.approx(20.0)
    assert decayed(80.0, elapsed_s=-5.0, half_life_s=3600.0) == 80.0


@given(
    slots=st.integers(0, 100), first_s=st.floats(0, 1e5), second_s=st.floats(0, 1e5), half_life_s=st.floats(1.0, 1e6)
)
def test_it_does_not_matter_how_often_usage_is_counted(
    slots: int, first_s: float, second_s: float, half_life_s: float
) -> None:
    at_once = accrued(slots, elapsed_s=first_s + second_s, half_life_s=half_life_s)
    in_two = decayed(
        accrued(slots, elapsed_s=first_s, half_life_s=half_life_s), elapsed_s=second_s, half_life_s=half_life_s
    ) + accrued(slots, elapsed_s=second_s, half_life_s=half_life_s)
    assert at_once == pytest.approx(in_two, abs=1e-6)
    assert at_once <= slots * (first_s + second_s) + 1e-6
