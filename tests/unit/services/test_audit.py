"""The record: what joins a change, what is gathered, what a flood costs, what is rotated."""

from __future__ import annotations

import threading

import pytest
import sqlalchemy as sa

from trainshed.domain.access.audit import MAX_TEXT, OK, AuditEntry, AuditSearch, masked
from trainshed.domain.iam import ALL_PROJECTS
from trainshed.errors import InvalidArgumentError
from trainshed.services.access.audit import MAX_REFUSED_PER_MINUTE, AuditLog, Trail
from trainshed.store.audit import AuditStore
from trainshed.store.database import Database
from trainshed.store.group_commit import GroupCommit
from trainshed.testing.eventually import eventually

MINUTE = 60_000_000
EVERYTHING = AuditSearch(project=ALL_PROJECTS)


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def audit(database: Database, clock: Clock) -> AuditLog:
    return AuditLog(AuditStore(database), clock=clock)


def trail(
    *, user: str = "ada", address: str = "10.0.0.1", project: str = "p", resource: str = "jobs/j", job: str = ""
) -> Trail:
    return Trail(
        changes=True, address=address, user=user, job=job, project=project, method="jobs.create", resource=resource
    )


def lines(audit: AuditLog) -> list[tuple[str, str, str, int]]:
    """User, resource, outcome and times of all entries, oldest first."""
    entries = audit.page(EVERYTHING, limit=1000)["entries"]
    return [(each["user"], each["resource"], each["outcome"], each["times"]) for each in entries][::-1]


def touch(database: Database) -> None:
    with database.write() as tx:
        tx.run(sa.text("update projects set number = number"))


def test_the_entry_of_a_change_is_committed_with_it(audit: AuditLog, database: Database) -> None:
    about = trail()
    with audit.riding(about):
        touch(database)
    rows = AuditStore(database).newest(EVERYTHING, before=(2**62, 2**62), limit=10)  # without a flush
    assert [(row.user, row.outcome) for row in rows] == [("ada", OK)]
    audit.end(about, OK, refused=False)
    assert lines(audit) == [("ada", "jobs/j", OK, 1)]


def test_a_change_that_is_rolled_back_has_no_entry(audit: AuditLog, database: Database) -> None:
    about = trail()
    with pytest.raises(ValueError, match="no"), audit.riding(about), database.write():
        raise ValueError("no")
    audit.end(about, "INVALID_ARGUMENT", refused=False)
    assert lines(audit) == []


def test_a_change_that_fails_after_its_transaction_says_so(audit: AuditLog, database: Database) -> None:
    about = trail()
    with audit.riding(about):
        touch(database)
    audit.end(about, "ABORTED", refused=False)
    assert [outcome for _, _, outcome, _ in lines(audit)] == [OK, "ABORTED"]


def test_writes_that_share_a_commit_each_have_their_entry(audit: AuditLog, database: Database) -> None:
    group = GroupCommit(database)
    first, others = threading.Event(), threading.Event()

    def write(name: str) -> None:
        about = trail(user=name)

        def work(_tx: object) -> None:
            if name == "u0":
                first.set()
                assert others.wait(30)

        with audit.riding(about):
            group.run(work)
        audit.end(about, OK, refused=False)

    threads = [threading.Thread(target=write, args=(f"u{number}",)) for number in range(4)]
    threads[0].start()
    assert first.wait(30)
    for thread in threads[1:]:
        thread.start()
    eventually(lambda: group.waiting, lambda waiting: waiting == 3)
    others.set()
    for thread in threads:
        thread.join(30)
    assert sorted(user for user, *_ in lines(audit)) == ["u0", "u1", "u2", "u3"]


def test_what_a_job_writes_is_one_entry_for_each_bucket(audit: AuditLog) -> None:
    for resource in ("buckets/a/objects/1", "buckets/a/objects/2", "buckets/b/objects/1", "buckets/a/objects/1"):
        audit.end(trail(user="job:j", job="j", resource=resource), OK, refused=False)
    audit.end(trail(user="job:k", job="k", resource="buckets/a/objects/1"), OK, refused=False)
    assert [line[:2] for line in lines(audit)] == [
        ("job:j", "buckets/a"),
        ("job:j", "buckets/b"),
        ("job:k", "buckets/a"),
    ]


