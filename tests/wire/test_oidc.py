"""Sign-in by OpenID Connect, against a real provider: groups give roles, and a change of groups ends a session."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from trainshed.domain.access.oidc import OidcSettings
from trainshed.errors import PermissionDeniedError, UnauthenticatedError, UnavailableError
from trainshed.node.process.ports import free_ports
from trainshed.services.access.oidc import OidcSignIn
from trainshed.services.access.oidc_provider import OidcProvider
from trainshed.services.access.tokens import Tokens
from trainshed.services.access.users import Users
from trainshed.store.database import Database
from trainshed.store.tokens import TokenStore, UserStore
from trainshed.testing.processes.openid import OpenIdProvider, PersonWithBrowser
from trainshed.testing.processes.servers import RunningServer

PROJECT = "course"
GROUPS = [
    {"group": "students", "project": PROJECT, "role": "viewer"},
    {"group": "teachers", "project": PROJECT, "role": "editor"},
    {"group": "admins", "project": "*", "role": "owner"},
]
CALLBACK = "http://127.0.0.1:1/callback"


def settings_of(provider: OpenIdProvider) -> OidcSettings:
    table = {
        "issuer": provider.issuer,
        "client_id": "trainshed",
        "client_secret": "the secret of the client",
        "scopes": "openid profile groups offline_access",
        "groups": GROUPS,
    }
    settings = OidcSettings.read(table)
    assert settings is not None
    return settings


@pytest.fixture(scope="module")
def provider() -> Iterator[OpenIdProvider]:
    with OpenIdProvider(CALLBACK) as running:
        yield running


@pytest.fixture
def tokens(database: Database, tmp_path: Path) -> Tokens:
    tokens = Tokens(TokenStore(database), user_disabled=UserStore(database).is_disabled)
    tokens.ensure_owner(tmp_path / "token")
    return tokens


@pytest.fixture
def oidc(provider: OpenIdProvider, tokens: Tokens) -> OidcSignIn:
    settings = settings_of(provider)
    return OidcSignIn(settings, OidcProvider(settings), tokens)


def sign_in(oidc: OidcSignIn, name: str, project: str = "") -> str:
    """Sign in as a person. Returns the session."""
    state, url = oidc.start(redirect_uri=CALLBACK, project=project)
    back, _, _ = PersonWithBrowser(name).open(url, stop_at=CALLBACK)
    query = parse_qs(urlsplit(back).query)
    assert query["state"] == [state], back
    return oidc.finish(state, query["code"][0])


def test_groups_give_roles(provider: OpenIdProvider, oidc: OidcSignIn, tokens: Tokens) -> None:
    provider.set_groups({"ada": ["students", "teachers"], "root": ["admins", "students"], "eve": ["others"]})
    ada = tokens.find(sign_in(oidc, "ada"))
    assert ada is not None
    assert (ada.user, ada.project, ada.role) == ("ada", PROJECT, "editor")
    root = tokens.find(sign_in(oidc, "root"))
    assert root is not None
    assert (root.project, root.role) == ("*", "owner")
    with pytest.raises(PermissionDeniedError, match="No group of eve"):
        sign_in(oidc, "eve")
    with pytest.raises(PermissionDeniedError, match="No group of ada"):
        sign_in(oidc, "ada", "another-course")


def test_a_change_of_groups_ends_a_session(provider: OpenIdProvider, oidc: OidcSignIn, tokens: Tokens) -> None:
    provider.set_groups({"bob": ["students"], "cyd": ["students"], "dan": ["students"]})
    bob, cyd, dan = (sign_in(oidc, name) for name in ("bob", "cyd", "dan"))
    oidc.check()
    oidc.check()  # with the refresh token of the first check
    assert all(tokens.find(session) for session in (bob, cyd, dan))
    provider.set_groups({"bob": [], "cyd": ["students", "teachers"]})
    oidc.check()
    assert tokens.find(bob) is None
    assert tokens.find(cyd) is None  # another role: signing in again gives it
    assert tokens.find(dan) is not None
    assert tokens.exchange(dan, ttl_s=60) is None


def test_a_disabled_user_has_no_session(
    provider: OpenIdProvider, oidc: OidcSignIn, tokens: Tokens, database: Database
) -> None:
    provider.set_groups({"fay": ["students"]})
    session = sign_in(oidc, "fay")
    users = Users(UserStore(database), tokens)
    users.disable("fay")
    assert tokens.find(session) is None
    with pytest.raises(PermissionDeniedError, match="fay is disabled"):
        sign_in(oidc, "fay")
    oidc.check()
    users.enable("fay")
    assert tokens.find(session) is None, "a check ended it"


def test_a_code_works_once_and_with_its_own_state(provider: OpenIdProvider, oidc: OidcSignIn) -> None:
    provider.set_groups({"gil": ["students"]})
    state, url = oidc.start(redirect_uri=CALLBACK)
    back, _, _ = PersonWithBrowser("gil").open(url, stop_at=CALLBACK)
    code = parse_qs(urlsplit(back).query)["code"][0]
    other, _ = oidc.start(redirect_uri=CALLBACK)
    with pytest.raises(UnauthenticatedError):
        oidc.finish("unknown", code)
    with pytest.raises(UnauthenticatedError):
        oidc.finish(other, code)  # its verifier is another one
    with pytest.raises(UnauthenticatedError):
        oidc.finish(state, "not-the-code")
    with pytest.raises(UnauthenticatedError, match="used before"):
        oidc.finish(state, code)


def test_a_session_outlives_a_provider_that_is_away_for_a_while(tokens: Tokens) -> None:
    with OpenIdProvider(CALLBACK) as gone:
        gone.set_groups({"hal": ["students"]})
        settings = settings_of(gone)
        oidc = OidcSignIn(settings, OidcProvider(settings), tokens)
        session = sign_in(oidc, "hal")
    oidc.check()
    assert tokens.find(session) is not None
    with pytest.raises(UnavailableError):
        OidcSignIn(settings, OidcProvider(settings), tokens).start(redirect_uri=CALLBACK)


def test_a_browser_signs_in_to_the_console(tmp_path: Path) -> None:
    port = free_ports(1)[0]
    with OpenIdProvider(f"http://127.0.0.1:{port}/console/oidc/callback") as provider:
        provider.set_groups({"ada": ["teachers"], "eve": []})
        rows = "".join("[[oidc.groups]]\n" + "".join(f'{k} = "{v}"\n' for k, v in row.items()) for row in GROUPS)
        home = tmp_path / "home"
        home.mkdir()
        (home / "config.toml").write_text(
            f'[oidc]\nissuer = "{provider.issuer}"\nclient_id = "trainshed"\n'
            f'client_secret = "the secret of the client"\n'
            f'scopes = "openid profile groups offline_access"\n{rows}'
        )
        server = RunningServer(home, {"port": port}).start()
        try:
            ada = PersonWithBrowser("ada")
            assert json.loads(ada.open(f"{server.url}/console/sign-in")[2]) == {"openId": True}
            url, status, _ = ada.open(f"{server.url}/console/oidc/start")
            assert (urlsplit(url).path, status) == ("/", 200)
            _, status, body = ada.open(f"{server.url}/trainshed/v1/session")
            session = json.loads(body)
            assert (session["user"], session["project"], session["role"]) == ("ada", PROJECT, "editor")
            _, status, body = PersonWithBrowser("eve").open(f"{server.url}/console/oidc/start")
            assert (status, body) == (403, b"No group of eve has a role on this server. Ask an owner for one.\n")
            stolen = f"{server.url}/console/oidc/callback?state=x&code=y"
            assert PersonWithBrowser("eve").open(stolen)[1] == 401
            entries = server.call("GET", "/trainshed/v1/audit")["entries"]
            met = {(each["user"], each["resource"], each["outcome"]) for each in entries}
            assert ("ada", "console/oidc/callback", "OK") in met
            assert ("", "console/oidc/callback", "PERMISSION_DENIED") in met
            assert "the secret of the client" not in server.log.read_text()
        finally:
            assert server.close() == 0
