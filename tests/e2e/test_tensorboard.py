"""`trainshed tensorboard`: the real one, asked over HTTP for what a training wrote."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from trainshed.testing.clusters.gangs import alive
from trainshed.testing.eventually import eventually
from trainshed.testing.processes.servers import RunningServer
from trainshed.testing.workloads.event_files import write_events
from trainshed.testing.workloads.submitter import Submitter

TRAINSHED = str(Path(sys.executable).with_name("trainshed"))
START_S = 240.0


def write_scalar(folder: Path, tag: str, value: float, step: int) -> None:
    """An event file with one scalar, behind the event that every writer begins with."""
    now = time.time()
    write_events(folder, (now, 0, {}), (now, step, {tag: value}), name=f"{int(now)}.test")


@contextmanager
def tensorboard(server: RunningServer, *words: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """TensorBoard's address and the command that runs it, which is ended at the latest when the test is."""
    process = subprocess.Popen(
        [TRAINSHED, "tensorboard", "--port", "0", *words],
        env=server.env(),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    timer = threading.Timer(START_S, process.kill)
    timer.start()
    try:
        assert process.stdout is not None
        found = re.match(r"TensorBoard is at (http://\S+)", process.stdout.readline())
        assert found, f"it ended with {process.wait()}"
        yield found[1], process
    finally:
        timer.cancel()
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=120)


def ask(url: str, path: str) -> Any:
    with urllib.request.urlopen(urllib.parse.urljoin(url, path), timeout=60) as answer:
        return json.loads(answer.read())


def scalar_tags(url: str, tag: str) -> dict[str, Any]:
    """The tags of each run, once this one is among them."""
    runs: dict[str, Any] = eventually(
        lambda: ask(url, "data/plugin/scalars/tags"),
        lambda runs: any(tag in tags for tags in runs.values()),
        within_s=180,
    )
    return runs


def below(pid: int) -> list[int]:
    return [child.pid for child in psutil.Process(pid).children(recursive=True)]


def assert_ends_without_a_trace(process: subprocess.Popen[str], number: signal.Signals) -> None:
    pids = below(process.pid)
    assert pids
    process.send_signal(number)
    assert process.wait(timeout=120) == 0
    assert [pid for pid in pids if alive(pid)] == []


@pytest.mark.timeout(600)
def test_it_shows_a_folder_of_a_bucket_until_it_is_ended(framework_server: RunningServer) -> None:
    bucket = "board-of-a-bucket"
    framework_server.call("POST", "/storage/v1/b?project=board-project", {"name": bucket})
    write_scalar(framework_server.home / "buckets" / bucket / "model" / "eval", "accuracy", 0.75, 12)
    with tensorboard(framework_server, "--logdir", f"gs://{bucket}/model") as (url, process):
        runs = scalar_tags(url, "accuracy")
        assert list(runs) == ["eval"]
        [[_, step, value]] = ask(url, "data/plugin/scalars/scalars?run=eval&tag=accuracy")
        assert (step, value) == (12, 0.75)
        assert_ends_without_a_trace(process, signal.SIGTERM)


@pytest.mark.timeout(600)
def test_it_shows_the_folder_of_a_job_until_it_is_interrupted(framework_server: RunningServer, tmp_path: Path) -> None:
    jobs = Submitter(framework_server, "board-jobs", tmp_path)
    jobs.submit("board", "pass", jobDir=f"gs://{jobs.bucket}/board")
    jobs.wait("board")
    write_scalar(framework_server.home / "buckets" / jobs.bucket / "board", "loss", 1.5, 3)
    with tensorboard(framework_server, "board", "--project", "board-jobs") as (url, process):
        assert "loss" in scalar_tags(url, "loss")["."]
        assert_ends_without_a_trace(process, signal.SIGINT)


@pytest.mark.parametrize(
    ("words", "extra", "said", "status"),
    [
        ((), {}, "Give the name of a job, or --logdir", 2),
        (("job", "--logdir", "x"), {}, "and not both", 2),
        (("--logdir", "gs://no-such-bucket/x"), {}, "There is no bucket gs://no-such-bucket", 1),
        (("no_such_job",), {}, "NOT_FOUND", 1),
        (("--logdir", "gs://b/x"), {"TRAINSHED_URL": "http://elsewhere.example:1"}, "buckets are not in this", 1),
    ],
)
def test_what_cannot_be_shown_is_said(
    server: RunningServer, words: tuple[str, ...], extra: dict[str, str], said: str, status: int
) -> None:
    done = subprocess.run(
        [TRAINSHED, "tensorboard", *words], env=server.env() | extra, capture_output=True, text=True, timeout=240
    )
    assert said in done.stderr
    assert done.returncode == status


def test_a_port_in_use_is_refused(server: RunningServer) -> None:
    port = server.url.rpartition(":")[2]
    done = subprocess.run(
        [TRAINSHED, "tensorboard", "--logdir", os.devnull, "--port", port],
        env=server.env(),
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 1
    assert f"Port {port} of 127.0.0.1 can't be used" in done.stderr
