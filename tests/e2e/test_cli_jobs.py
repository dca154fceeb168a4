"""The story of a training job as a user types it, on a real server with the `python` runtime."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from trainshed.testing.eventually import eventually
from trainshed.testing.processes.servers import RunningServer, stand_in

PROJECT = "cli-jobs"
BUCKET = "gs://cli-jobs"

TASK = """
import argparse, logging, pathlib, sys, time
parser = argparse.ArgumentParser()
parser.add_argument("--job-dir")
parser.add_argument("--data")
parser.add_argument("--wait", type=float, default=0)
parser.add_argument("--fail", action="store_true")
args = parser.parse_args()
print("rows:", len(pathlib.Path(args.data).read_text().split()), flush=True)
for step in range(5):
    print("step", step, flush=True)
print("first\\nsecond", file=sys.stderr, flush=True)
time.sleep(args.wait)
if args.fail:
    raise ValueError("the loss is not a number")
out = pathlib.Path(args.job_dir)
out.mkdir(parents=True, exist_ok=True)
(out / "model.txt").write_text("trained")
"""


class Shell:
    """`trainshed` as a process of its own, in a folder that holds a trainer."""

    def __init__(self, server: RunningServer, folder: Path) -> None:
        self.folder = folder
        self.env = server.env() | {"TRAINSHED_PROJECT": PROJECT, "TZ": "UTC"}
        (folder / "trainer").mkdir()
        (folder / "trainer" / "__init__.py").touch()
        (folder / "trainer" / "task.py").write_text(TASK)
        (folder / "rows.txt").write_text("1\n2\n3\n")
        (folder / "config.yaml").write_text("trainingInput:\n  scaleTier: BASIC\n")

    def start(self, *words: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "trainshed.cli", *words]
        return subprocess.Popen(
            command, env=self.env, cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def __call__(self, *words: str, status: int = 0) -> tuple[str, str]:
        """Run it to its end: stdout and stderr."""
        process = self.start(*words)
        out, err = process.communicate(timeout=240)
        assert process.returncode == status, f"{words}\n{out}\n{err}"
        assert "Traceback (most recent call last)" not in err or "trainer/task.py" in err
        return out, err

    def submit(self, job: str, *words: str, status: int = 0, user: tuple[str, ...] = ()) -> tuple[str, str]:
        flags = (
            *("--package-path", "trainer", "--module-name", "trainer.task", "--staging-bucket", BUCKET),
            *("--job-dir", f"{BUCKET}/{job}", "--runtime-version", "python", "--config", "config.yaml"),
        )
        data = ("--", "--data", f"{BUCKET}/data/rows.txt", *user)
        return self("ml-engine", "jobs", "submit", "training", job, *flags, *words, *data, status=status)

    def state(self, job: str) -> str:
        return self("jobs", "describe", job, "--format", "value(state)")[0].strip()


@pytest.fixture(scope="module")
def shell(server: RunningServer, tmp_path_factory: pytest.TempPathFactory) -> Shell:
    run = Shell(server, tmp_path_factory.mktemp("cli-jobs"))
    run("buckets", "mb", BUCKET)
    run("buckets", "cp", "rows.txt", f"{BUCKET}/data/")
    return run


@pytest.fixture(scope="module")
def done(shell: Shell) -> tuple[str, str]:
    """What was printed for the job `done`, streamed to its good end."""
    return shell.submit("done", "--stream-logs", "--labels", "team=vision", "--region", "us-central1")


def test_a_streamed_job_shows_its_log_on_stderr_and_its_end_on_stdout(done: tuple[str, str]) -> None:
    out, err = done
    shown = dict(line.split(": ", 1) for line in out.splitlines())
    assert (shown["jobId"], shown["state"]) == ("done", "SUCCEEDED")
    assert re.fullmatch(r"'\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d'", shown["endTime"])
    lines = err.splitlines()
    assert lines[0] == "Job [done] submitted successfully."
    pattern = re.compile(r"[A-Z]+\t\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \+0000\t(service|master-replica-0)\t\t.*")
    assert [line for line in lines[1:] if not pattern.fullmatch(line)] == []
    messages = [line.split("\t\t", 1)[1] for line in lines[1:]]
    steps = ["rows: 3", *(f"step {step}" for step in range(5))]
    assert [message for message in messages if message in steps] == steps
    assert messages[-1] == "Job completed successfully."


def test_the_output_is_where_the_job_was_told_to_put_it(shell: Shell, done: tuple[str, str]) -> None:
    assert shell("buckets", "cat", f"{BUCKET}/done/model.txt")[0] == "trained"


def test_a_job_that_fails_is_exit_status_1_and_says_why(shell: Shell) -> None:
    out, err = shell.submit("failing", "--stream-logs", status=1, user=("--fail",))
    assert "state: FAILED" in out
    assert "ValueError: the loss is not a number" in err
    described, hint = shell("jobs", "describe", "failing")
    assert "errorMessage: |-\n  The replica master 0 exited with a non-zero status of 1." in described
    assert hint.endswith("\nView job logs with: trainshed jobs stream-logs failing\n")


def test_a_job_that_is_not_streamed_says_how_to_go_on(shell: Shell) -> None:
    out, err = shell.submit("quiet")
    assert out == "jobId: quiet\nstate: QUEUED\n"
    assert err == (
        "Job [quiet] submitted successfully.\n"
        "Your job is still active. You may view the status of your job with the command\n\n"
        "  $ trainshed ml-engine jobs describe quiet\n\nor continue streaming the logs with the command\n\n"
        "  $ trainshed ml-engine jobs stream-logs quiet\n"
    )
    streamed = shell("jobs", "stream-logs", "quiet", "--task-name", "master-replica-0")[0]
    assert "\tmaster-replica-0\t\tstep 4\n" in streamed
    assert "\tservice\t" not in streamed
    again = shell("jobs", "stream-logs", "quiet", "--task-name", "master-replica-0", "--polling-interval", "0.1")[0]
    assert again == streamed
    assert shell.state("quiet") == "SUCCEEDED"


def test_the_list_is_the_documents_table(shell: Shell, done: tuple[str, str]) -> None:
    out, err = shell("jobs", "list", "--filter", "jobId=done")
    assert re.fullmatch(r"JOB_ID  STATUS     CREATED\ndone    SUCCEEDED  \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\n", out)
    assert err == ""
    assert shell("jobs", "list", "--filter", "jobId=nothing") == ("", "Listed 0 items.\n")
    found = json.loads(shell("jobs", "list", "--filter", "labels.team=vision", "--format", "json")[0])
    assert [job["jobId"] for job in found] == ["done"]
    assert shell("jobs", "list", "--project", "cli-jobs-other") == ("", "Listed 0 items.\n")
    assert shell("--project", "cli-jobs-other", "jobs", "list") == ("", "Listed 0 items.\n")
    assert shell("jobs", "list", "--page-size", "1", "--sort-by", "jobId", "--format", "value(jobId)", "--limit", "1")[
        0
    ]
    assert shell("jobs", "list", "--uri", "--filter", "jobId=done")[0].endswith(f"/v1/projects/{PROJECT}/jobs/done\n")


def test_parts_of_a_log(shell: Shell, done: tuple[str, str]) -> None:
    out, _ = shell("jobs", "logs", "done", "--replica", "master-replica-0", "--grep", "^step", "--tail", "2")
    assert [line.split("\t\t")[1] for line in out.splitlines()] == ["step 3", "step 4"]
    entries = [json.loads(line) for line in shell("jobs", "logs", "done", "--format", "json")[0].splitlines()]
    assert {entry["replica"] for entry in entries} == {"service", "master-replica-0"}
    assert shell("jobs", "logs", "done", "--since", "2999-01-01T00:00:00Z")[0] == ""
    assert len(shell("jobs", "logs", "done", "--since", "1h")[0].splitlines()) == len(entries)
    assert "'soon' is neither" in shell("jobs", "logs", "done", "--since", "soon", status=2)[1]
    assert "ERROR: (trainshed.jobs.logs) " in shell("jobs", "logs", "done", "--grep", "[", status=1)[1]


def test_labels_are_changed_one_by_one(shell: Shell, done: tuple[str, str]) -> None:
    assert shell("jobs", "update", "done", "--update-labels", "a=b")[1] == "Updated ml engine job [done].\n"
    assert shell("jobs", "describe", "done", "--format", "value(labels.team,labels.a)")[0] == "vision\tb\n"
    shell("jobs", "update", "done", "--remove-labels", "a")
    assert shell("jobs", "describe", "done", "--format", "value(labels)")[0] == "team=vision\n"
    assert "No updates requested." in shell("jobs", "update", "done", status=1)[1]


def test_a_summary_is_boxes(shell: Shell, done: tuple[str, str]) -> None:
    out, _ = shell("jobs", "describe", "done", "--summarize")
    assert "Job Overview" in out
    assert "Training Input Summary" in out
    assert f"{BUCKET}/done" in out


def test_errors_are_put_as_gcloud_puts_them(shell: Shell, done: tuple[str, str]) -> None:
    missing = shell("jobs", "describe", "missing", status=1)[1]
    assert missing.startswith("ERROR: (trainshed.jobs.describe) NOT_FOUND: ")
    again = shell.submit("done", status=1)[1]
    assert again.startswith(
        "ERROR: (trainshed.ml-engine.jobs.submit.training) Resource in projects [cli-jobs] is the subject of a "
        "conflict: Field: job.job_id Error: "
    )
    assert "fieldViolations:" in again
    flags = ("--package-path", "trainer", "--module-name", "trainer.task", "--staging-bucket", "gs://cli-jobs-none")
    nowhere = shell("jobs", "submit", "training", "nowhere", *flags, status=1)[1]
    assert "Could not upload file: [cli-jobs-none] bucket does not exist." in nowhere
    assert shell("jobs", "describe", "nowhere", status=1)


def _read_to(process: subprocess.Popen[str], text: str) -> None:
    """Read what it says up to a line with this text in it."""
    assert process.stderr is not None
    assert any(text in line for line in process.stderr), f"{text!r} never came"


def _rest(process: subprocess.Popen[str]) -> tuple[str, str]:
    """What it writes to its end: stdout, and stderr from where `_read_to` stopped.

    Not by `communicate`, which does not know of the lines that were read ahead.
    """
    assert process.stdout is not None
    assert process.stderr is not None
    with process:
        err = process.stderr.read()
        return process.stdout.read(), err


def test_ctrl_c_leaves_the_job_alone_and_says_how_to_go_on(shell: Shell) -> None:
    words = (
        *("jobs", "submit", "training", "left", "--package-path", "trainer", "--module-name", "trainer.task"),
        *("--staging-bucket", BUCKET, "--job-dir", f"{BUCKET}/left", "--runtime-version", "python", "--stream-logs"),
        *("--", "--data", f"{BUCKET}/data/rows.txt", "--wait", "600"),
    )
    process = shell.start(*words)
    _read_to(process, "step 4")
    process.send_signal(signal.SIGINT)
    _, err = _rest(process)
    assert process.returncode == 130
    assert "$ trainshed jobs stream-logs left" in err
    assert "$ trainshed jobs cancel left" in err
    assert "Traceback" not in err
    assert shell.state("left") == "RUNNING"

    out, words_about_it = shell("jobs", "cancel", "left")
    assert out == ""
    assert "trainshed jobs describe left" in words_about_it
    eventually(lambda: shell.state("left"), lambda state: state == "CANCELLED")
    assert shell("jobs", "stream-logs", "left")[0]  # ends by itself: the job has


def test_a_reader_who_has_seen_enough_is_no_error(shell: Shell, done: tuple[str, str]) -> None:
    reader = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m trainshed.cli jobs logs done | head -1"],
        env=shell.env,
        capture_output=True,
        text=True,
    )
    assert len(reader.stdout.splitlines()) == 1
    assert reader.stderr == ""


def test_a_viewers_token_reads_and_is_told_that_it_may_not_write(shell: Shell, done: tuple[str, str]) -> None:
    made, words = shell("auth", "tokens", "create", "--user", "ada", "--role", "viewer", "--ttl", "1h", "--label", "x")
    token = made.strip()
    assert token not in words
    token_id = re.findall(r"Created token \[(\w+)\]", words)[0]
    listed = shell(
        "auth", "tokens", "list", "--filter", f"id={token_id}", "--format", "value(user,project,role,label)"
    )[0]
    assert listed == f"ada\t{PROJECT}\tviewer\tx\n"
    ada = subprocess.run(
        [sys.executable, "-m", "trainshed.cli", "jobs", "cancel", "done"],
        env=shell.env | {"TRAINSHED_TOKEN": token},
        capture_output=True,
        text=True,
    )
    assert ada.returncode == 1
    assert ada.stderr.startswith("ERROR: (trainshed.jobs.cancel) PERMISSION_DENIED: ")
    assert token not in ada.stderr
    shell("auth", "tokens", "revoke", token_id)
    gone = subprocess.run(
        [sys.executable, "-m", "trainshed.cli", "jobs", "list"],
        env=shell.env | {"TRAINSHED_TOKEN": token},
        capture_output=True,
        text=True,
    )
    assert gone.returncode == 1
    assert "UNAUTHENTICATED" in gone.stderr


def test_runtimes_and_operations_are_listed(shell: Shell, done: tuple[str, str]) -> None:
    rows = dict(line.split("\t") for line in shell("runtimes", "list", "--format", "value(name,state)")[0].splitlines())
    assert rows["python"] == "READY"
    assert "2.21" in rows
    assert shell("runtimes", "install", "python")[1] == "Runtime python is installed.\n"
    assert shell("runtimes", "install", "9.9", status=1)[1].startswith("ERROR: (trainshed.runtimes.install) ")
    assert shell("operations", "list") == ("", "Listed 0 items.\n")
    assert "NOT_FOUND" in shell("operations", "describe", "none", status=1)[1]
    assert shell("locations", "list")[0].startswith("NAME\n")


def test_a_stream_goes_on_after_the_server_was_killed_and_started_again(
    own_server: RunningServer, tmp_path: Path
) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    run = Shell(own_server, folder)
    (folder / "trainer" / "task.py").write_text(
        "import time\nfor step in range(40):\n    print('step', step, flush=True)\n    time.sleep(0.1)\n"
    )
    run("buckets", "mb", BUCKET)
    words = (
        *("jobs", "submit", "training", "long", "--package-path", "trainer", "--module-name", "trainer.task"),
        *("--staging-bucket", BUCKET, "--runtime-version", "python", "--stream-logs"),
    )
    process = run.start(*words)
    _read_to(process, "step 5")
    own_server.kill()
    with stand_in(own_server.url) as asked:  # it is turned away meanwhile, and tries again
        asked.accept()[0].close()
    process.send_signal(signal.SIGSTOP)  # for a few seconds alone, and a slow machine takes longer to start a server
    try:
        own_server.start()
    finally:
        process.send_signal(signal.SIGCONT)
    out, err = _rest(process)
    assert process.returncode == 0
    assert "state: SUCCEEDED" in out
    assert re.findall(r"step (\d+)\n", err) == [str(step) for step in range(6, 40)]
