"""`trainshed shell`: a real shell whose gcloud, gsutil, git and curl reach a real server."""

from __future__ import annotations

import json
import os
import pty
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainshed.testing.processes.servers import RunningServer

BIN = Path(sys.executable).parent
TRAINSHED = str(BIN / "trainshed")


def run(
    server: RunningServer, folder: Path, *words: str, given: str | None = None, **variables: str
) -> subprocess.CompletedProcess[str]:
    env = server.env() | {"SHELL": "/bin/bash", "HOME": str(folder), **variables}
    return subprocess.run(
        [TRAINSHED, "shell", *words],
        env=env,
        cwd=folder,
        input=given or "",
        capture_output=True,
        text=True,
        timeout=280,
    )


def test_a_command_line_and_its_exit_status(server: RunningServer, tmp_path: Path) -> None:
    done = run(
        server, tmp_path, "--project", "shell-c", "-c", "gcloud config list --format 'value(core.project)'; exit 7"
    )
    assert (done.stdout, done.returncode) == ("shell-c\n", 7)
    assert run(server, tmp_path, "-c", "kill -TERM $$").returncode == -signal.SIGTERM


def test_a_script_on_stdin_reaches_the_server_by_every_program(server: RunningServer, tmp_path: Path) -> None:
    script = """
    set -e -o pipefail
    PROJECT_ID=$(gcloud config list project --format "value(core.project)")
    gsutil mb -c regional -l us-east1 gs://${PROJECT_ID}-ml
    mkdir data && echo one > data/a.txt
    gsutil -m cp -r data gs://${PROJECT_ID}-ml
    gsutil -m acl ch -u someone@example.com:W gs://${PROJECT_ID}-ml
    gsutil mv gs://${PROJECT_ID}-ml/data/a.txt gs://${PROJECT_ID}-ml/data/b.txt
    gsutil ls gs://${PROJECT_ID}-ml/data | tail -1
    gsutil cat gs://${PROJECT_ID}-ml/data/b.txt
    gcloud beta ml models create digits --regions us-central1
    gcloud ml-engine models list
    AUTH_TOKEN=$(gcloud auth print-access-token)
    curl -sS -H "Authorization: Bearer ${AUTH_TOKEN}" https://ml.googleapis.com/v1/projects/${PROJECT_ID}/models/digits
    echo
    gcloud ai-platform models delete digits --quiet
    gcloud ai-platform models list
    gcloud compute zones list --filter region=australia-southeast1 --format "value(name)"
    gcloud projects list --filter projectId=${PROJECT_ID} --format "value(projectId)"
    gcloud auth list --format "value(account)"
    gcloud projects describe ${PROJECT_ID} --format "value(projectId)"
    env | grep -c "${AUTH_TOKEN}" || true
    """
    done = run(server, tmp_path, given=script, TRAINSHED_PROJECT="shell-stdin")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[:2] == ["gs://shell-stdin-ml/data/b.txt", "one"]
    assert [line.split() for line in lines[2:4]] == [["NAME", "DEFAULT_VERSION_NAME"], ["digits"]]
    assert json.loads(lines[4])["name"] == "projects/shell-stdin/models/digits"
    assert lines[5:8] == [f"australia-southeast1-{letter}" for letter in "abc"]
    assert lines[8:] == ["shell-stdin", "owner", "shell-stdin", "0"]  # the token is in no variable
    assert "Listed 0 items." in done.stderr
    assert "All of them are this machine" in done.stderr
    kept = list((server.home / "shell").glob("*/token"))
    assert kept
    assert {path.stat().st_mode & 0o777 for path in kept} == {0o600}


def test_googles_own_libraries_reach_the_server_from_the_shell(server: RunningServer, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "from google.cloud import storage\n"
        "from googleapiclient import discovery\n"
        "client = storage.Client()\n"
        "client.create_bucket('shell-library').blob('a').upload_from_string('from the library')\n"
        "print(client.bucket('shell-library').blob('a').download_as_text())\n"
        "ml = discovery.build('ml', 'v1', static_discovery=True)\n"
        "print(ml.projects().getConfig(name=f'projects/{client.project}').execute()['serviceAccount'][:8])\n"
    )
    done = run(server, tmp_path, "--project", "shell-library", "-c", f"{sys.executable} program.py")
    assert done.stdout.splitlines() == ["from the library", "service-"], done.stderr


