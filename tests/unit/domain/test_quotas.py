"""Which limits apply to whom, and what is refused."""

from __future__ import annotations

import pytest

from trainshed.domain.access.quotas import AppliedLimit, Quota, QuotaName, applied, check_limit, check_quota
from trainshed.errors import InvalidArgumentError, QuotaExceededError

RUNNING = QuotaName.RUNNING_REPLICAS


def quota(project: str, user: str, value: int) -> Quota:
    return Quota(project=project, user=user, name=RUNNING, value=value)


ALL = (
    quota("*", "", 100),
    quota("p-one", "", 50),
    quota("*", "*", 4),
    quota("*", "ada", 5),
    quota("p-one", "*", 6),
    quota("p-one", "ada", 7),
)


@pytest.mark.parametrize(
    ("project", "user", "values"),
    [
        ("p-one", "", [50]),
        ("p-two", "", [100]),
        ("p-one", "ada", [50, 7]),
        ("p-one", "bob", [50, 6]),
        ("p-two", "ada", [100, 5]),
        ("p-two", "bob", [100, 4]),
    ],
)
def test_the_most_specific_limit_of_the_project_and_of_the_user_count(
    project: str, user: str, values: list[int]
) -> None:
    limits = applied(ALL, project, user)
    assert [limit.value for limit in limits] == values
    assert [limit.default for limit in limits] == [value not in (50, 7) for value in values]
    assert applied((), project, user) == ()


def test_a_refusal_names_the_limit_what_is_used_and_who_can_raise_it() -> None:
    limit = AppliedLimit(name=QuotaName.QUEUED_REPLICAS, value=4, project="p-one", user="ada")
    check_limit(limit, 3, 1)
    with pytest.raises(QuotaExceededError) as caught:
        check_limit(limit, 3, 2)
    assert str(caught.value) == (
        "User ada of project p-one has reached a limit: 3 of 4 replicas in the queue are in use (queued-replicas), and "
        "this needs 2 more. An owner of the project can raise it: "
        "`trainshed quotas set queued-replicas NUMBER --project p-one --user ada`."
    )
    error = caught.value
    assert (error.subject, error.quota, error.limit, error.used) == ("projects/p-one/users/ada", limit.name, 4, 3)
    with pytest.raises(QuotaExceededError, match=r"Project p-one .* An owner of all projects can raise it"):
        check_limit(AppliedLimit(name=QuotaName.VERSIONS, value=0, project="p-one"), 0, 1)


def test_a_priority_is_compared_and_not_counted() -> None:
    limit = AppliedLimit(name=QuotaName.HIGHEST_PRIORITY, value=-1, project="p-one")
    check_limit(limit, 0, -1)
    with pytest.raises(QuotaExceededError, match="may ask for priority -1 at most"):
        check_limit(limit, 0, 0)


def test_what_is_no_limit_is_refused() -> None:
    assert check_quota("highest-priority", -5, user="ada") is QuotaName.HIGHEST_PRIORITY
    for name, value, user in (("jobs", 1, ""), ("versions", -1, ""), ("versions", 2**62, ""), ("versions", 1, "ada")):
        with pytest.raises(InvalidArgumentError):
            check_quota(name, value, user=user)
