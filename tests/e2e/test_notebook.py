"""`trainshed notebook` as a user types it: JupyterLab in the background, for this machine and its owner only."""

from __future__ import annotations

import http.client
import json
import os
import signal
import stat
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from trainshed.testing.clusters.gangs import alive
from trainshed.testing.eventually import eventually
from trainshed.testing.processes.servers import RunningServer
from trainshed.testing.processes.shells import Shell


@pytest.fixture
def shell(framework_server: RunningServer, tmp_path: Path) -> Iterator[Shell]:
    """The environment of notebooks is kept with the runtimes, from one test run to the next."""
    shell = Shell(framework_server, tmp_path, "notebook-project")
    yield shell
    shell("notebook", "--stop")


def ask(url: str, path: str, headers: dict[str, str]) -> int:
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)
    try:
        connection.request("GET", path, headers=headers)
        return connection.getresponse().status
    finally:
        connection.close()


def test_it_starts_is_listed_and_is_gone_once_it_was_killed(shell: Shell, tmp_path: Path) -> None:
    """test_notebooks.py stops one."""
    folder = tmp_path / "mine"
    out, err = shell("notebook", "--no-browser", "--dir", folder)
    url = out.strip()
    token = parse_qs(urlsplit(url).query)["token"][0]
    assert urlsplit(url).hostname == "127.0.0.1"
    assert len(token) >= 32
    assert f"JupyterLab runs on {folder}" in err
    assert {path.name for path in folder.glob("*.ipynb")} == {
        "Iris end to end.ipynb",
        "Online prediction example.ipynb",
        "Search for hyperparameters.ipynb",
        "Train and deploy MNIST.ipynb",
    }

    good = {"Authorization": f"token {token}"}
    assert ask(url, "/api/contents", good) == 200
    assert ask(url, "/api/contents", {}) == 403
    assert ask(url, "/api/contents", good | {"Host": "evil.example"}) == 403

    again, err = shell("notebook", "--no-browser")
    assert again == out
    assert "already" in err
    assert json.loads(shell("status", "--format", "json")[0])["notebook"] == url.partition("?")[0]

    state = shell.server.home / "notebook"
    said = json.loads((state / "server.json").read_text())
    environ = Path(f"/proc/{said['pid']}/environ").read_bytes().decode()
    assert token not in environ
    assert token not in Path(f"/proc/{said['pid']}/cmdline").read_bytes().decode()
    assert shell.server.token not in environ
    for name in ("TRAINSHED_URL", "TRAINSHED_HOME", "TRAINSHED_PROJECT=notebook-project", "FSSPEC_GS"):
        assert f"\0{name}" in f"\0{environ}"
    for path in (state / "server.json", state / "config" / "jupyter_server_config.json", state / "log"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    assert token not in (state / "log").read_text()

    os.kill(said["pid"], signal.SIGKILL)
    eventually(lambda: alive(said["pid"]), lambda there: not there)
    assert "notebook" not in json.loads(shell("status", "--format", "json")[0])
    assert shell("notebook", "--stop")[1] == "No notebook is running.\n"
