"""up, status, logs, down, serve: a server of one's own, started and stopped as a user does it."""

from __future__ import annotations

import http.client
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from trainshed.client.discovery import locked
from trainshed.config import Home


class Shell:
    """`trainshed` with a state folder of its own, on free ports."""

    def __init__(self, home: Path) -> None:
        self.home = home
        clean = {key: value for key, value in os.environ.items() if not key.startswith("TRAINSHED_")}
        ports = {"TRAINSHED_SERVER_PORT": "0", "TRAINSHED_SERVER_TLS_PORT": "0"}
        self.env = clean | ports | {"TRAINSHED_HOME": str(home)}

    def start(self, *words: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "trainshed.cli", *words]
        return subprocess.Popen(command, env=self.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def __call__(self, *words: str, status: int = 0) -> tuple[str, str]:
        process = self.start(*words)
        out, err = process.communicate(timeout=240)
        assert process.returncode == status, f"{words}\n{out}\n{err}"
        assert "Traceback" not in err
        return out, err


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    run = Shell(tmp_path / "home")
    yield run
    run("down")


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """One whose server runs, for tests that only look at it. It was started in a script, whose `up` has ended."""
    run = Shell(tmp_path_factory.mktemp("started") / "home")
    script = f"{sys.executable} -m trainshed.cli up 2>&1 | cat"  # which ends when nobody holds the pipe any more
    done = subprocess.run(["bash", "-c", script], env=run.env, capture_output=True, timeout=240)
    assert b"ready at" in done.stdout
    yield run
    run("down")


def healthy(url: str) -> bool:
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)
    try:
        connection.request("GET", "/healthz")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def test_a_server_is_started_seen_and_stopped(shell: Shell) -> None:
    out, err = shell("up")
    assert out == ""
    info = json.loads(shell("status", "--format", "json")[0])
    assert set(info) - {"sandbox_reason", "network_reason", "limits_reason"} == {
        *("url", "tls_url", "pid", "home", "version", "console", "sandbox", "network", "limits")
    }
    assert info["console"] == f"{info['url']}/"
    assert healthy(info["console"])
    assert info["home"] == str(shell.home)
    for text in (info["url"], info["tls_url"], str(shell.home / "token"), f"Console: {info['console']}"):
        assert text in err
    assert (shell.home / "token").read_text().strip() not in err
    assert healthy(info["url"])
    assert shell.home.stat().st_mode & 0o777 == 0o700
    assert (shell.home / "server.log").stat().st_mode & 0o777 == 0o600

    assert f"already running at {info['url']} (process {info['pid']})" in shell("up")[1]
    assert json.loads(shell("status", "--format", "json")[0]) == info

    assert "server.ready" in shell("logs", "--tail", "50")[0]

    assert shell("down")[1] == "The server has stopped.\n"
    assert not healthy(info["url"])
    assert shell("down")[1] == "No server is running.\n"
    assert shell("status", status=1)[0] == ""


def test_the_server_outlives_the_shell_that_started_it(started: Shell) -> None:
    """It is in a session of its own and holds none of the starter's pipes, or `up` would never end in a script."""
    info = json.loads(started("status", "--format", "json")[0])
    assert healthy(info["url"])
    assert os.getsid(info["pid"]) == info["pid"]


def test_a_taken_port_is_the_servers_own_sentence_and_exit_status_1(shell: Shell) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        err = shell("up", "--port", str(port), status=1)[1]
    assert f"ERROR: (trainshed.up) Port {port} of 127.0.0.1 can't be used" in err
    shell("status", status=1)
    assert not (shell.home / "state.db").exists()


def test_a_bind_address_without_authentication_is_refused(shell: Shell) -> None:
    shell.env["TRAINSHED_SERVER_AUTHENTICATION"] = "false"
    err = shell("up", "--host", "0.0.0.0", status=1)[1]
    assert "Without authentication the server listens on this machine alone" in err


def test_a_state_folder_that_cannot_be_made_is_said(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    shell.env["TRAINSHED_HOME"] = str(tmp_path / "file" / "home")
    err = shell("up", status=1)[1]
    assert "can't be written to" in err
    assert "TRAINSHED_HOME" in err


def test_two_that_start_at_once_end_with_one_server(shell: Shell) -> None:
    both = [shell.start("up") for _ in range(2)]
    ends = [(process.communicate(timeout=240), process.returncode) for process in both]
    assert sorted(status for _, status in ends) in ([0, 0], [0, 1])
    for (_, err), status in ends:
        assert "Traceback" not in err
        assert status == 0 or "Another server runs on the state folder" in err
    assert healthy(json.loads(shell("status", "--format", "json")[0])["url"])


def test_a_server_that_was_killed_leaves_nothing_that_is_believed(shell: Shell) -> None:
    shell("up")
    pid = json.loads(shell("status", "--format", "json")[0])["pid"]
    os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + 60
    while locked(Home(shell.home)) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert (shell.home / "server.json").exists()
    shell("status", status=1)
    assert shell("down")[1] == "No server is running.\n"
    assert "Start one with: trainshed up" in shell("jobs", "list", status=1)[1]
    shell("up")
    assert json.loads(shell("status", "--format", "json")[0])["pid"] != pid


def test_in_the_foreground_it_ends_on_sigterm_with_status_0(shell: Shell) -> None:
    process = shell.start("serve")
    assert process.stderr is not None
    assert any("Trainshed is ready at" in line for line in process.stderr)
    assert healthy(json.loads(shell("status", "--format", "json")[0])["url"])
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=120)
    assert process.returncode == 0


def test_the_log_is_followed_as_it_grows(started: Shell) -> None:
    follower = started.start("logs", "--follow", "--tail", "0")
    assert follower.stdout is not None
    while not select.select([follower.stdout], [], [], 0)[0]:  # what was written before it came is not its to show
        started("jobs", "list")
    assert any("/v1/projects/trainshed/jobs" in line for line in follower.stdout)
    follower.send_signal(signal.SIGINT)
    follower.communicate(timeout=120)


def test_the_log_is_followed_into_the_file_that_takes_its_place(shell: Shell) -> None:
    shell.home.mkdir(exist_ok=True)
    log = shell.home / "server.log"
    log.write_text("first\n")
    follower = shell.start("logs", "--follow")
    assert follower.stdout is not None
    assert follower.stdout.readline() == "first\n"
    for number in range(3):
        with open(log, "a") as old:
            old.write(f"last of {number}\n")
        fresh = log.with_name("server.log.new")
        fresh.write_text(f"first of {number + 1}\n")
        fresh.rename(log)
        assert [follower.stdout.readline() for _ in range(2)] == [f"last of {number}\n", f"first of {number + 1}\n"]
    follower.send_signal(signal.SIGINT)
    follower.communicate(timeout=120)


def test_tls_is_spoken_with_the_servers_own_authority(started: Shell) -> None:
    started.env["TRAINSHED_URL"] = json.loads(started("status", "--format", "json")[0])["tls_url"]
    assert started("jobs", "list") == ("", "Listed 0 items.\n")
    del started.env["TRAINSHED_URL"]
