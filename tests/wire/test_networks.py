"""The network of a project, over HTTP and by the command line."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from trainshed.cli.commands import main
from trainshed.testing.processes.servers import Caller, RunningServer

PROJECT = "networked-one"
NETWORK = f"/trainshed/v1/projects/{PROJECT}/network"


@pytest.fixture(scope="module")
def call(server: RunningServer) -> Caller:
    return Caller(server.url)


def test_an_owner_of_the_project_sets_its_network(server: RunningServer, call: Caller) -> None:
    tokens = {}
    for role in ("owner", "editor"):
        body = {"user": f"{role}-of-{PROJECT}", "project": PROJECT, "role": role}
        tokens[role] = str(call("POST", "/trainshed/v1/tokens", token=server.token, body=body)[1]["token"])
    assert call("GET", NETWORK, token=tokens["editor"]) == (200, {"network": "all", "default": True})
    assert call("POST", f"{NETWORK}:set", token=tokens["editor"], body={"network": "none"})[0] == 403
    own = {"network": "none", "default": False}
    assert call("POST", f"{NETWORK}:set", token=tokens["owner"], body={"network": "none"}) == (200, own)
    assert call("GET", NETWORK, token=tokens["editor"]) == (200, own)
    status, refused = call("POST", f"{NETWORK}:set", token=tokens["owner"], body={"network": "machine"})
    assert (status, refused["error"]["status"]) == (400, "INVALID_ARGUMENT")
    assert call("POST", f"{NETWORK}:reset", token=tokens["owner"], body={})[1] == {"network": "all", "default": True}


def test_the_command_line_sets_and_shows_it(server: RunningServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINSHED_URL", server.url)
    monkeypatch.setenv("TRAINSHED_TOKEN", server.token)
    project = ("--project", f"{PROJECT}-cli")

    def run(*words: str) -> str:
        done = CliRunner().invoke(main, ["network", *words, *project])
        assert done.exit_code == 0, done.stderr
        return done.stderr if not done.stdout else done.stdout

    assert "its own gang, this server, and Google's storage" in run("set", "google-storage")
    assert json.loads(run("describe", "--format", "json")) == {"network": "google-storage", "default": False}
    assert "the server's network: all" in run("reset")
