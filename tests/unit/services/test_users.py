"""Users are rows that tokens name. Disabling one ends its tokens, and the last owner stays."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainshed.domain.iam import ALL_PROJECTS, Role
from trainshed.errors import AlreadyExistsError, FailedPreconditionError, InvalidArgumentError, NotFoundError
from trainshed.services.access.sessions import BrowserSessions
from trainshed.services.access.tokens import OWNER, Tokens
from trainshed.services.access.users import Users
from trainshed.store.database import Database
from trainshed.store.tokens import TokenStore, UserStore


@pytest.fixture
def tokens(database: Database, tmp_path: Path) -> Tokens:
    tokens = Tokens(TokenStore(database), user_disabled=UserStore(database).is_disabled)
    tokens.ensure_owner(tmp_path / "token")
    return tokens


@pytest.fixture
def users(database: Database, tokens: Tokens) -> Users:
    return Users(UserStore(database), tokens)


def test_disabling_a_user_calls_for_the_end_of_the_jobs(database: Database, tokens: Tokens) -> None:
    ended: list[tuple[str, str]] = []
    users = Users(UserStore(database), tokens, cancel_jobs=lambda user, by: ended.append((user, by)))
    make(tokens, "ada")
    users.disable("ada", by="owner")
    assert ended == [("ada", "owner")]
    with pytest.raises(FailedPreconditionError):
        users.disable("owner", by="owner")
    assert ended == [("ada", "owner")], "one who can't be disabled keeps the jobs"


def make(tokens: Tokens, user: str, project: str = "p-one", role: str = "editor") -> dict[str, str]:
    return tokens.create(OWNER, {"user": user, "project": project, "role": role})


def kinds(users: Users) -> dict[str, str]:
    return {each["name"]: each["kind"] for each in users.visible()}


def test_a_token_adds_its_user_and_a_service_account_keeps_its_kind(tokens: Tokens, users: Users) -> None:
    users.create({"name": "nightly", "kind": "service-account"})
    make(tokens, "ada")
    make(tokens, "ada")
    make(tokens, "nightly")
    tokens.issue_for_job("p-one", "j", ttl_s=60)
    assert kinds(users) == {"ada": "user", "nightly": "service-account", "owner": "user"}
    with pytest.raises(AlreadyExistsError):
        users.create({"name": "ada"})
    for bad in ({"name": "job:j"}, {"name": ""}, {"name": "bob", "kind": "robot"}, {"name": "bob", "kind": 3}):
        with pytest.raises(InvalidArgumentError):
            users.create(bad)


def test_disabling_ends_tokens_and_sessions_and_enabling_brings_tokens_back(tokens: Tokens, users: Users) -> None:
    ada, bob = make(tokens, "ada")["token"], make(tokens, "bob")["token"]
    session = BrowserSessions(tokens).begin(ada, address="")
    access = tokens.exchange(ada, ttl_s=60)
    assert access is not None
    assert all(tokens.find(secret) and tokens.known(secret) for secret in (ada, session, access, bob))
    assert users.disable("ada", by="owner")["disableTime"] is not None
    for secret in (ada, session, access):
        assert tokens.known(secret) is None
        assert tokens.find(secret) is None
        assert tokens.exchange(secret, ttl_s=60) is None
    assert tokens.find(bob) is not None
    with pytest.raises(FailedPreconditionError, match="auth users enable ada"):
        make(tokens, "ada")
    first = users.disable("ada", by="owner")
    assert users.disable("ada", by="owner") == first
    assert users.enable("ada")["disableTime"] is None
    assert tokens.find(ada) is not None
    with pytest.raises(NotFoundError):
        users.disable("nobody", by="owner")


def test_the_last_owner_can_not_be_locked_out(tokens: Tokens, users: Users) -> None:
    [first] = [each for each in tokens.visible(OWNER) if each["user"] == "owner"]
    with pytest.raises(FailedPreconditionError):
        users.disable("owner", by="owner")
    with pytest.raises(FailedPreconditionError):
        tokens.revoke(OWNER, first["id"])
    make(tokens, "ada", role="owner")  # of one project
    with pytest.raises(FailedPreconditionError, match="last owner of all projects"):
        users.disable("owner", by="owner")
    second = make(tokens, "ada", ALL_PROJECTS, "owner")
    assert users.disable("owner", by="owner")["disableTime"] is not None
    with pytest.raises(FailedPreconditionError, match="last owner of all projects"):
        users.disable("ada", by="owner")
    with pytest.raises(FailedPreconditionError, match="last token of an owner"):
        tokens.revoke(OWNER, second["id"])
    users.enable("owner")
    assert tokens.revoke(OWNER, second["id"])["revokeTime"] is not None
    assert tokens.find(second["token"]) is None
    holder = tokens.find(make(tokens, "bob")["token"])
    assert holder is not None
    assert holder.role is Role.EDITOR
    users.disable("bob", by="owner")


def test_a_session_of_the_owner_does_not_count_as_another_owner(tokens: Tokens, users: Users, tmp_path: Path) -> None:
    BrowserSessions(tokens).begin((tmp_path / "token").read_text().strip(), address="")
    with pytest.raises(FailedPreconditionError):
        users.disable("owner", by="owner")
