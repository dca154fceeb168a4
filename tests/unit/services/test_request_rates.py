"""Predictions a second: whose limit counts, how fast it refills, and what a refusal says."""

from __future__ import annotations

import pytest

from trainshed.domain.access.quotas import AppliedLimit, Quota, QuotaName
from trainshed.domain.iam import Principal, Role
from trainshed.errors import QuotaExceededError
from trainshed.services.access.request_rates import RequestRates

PROJECT = "p-one"


def limit(value: int, user: str = "", project: str = PROJECT) -> Quota:
    return Quota(project=project, user=user, name=QuotaName.REQUESTS_PER_SECOND, value=value)


def holder(user: str) -> Principal:
    return Principal(user=user, project=PROJECT, role=Role.VIEWER)


class Rates:
    def __init__(self, *quotas: Quota) -> None:
        self.quotas: tuple[Quota, ...] = quotas
        self.now = 100.0
        self.rates = RequestRates(lambda: self.quotas, clock=lambda: self.now)

    def taken(self, user: str, tries: int, project: str = PROJECT) -> int:
        return sum(self.rates.take(project, holder(user)) for _ in range(tries))


def test_a_second_gives_as_many_as_the_limit_and_no_burst_is_larger() -> None:
    shed = Rates(limit(5))
    assert shed.taken("ada", 20) == 5
    shed.now += 0.4
    assert shed.taken("ada", 20) == 2
    shed.now += 1000
    assert shed.taken("ada", 20) == 5
    assert shed.taken("ada", 20, project="p-two") == 20


def test_the_limits_of_the_project_and_of_the_user_both_count() -> None:
    shed = Rates(limit(10), limit(4, "*"), limit(8, "ada"))
    assert shed.taken("bob", 20) == 4
    assert shed.taken("ada", 20) == 6  # of the project's 10, bob has 4
    used = AppliedLimit(name=QuotaName.REQUESTS_PER_SECOND, value=8, project=PROJECT, user="ada")
    assert shed.rates.used(used) == 6
    shed.now += 2
    assert shed.rates.used(used) == 0


def test_tokens_of_jobs_have_the_limit_of_the_project_alone() -> None:
    shed = Rates(limit(6), limit(2, "*"))
    job = Principal.of_job(PROJECT, "train", Role.JOB)
    assert sum(shed.rates.take(PROJECT, job) for _ in range(20)) == 6


def test_a_change_counts_from_the_next_request_on() -> None:
    shed = Rates()
    assert shed.taken("ada", 50) == 50
    shed.quotas = (limit(0),)
    assert shed.taken("ada", 5) == 0
    shed.quotas = (limit(3),)
    assert shed.taken("ada", 5) == 3


@pytest.mark.parametrize(("value", "retry"), [(2, 1), (0, 0)])
def test_a_refusal_says_whether_to_try_again(value: int, retry: int) -> None:
    shed = Rates(limit(value))
    for _ in range(value):
        shed.rates.check(PROJECT, holder("ada"))
    with pytest.raises(QuotaExceededError, match=rf"{value} of {value} predictions a second are in use") as caught:
        shed.rates.check(PROJECT, holder("ada"))
    assert (caught.value.retry_after_s, caught.value.used) == (retry, value)