def test_a_flood_of_refused_tries_is_counted(audit: AuditLog, clock: Clock) -> None:
    for _ in range(500):
        audit.end(trail(user=""), "UNAUTHENTICATED", refused=True)
    audit.end(trail(user="", address="10.0.0.2"), "UNAUTHENTICATED", refused=True)
    assert len(lines(audit)) == MAX_REFUSED_PER_MINUTE + 1
    clock.now += MINUTE
    audit._end_minutes()
    *_, last = lines(audit)
    assert last == ("", "jobs/j", "UNAUTHENTICATED", 500 - MAX_REFUSED_PER_MINUTE)
    audit.end(trail(user=""), "UNAUTHENTICATED", refused=True)
    assert len(lines(audit)) == MAX_REFUSED_PER_MINUTE + 3


def test_it_is_rotated_by_age_and_number(database: Database, clock: Clock) -> None:
    store = AuditStore(database)
    audit = AuditLog(store, clock=clock)
    for number in range(10):
        clock.now = number * MINUTE
        audit.end(trail(resource=str(number)), OK, refused=False)
    audit.flush()
    assert store.rotate(before_us=3 * MINUTE, most=100) == 3
    assert [resource for _, resource, *_ in lines(audit)] == [str(number) for number in range(3, 10)]
    assert store.rotate(before_us=0, most=2) == 5
    assert [resource for _, resource, *_ in lines(audit)] == ["8", "9"]


def test_pages_filters_and_the_way_on(audit: AuditLog, clock: Clock) -> None:
    for number in range(7):
        clock.now += 1
        outcome = OK if number % 2 else "PERMISSION_DENIED"
        about = trail(user=f"u{number % 3}", project=("p", "q")[number % 2], resource=f"jobs/j_{number}")
        audit.end(about, outcome, refused=outcome != OK)

    def read(search: AuditSearch) -> list[str]:
        found, token = [], ""
        while True:
            page = audit.page(search, limit=2, page_token=token)
            found += [each["resource"][-1] for each in page["entries"]]
            if not (token := page["nextPageToken"]):
                return found

    assert read(EVERYTHING) == list("6543210")
    assert read(AuditSearch(project="q")) == list("531")
    assert read(AuditSearch(project="*", user="u0")) == list("630")
    assert read(AuditSearch(project="*", outcome="refused")) == list("6420")
    assert read(AuditSearch(project="*", outcome=OK, resource="J_3")) == ["3"]
    assert read(AuditSearch(project="*", resource="jobs/j%")) == []
    assert read(AuditSearch(project="*", since_us=clock.now - 1)) == list("65")
    cursor = audit.page(EVERYTHING, limit=1)["cursor"]
    assert audit.page(EVERYTHING, limit=10, after=cursor)["entries"] == []
    audit.end(trail(resource="new"), OK, refused=False)
    page = audit.page(EVERYTHING, limit=10, after=cursor)
    assert [each["resource"] for each in page["entries"]] == ["new"]
    assert page["cursor"] > cursor
    for bad in ("x", "-1", "9" * 30):
        with pytest.raises(InvalidArgumentError):
            audit.page(EVERYTHING, limit=1, after=bad)
        with pytest.raises(InvalidArgumentError):
            audit.page(EVERYTHING, limit=1, page_token=bad)


def test_what_is_gathered_is_written_at_the_end(audit: AuditLog, database: Database) -> None:
    audit.begin()
    for _ in range(MAX_REFUSED_PER_MINUTE + 5):
        audit.end(trail(), "PERMISSION_DENIED", refused=True)
    audit.close()
    rows = AuditStore(database).newest(EVERYTHING, before=(2**62, 2**62), limit=100)
    assert [row.times for row in rows].count(5) == 1
    assert len(rows) == MAX_REFUSED_PER_MINUTE + 1


def test_no_field_holds_a_token_or_breaks_a_line() -> None:
    secret = "ts_" + "aB3-_" * 8
    text = masked(f"a\n{secret}\x00" + "x" * 5000)
    assert secret not in text
    assert text.startswith("a\N{REPLACEMENT CHARACTER}ts_...\N{REPLACEMENT CHARACTER}x")
    assert len(text) == MAX_TEXT


def test_the_body_is_one_of_cloud_audit() -> None:
    entry = AuditEntry(
        time_us=1, project="p", user="ada", address="::1", method="m", resource="r", outcome="PERMISSION_DENIED", id=7
    )
    body = entry.body()
    assert body["logName"] == "projects/p/logs/cloudaudit.googleapis.com%2Factivity"
    assert body["protoPayload"]["status"] == {"code": 7, "message": "PERMISSION_DENIED"}
    assert body["protoPayload"]["authenticationInfo"] == {"principalEmail": "ada"}
