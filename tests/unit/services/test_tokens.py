"""Tokens end when they should, also those that were got for others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from trainshed.domain.iam import ALL_PROJECTS, Access, Principal, Role
from trainshed.errors import InvalidArgumentError, UnauthenticatedError, UnavailableError
from trainshed.services.access.sessions import BrowserSessions
from trainshed.services.access.tokens import OWNER, Tokens
from trainshed.store.database import Database
from trainshed.store.tokens import Token, TokenStore
from trainshed.testing.fakes.databases import migrated_database

SECOND = 1_000_000


class Clock:
    def __init__(self) -> None:
        self.now = SECOND

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def store(tmp_path: Path) -> Iterator[TokenStore]:
    database = migrated_database(tmp_path / "state.db")
    yield TokenStore(database)
    database.close()


def make(tokens: Tokens, **given: object) -> dict[str, str]:
    return tokens.create(OWNER, {"user": "alice", "project": "p-one", "role": "editor", **given})


@pytest.mark.fault("F72")
def test_a_token_opens_its_project_until_it_is_revoked(store: TokenStore) -> None:
    tokens = Tokens(store)
    made = make(tokens)
    assert tokens.known(made["token"]) is None
    wanted = Principal(user="alice", project="p-one", role=Role.EDITOR)
    assert tokens.find(made["token"]) == tokens.known(made["token"]) == wanted
    tokens.revoke(OWNER, made["id"])
    assert tokens.find(made["token"]) is None
    assert tokens.known(made["token"]) is None


class CutConnection(TokenStore):
    """Revokes, and loses the answer of the database."""

    def revoke_unless_last(self, token_id: str, *, now_us: int) -> bool:
        super().revoke_unless_last(token_id, now_us=now_us)
        raise UnavailableError("The database does not respond.")


@pytest.mark.fault("F06", "F72")
def test_a_token_is_not_valid_by_the_cache_when_the_outcome_of_its_revocation_is_unknown(store: TokenStore) -> None:
    tokens = Tokens(CutConnection(store._database))
    made, other = make(tokens), make(tokens)
    assert tokens.find(made["token"]) is not None
    with pytest.raises(UnavailableError):
        tokens.revoke(OWNER, made["id"])
    assert tokens.known(made["token"]) is None
    assert tokens.find(made["token"]) is None
    assert tokens.find(other["token"]) is not None
    assert tokens.known(other["token"]) is None, "it is not cached: such a write may still happen"


@pytest.mark.fault("F62")
def test_a_token_expires_in_memory_too(store: TokenStore) -> None:
    clock = Clock()
    tokens = Tokens(store, clock=clock)
    secret = make(tokens, ttlSeconds=60)["token"]
    assert tokens.find(secret) is not None
    clock.now += 61 * SECOND
    assert tokens.known(secret) is None
    assert tokens.find(secret) is None


def test_what_was_got_for_a_token_ends_with_it(store: TokenStore) -> None:
    clock = Clock()
    tokens = Tokens(store, clock=clock)
    made = make(tokens, ttlSeconds=60)
    got = tokens.exchange(made["token"], ttl_s=3600)
    assert got is not None
    assert tokens.find(got) == tokens.find(made["token"])
    assert tokens.exchange(got, ttl_s=3600) is None  # nothing can be got for it in turn
    clock.now += 61 * SECOND
    assert tokens.find(got) is None


def test_revoking_a_token_revokes_what_was_got_for_it(store: TokenStore) -> None:
    tokens = Tokens(store)
    made = make(tokens)
    got = tokens.exchange(made["token"], ttl_s=3600)
    assert got is not None
    assert tokens.find(got) is not None
    tokens.revoke(OWNER, made["id"])
    assert tokens.find(got) is None


class SlowStore(TokenStore):
    """Lets something happen between reading a row and using it."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.meanwhile: Callable[[], None] = lambda: None

    def find(self, digest: str) -> Token | None:
        found = super().find(digest)
        meanwhile, self.meanwhile = self.meanwhile, lambda: None
        meanwhile()
        return found


@pytest.mark.fault("F72")
def test_a_token_revoked_while_it_is_looked_up_is_not_remembered(tmp_path: Path) -> None:
    database = migrated_database(tmp_path / "state.db")
    store = SlowStore(database)
    tokens = Tokens(store)
    made = make(tokens)

    def revoke() -> None:
        tokens.revoke(OWNER, made["id"])

    store.meanwhile = revoke
    tokens.find(made["token"])
    assert tokens.known(made["token"]) is None
    assert tokens.find(made["token"]) is None
    database.close()


