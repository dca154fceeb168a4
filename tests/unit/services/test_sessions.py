"""Sessions of browsers: begun by a token or a link, ended with either, and not to be guessed."""

from __future__ import annotations

import pytest

from trainshed.errors import ResourceExhaustedError, UnauthenticatedError
from trainshed.services.access.sessions import CODE_TTL_S, SESSION_TTL_S, BrowserSessions
from trainshed.services.access.tokens import OWNER, Tokens
from trainshed.store.database import Database
from trainshed.store.tokens import Token, TokenStore

SECOND = 1_000_000


class Clock:
    def __init__(self) -> None:
        self.now = 1000 * SECOND

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def tokens(database: Database, clock: Clock) -> Tokens:
    return Tokens(TokenStore(database), clock=clock)


@pytest.fixture
def sessions(tokens: Tokens, clock: Clock) -> BrowserSessions:
    return BrowserSessions(tokens, clock=clock)


def make(tokens: Tokens, **given: object) -> dict[str, str]:
    return tokens.create(OWNER, {"user": "alice", "project": "p-one", "role": "editor", **given})


def test_a_session_has_the_rights_of_its_token_and_ends_by_itself(
    tokens: Tokens, sessions: BrowserSessions, clock: Clock
) -> None:
    token = make(tokens)["token"]
    session = sessions.begin(token, address="a")
    assert session != token
    assert tokens.find(session) == tokens.find(token)
    clock.now += (SESSION_TTL_S + 1) * SECOND
    assert tokens.find(session) is None
    assert tokens.known(session) is None
    assert tokens.find(token) is not None


def test_a_session_ends_with_its_token(tokens: Tokens, sessions: BrowserSessions) -> None:
    made = make(tokens)
    session = sessions.begin(made["token"], address="a")
    assert tokens.find(session) is not None
    tokens.revoke(OWNER, made["id"])
    assert tokens.known(session) is None
    assert tokens.find(session) is None


def test_signing_out_ends_this_session_alone(tokens: Tokens, sessions: BrowserSessions) -> None:
    token = make(tokens)["token"]
    one, other = sessions.begin(token, address="a"), sessions.begin(token, address="a")
    assert tokens.find(one) is not None
    sessions.end(one)
    assert tokens.known(one) is None
    assert tokens.find(one) is None
    assert tokens.find(other) is not None
    sessions.end(token)  # is no session
    assert tokens.find(token) is not None


def test_no_session_begets_another(tokens: Tokens, sessions: BrowserSessions) -> None:
    session = sessions.begin(make(tokens)["token"], address="a")
    with pytest.raises(UnauthenticatedError):
        sessions.begin(session, address="a")
    with pytest.raises(UnauthenticatedError):
        sessions.link(session, "p-one")


def test_a_link_is_good_once(tokens: Tokens, sessions: BrowserSessions) -> None:
    token = make(tokens)["token"]
    code = sessions.link(token, "p-one")
    entry = sessions.enter(code, address="a")
    assert entry is not None
    assert entry.project == "p-one"
    assert tokens.find(entry.session) == tokens.find(token)
    assert sessions.enter(code, address="a") is None


def test_no_page_of_anothers_signs_somebody_in(tokens: Tokens, sessions: BrowserSessions) -> None:
    token = make(tokens)["token"]
    theirs, ours = sessions.link(token, ""), sessions.link(token, "", local=True)
    assert sessions.enter(theirs, address="a", cross_site=True) is None
    assert sessions.enter(theirs, address="a") is None
    assert sessions.enter(ours, address="a", cross_site=True) is not None


def test_a_link_is_good_for_a_minute(tokens: Tokens, sessions: BrowserSessions, clock: Clock) -> None:
    code = sessions.link(make(tokens)["token"], "")
    clock.now += CODE_TTL_S * SECOND
    assert sessions.enter(code, address="a") is None


def test_a_link_of_a_token_that_was_revoked_leads_nowhere(tokens: Tokens, sessions: BrowserSessions) -> None:
    made = make(tokens)
    code = sessions.link(made["token"], "")
    tokens.revoke(OWNER, made["id"])
    assert sessions.enter(code, address="a") is None


def test_links_that_nobody_opens_are_forgotten(tokens: Tokens, sessions: BrowserSessions) -> None:
    token = make(tokens)["token"]
    codes = [sessions.link(token, "") for _ in range(101)]
    assert sessions.enter(codes[0], address="a") is None
    assert sessions.enter(codes[1], address="a") is not None


@pytest.mark.fault("F72")
def test_guessing_is_slowed_down_for_one_address(tokens: Tokens, sessions: BrowserSessions, clock: Clock) -> None:
    for number in range(10):
        with pytest.raises(UnauthenticatedError):
            sessions.begin(f"ts_{number}", address="a")
        assert sessions.enter(f"guess-{number}", address="a") is None
    with pytest.raises(ResourceExhaustedError):
        sessions.begin("ts_guess", address="a")
    with pytest.raises(ResourceExhaustedError):
        sessions.enter("guess", address="a")
    assert sessions.enter("guess", address="b") is None
    clock.now += 61 * SECOND
    assert sessions.enter("guess", address="a") is None


def test_who_guesses_keeps_nobody_else_out(tokens: Tokens, sessions: BrowserSessions) -> None:
    token = make(tokens)["token"]
    code = sessions.link(token, "")
    for number in range(20):
        assert sessions.enter(f"guess-{number}", address="proxy") is None
    assert sessions.begin(token, address="proxy")
    assert sessions.enter(code, address="proxy")


def test_a_token_has_so_many_sessions_and_the_oldest_gives_way(
    tokens: Tokens, sessions: BrowserSessions, clock: Clock
) -> None:
    made, other = make(tokens), make(tokens)
    first, others = sessions.begin(made["token"], address="a"), sessions.begin(other["token"], address="a")
    refreshed = tokens.exchange(made["token"], ttl_s=3600)
    assert refreshed is not None
    for _ in range(200):
        assert tokens.find(first) is not None
        clock.now += 1
        last = sessions.begin(made["token"], address="a")
    assert tokens.known(first) is None
    assert tokens.find(first) is None
    assert all(tokens.find(kept) is not None for kept in (last, others, refreshed, made["token"]))
    assert sum(token["label"] == "console" for token in tokens.visible(OWNER)) == 201


class Revoking(TokenStore):
    """Revokes a token between the look at it and the insertion of what is got for it."""

    victim = ""

    def add(self, token: Token, *, digest: str) -> None:
        if self.victim:
            self.revoke(self.victim, now_us=1)
        super().add(token, digest=digest)


def test_a_token_revoked_while_a_session_begins_leaves_none(database: Database, clock: Clock) -> None:
    store = Revoking(database)
    tokens = Tokens(store, clock=clock)
    made = make(tokens)
    store.victim = made["id"]
    with pytest.raises(UnauthenticatedError):
        BrowserSessions(tokens, clock=clock).begin(made["token"], address="a")
    assert all(token["revokeTime"] for token in tokens.visible(OWNER))
