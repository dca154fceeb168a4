"""Sign-in by OpenID Connect, against a real provider: groups give roles, and a change of groups ends a session."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from subprocess import PIPE
from urllib.parse import parse_qs, urlsplit

import pytest

from trainshed.client.transport import Client
from trainshed.domain.access.oidc import OidcSettings
from trainshed.domain.times import now_us
from trainshed.errors import FailedPreconditionError, PermissionDeniedError, UnauthenticatedError, UnavailableError
from trainshed.node.process.ports import free_ports
from trainshed.services.access.oidc import SIGN_IN_TTL_S, OidcSignIn
from trainshed.services.access.oidc_provider import OidcProvider
from trainshed.services.access.tokens import Tokens
from trainshed.services.access.users import Users
from trainshed.store.database import Database
from trainshed.store.tokens import TokenStore, UserStore
from trainshed.testing.processes.openid import OpenIdProvider, PersonWithBrowser
from trainshed.testing.processes.servers import RunningServer

PROJECT = "course"
TRAINSHED = Path(sys.executable).with_name("trainshed")
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
    users.disable("fay", by="owner")
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


class Clock:
    """A clock that a test sets forward."""

    def __init__(self) -> None:
        self.ahead_s = 0.0

    def __call__(self) -> int:
        return now_us() + int(self.ahead_s * 1_000_000)


def test_a_person_signs_a_command_line_in(provider: OpenIdProvider, tokens: Tokens) -> None:
    provider.set_groups({"ida": ["teachers"], "jon": []})
    settings, clock = settings_of(provider), Clock()
    oidc = OidcSignIn(settings, OidcProvider(settings), tokens, clock=clock)
    begun = oidc.start_device(project=PROJECT)
    assert begun.code.user_code in begun.code.url_with_code
    assert isinstance(oidc.finish_device(begun.handle), float), "asked too early"
    clock.ahead_s += begun.code.interval_s
    assert oidc.finish_device(begun.handle) == begun.code.interval_s, "nobody has signed in"
    assert b"successful" in PersonWithBrowser("ida").open(begun.code.url_with_code)[2]
    clock.ahead_s += begun.code.interval_s
    session = oidc.finish_device(begun.handle)
    assert isinstance(session, str)
    ida = tokens.find(session)
    assert ida is not None
    assert (ida.user, ida.project, ida.role) == ("ida", PROJECT, "editor")
    with pytest.raises(UnauthenticatedError, match="used before"):
        oidc.finish_device(begun.handle)
    provider.set_groups({"ida": []})
    oidc.check()
    assert tokens.find(session) is None


def test_a_sign_in_of_a_command_line_expires_and_needs_a_role(provider: OpenIdProvider, tokens: Tokens) -> None:
    provider.set_groups({"kim": []})
    settings, clock = settings_of(provider), Clock()
    oidc = OidcSignIn(settings, OidcProvider(settings), tokens, clock=clock)
    expired, refused = oidc.start_device(), oidc.start_device()
    PersonWithBrowser("kim").open(refused.code.url_with_code)
    clock.ahead_s += refused.code.interval_s
    with pytest.raises(PermissionDeniedError, match="No group of kim"):
        oidc.finish_device(refused.handle)
    clock.ahead_s += SIGN_IN_TTL_S
    for handle in (expired.handle, refused.handle, "unknown"):
        with pytest.raises(UnauthenticatedError, match="has expired"):
            oidc.finish_device(handle)


def write_settings(home: Path, provider: OpenIdProvider) -> None:
    rows = "".join("[[oidc.groups]]\n" + "".join(f'{k} = "{v}"\n' for k, v in row.items()) for row in GROUPS)
    home.mkdir()
    (home / "config.toml").write_text(
        f'[oidc]\nissuer = "{provider.issuer}"\nclient_id = "trainshed"\n'
        f'client_secret = "the secret of the client"\n'
        f'scopes = "openid profile groups offline_access"\n{rows}'
    )


def test_the_command_line_signs_in_and_out(provider: OpenIdProvider, tmp_path: Path) -> None:
    provider.set_groups({"lea": ["teachers"]})
    write_settings(tmp_path / "home", provider)
    server = RunningServer(tmp_path / "home").start()
    person = PersonWithBrowser("lea")
    env = {
        **{name: value for name, value in os.environ.items() if not name.startswith("TRAINSHED_")},
        "TRAINSHED_URL": server.url,
        "TRAINSHED_HOME": str(tmp_path / "person"),
    }

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([TRAINSHED, *arguments], env=env, capture_output=True, text=True, check=False)

    try:
        assert run("jobs", "list").returncode == 1, "no token yet"
        with subprocess.Popen([TRAINSHED, "auth", "login", "--no-browser"], env=env, stderr=PIPE, text=True) as login:
            assert login.stderr is not None
            shown = [login.stderr.readline() for _ in range(3)]
            code = shown[2].removeprefix("and type in the code ").rstrip(".\n")
            person.open(f"{shown[1].strip()}?user_code={code}")
            assert login.stderr.read() == f"Signed in to {server.url} as lea: editor of project {PROJECT}.\n"
        token = run("auth", "print-access-token").stdout.strip()
        assert (tmp_path / "person/sessions.json").stat().st_mode & 0o777 == 0o600
        assert run("--project", PROJECT, "jobs", "list").returncode == 0
        entries = server.call("GET", "/trainshed/v1/audit")["entries"]
        sign_ins = [each for each in entries if each["method"] == "sessions.finishDevice"]
        assert [(each["user"], each["outcome"]) for each in sign_ins] == [("lea", "OK")]
        assert run("auth", "logout").stderr == f"Signed out of {server.url}.\n"
        env["TRAINSHED_TOKEN"] = token
        assert "expired or revoked" in run("--project", PROJECT, "jobs", "list").stderr
        assert token not in server.log.read_text()
    finally:
        assert server.close() == 0


def test_a_server_without_a_provider_says_so(server: RunningServer) -> None:
    for path, body in (("device-sign-in", {}), ("device-sign-in:finish", {"handle": "x"})):
        with (
            closing(Client(server.url)) as client,
            pytest.raises(FailedPreconditionError, match="has no OpenID provider"),
        ):
            client.call("POST", f"/trainshed/v1/{path}", body=body)


def test_a_browser_signs_in_to_the_console(tmp_path: Path) -> None:
    port = free_ports(1)[0]
    with OpenIdProvider(f"http://127.0.0.1:{port}/console/oidc/callback") as provider:
        provider.set_groups({"ada": ["teachers"], "eve": []})
        write_settings(tmp_path / "home", provider)
        server = RunningServer(tmp_path / "home", {"port": port}).start()
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