def test_what_is_not_served_says_what_to_use(server: RunningServer, tmp_path: Path) -> None:
    script = "gcloud compute instances list; echo $?; gcloud ai-platform jobs fly; echo $?; gsutil signurl x; echo $?"
    done = run(server, tmp_path, "-c", script + "; gcloud auth login; echo $?; datalab fly; echo $?")
    assert done.stdout.split() == ["1", "2", "1", "0", "1"]
    for words in ("does not serve `gcloud compute instances list`. There are no machines", "No such command 'fly'"):
        assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_a_known_repository_is_a_sample_and_others_are_gits(server: RunningServer, tmp_path: Path) -> None:
    script = """
    set -e
    git clone https://github.com/GoogleCloudPlatform/cloudml-dist-mnist-example
    git clone https://github.com/GoogleCloudPlatform/ai-platform-samples.git
    git clone https://github.com/eL0ck/Cloud-Data-Science.git
    ls cloudml-dist-mnist-example/scripts/create_records.py ai-platform-samples/training/tensorflow/structured/base/data
    cat Cloud-Data-Science/Platform-Comparison/ML-Engine/test.json | wc -l
    git init -q own && git -C own status --short
    ! git clone https://github.com/GoogleCloudPlatform/ai-platform-samples.git
    """
    done = run(server, tmp_path, given=script)
    assert done.returncode == 0, done.stderr
    assert "taxi_train.csv" in done.stdout
    assert (tmp_path / "Cloud-Data-Science" / "Platform-Comparison" / "package" / "trainer" / "task.py").is_file()
    assert "was not downloaded: this is Trainshed's own sample mnist_async" in done.stderr
    assert "is not empty" in done.stderr


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """A state folder without a server. One that a test starts is stopped."""
    folder = tmp_path / "home"
    yield folder
    env = {**os.environ, "TRAINSHED_HOME": str(folder)}
    subprocess.run([TRAINSHED, "down"], env=env, capture_output=True, timeout=100)


def test_a_server_is_started_if_there_is_none_also_from_within(home: Path, tmp_path: Path) -> None:
    env = {key: value for key, value in os.environ.items() if not key.startswith(("TRAINSHED_", "GOOGLE_"))}
    env |= {"TRAINSHED_HOME": str(home), "HOME": str(tmp_path), "SHELL": "/bin/sh"}
    env |= {"TRAINSHED_SERVER_PORT": "0", "TRAINSHED_SERVER_TLS_PORT": "0"}
    script = (
        "trainshed status --format 'value(home)'; gcloud config set project other-project; "
        "gcloud config get-value project; trainshed down; unset TRAINSHED_URL; trainshed up; gsutil ls; env"
    )
    done = subprocess.run(
        [TRAINSHED, "shell", "-c", script], env=env, cwd=tmp_path, capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{home}\nother-project\n")
    assert "Starting the server..." in done.stderr
    assert "Started a server at http://127.0.0.1:" in done.stderr
    # the second one, started within the shell, leads its clients too: it did not take the shell for the machine
    announced = json.loads((home / "server.json").read_text())
    assert announced["endpoints"]["bypass"] == env.get("no_proxy", "")
    assert f"https_proxy={announced['endpoints']['proxy_url']}" in done.stdout  # the same port as before


def test_an_interactive_shell_says_where_one_is(server: RunningServer, tmp_path: Path) -> None:
    pid, terminal = pty.fork()
    if pid == 0:
        env = server.env() | {"SHELL": "/bin/bash", "HOME": str(tmp_path), "TERM": "dumb"}
        os.execve(TRAINSHED, [TRAINSHED, "shell"], env)
    shown = b""
    os.write(terminal, b"command -v gcloud; exit 5\n")
    deadline = time.monotonic() + 280
    try:
        while time.monotonic() < deadline and (piece := os.read(terminal, 4096)):
            shown += piece
    except OSError:  # the other side is closed
        pass
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 5
    assert b"(trainshed) " in shown
    assert b"Type exit to leave." in shown
    assert f"{server.home}/shell/bin/gcloud".encode() in shown


def test_a_shell_that_is_not_there_is_said(server: RunningServer, tmp_path: Path) -> None:
    done = run(server, tmp_path, "-c", "true", SHELL="/bin/no-such-shell")
    assert done.returncode == 1
    assert "Set SHELL to another one." in done.stderr


def test_without_the_google_cloud_cli_its_shell_is_refused(server: RunningServer, tmp_path: Path) -> None:
    done = run(server, tmp_path, "--google", "-c", "true", PATH=str(tmp_path))
    assert done.returncode == 1
    assert "The Google Cloud CLI is not installed" in done.stderr


@pytest.mark.timeout(600)
def test_the_real_google_cloud_cli_is_pointed_here(server: RunningServer, tmp_path: Path) -> None:
    real = shutil.which("gcloud")
    if real is None:
        pytest.skip("the Google Cloud CLI is not installed on this machine")
    # few commands, since each takes a second or two: tests/wire lists models and reads objects by them
    script = """
    set -e
    command -v gcloud
    gcloud ai-platform models create --regions us-central1 digits
    gcloud storage buckets create gs://shell-google-ml
    echo hello > a.txt
    gcloud storage cp a.txt gs://shell-google-ml/
    """
    done = run(server, tmp_path, "--google", "--project", "shell-google", given=script)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [real], done.stderr
    assert not (tmp_path / ".config").exists()  # the user's own configuration is not touched
    status = server.call("GET", "/v1/projects/shell-google/models/digits")
    assert status["name"] == "projects/shell-google/models/digits"
    assert (server.home / "buckets" / "shell-google-ml" / "a.txt").read_text() == "hello\n"