@pytest.mark.fault("F71")
def test_the_owners_token_is_made_once_and_is_the_owners_alone(store: TokenStore, tmp_path: Path) -> None:
    tokens = Tokens(store)
    path = tmp_path / "token"
    tokens.ensure_owner(path)
    first = path.read_text()
    tokens.ensure_owner(path)
    assert path.read_text() == first
    assert path.stat().st_mode & 0o777 == 0o600
    principal = tokens.find(first.strip())
    assert principal is not None
    assert (principal.project, principal.role) == (ALL_PROJECTS, Role.OWNER)


def test_a_fetch_token_can_only_fetch(store: TokenStore) -> None:
    going_on = True
    tokens = Tokens(store, job_active=lambda project, job: going_on and (project, job) == ("p-one", "j"))
    secret = tokens.issue_job_fetch_token("p-one", "j", ttl_s=60)
    holder = tokens.find(secret)
    assert holder == Principal.of_job("p-one", "j", Role.ARTIFACT_READER)
    assert holder.job == "j"
    for project in ("p-one", "p-two", ALL_PROJECTS):
        assert holder.may(Access.FETCH, project) == (project == "p-one")
        assert not any(holder.may(access, project) for access in Access if access is not Access.FETCH)
    assert tokens.known(secret) is None  # the end of the job is looked for each time
    assert tokens.exchange(secret, ttl_s=60) is None
    going_on = False
    assert tokens.find(secret) is None


def test_the_token_of_a_job_has_what_its_code_needs(store: TokenStore) -> None:
    tokens = Tokens(store, job_active=lambda project, job: True)
    holder = tokens.find(tokens.issue_for_job("p-one", "j", ttl_s=60))
    assert holder == Principal.of_job("p-one", "j", Role.JOB)
    has = {access for access in Access if holder.may(access, "p-one")}
    objects = {Access.READ_OBJECTS, Access.WRITE_OBJECTS}
    studies = {Access.READ_STUDIES, Access.WRITE_STUDIES, Access.RUN_TRIALS}
    assert has == {Access.CONNECT, Access.READ_JOB, *objects, *studies, Access.PREDICT, Access.WRITE_LOG}
    assert not any(holder.may(access, "p-two") for access in Access)
    assert holder.may_name(Access.READ_JOB, {"job": "j"})
    assert not holder.may_name(Access.READ_JOB, {"job": "k"})
    assert not holder.may_name(Access.READ_JOB, {})
    assert holder.may_name(Access.PREDICT, {"model": "m", "version": "v"})


def test_the_token_of_a_job_can_be_exchanged_but_opens_no_session(store: TokenStore) -> None:
    tokens = Tokens(store, job_active=lambda project, job: True)
    secret = tokens.issue_for_job("p-one", "j", ttl_s=60)
    assert tokens.exchange(secret, ttl_s=60) is not None
    with pytest.raises(UnauthenticatedError):
        BrowserSessions(tokens).begin(secret, address="")
    with pytest.raises(UnauthenticatedError):
        BrowserSessions(tokens).link(secret, "p-one")


def test_a_fetch_token_of_a_version_ends_with_it(store: TokenStore) -> None:
    there = True
    tokens = Tokens(store, version_there=lambda *names: there and names == ("p-one", "m", "v"))
    secret = tokens.issue_version_fetch_token("p-one", "m", "v", ttl_s=60)
    holder = tokens.find(secret)
    assert holder is not None
    assert (holder.version, holder.job, holder.role) == (("m", "v"), "", Role.ARTIFACT_READER)
    assert not any(holder.may(access, "p-one") for access in Access if access is not Access.FETCH)
    assert tokens.known(secret) is None
    assert tokens.exchange(secret, ttl_s=60) is None
    there = False
    assert tokens.find(secret) is None


@pytest.mark.parametrize("role", ["artifact-reader", "job", "admin", "", None, ["owner"], 3])
def test_people_have_the_roles_of_people(store: TokenStore, role: object) -> None:
    with pytest.raises(InvalidArgumentError, match="A role is one of viewer, editor, owner"):
        make(Tokens(store), role=role)


def test_no_name_of_a_person_is_that_of_a_job(store: TokenStore) -> None:
    with pytest.raises(InvalidArgumentError):
        make(Tokens(store), user="job:j")
    with pytest.raises(InvalidArgumentError):
        make(Tokens(store), user="version:m/v")
    alice = Principal(user="alice", project="p-one", role=Role.EDITOR)
    assert (alice.job, alice.version) == ("", None)
