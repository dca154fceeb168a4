"""Why a job failed, from texts that trainers, TensorFlow, uv and supervisors really write."""

from __future__ import annotations

import ast
import inspect
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from trainshed.config import Home
from trainshed.domain.jobs import failure as failures
from trainshed.domain.jobs import failure_text, limit_words
from trainshed.domain.jobs.failure import Failure, FailureCause
from trainshed.domain.jobs.failure_text import diagnose, error_message
from trainshed.domain.jobs.job import Job
from trainshed.domain.jobs.output_signs import SIGNS
from trainshed.domain.jobs.reconcile import AttemptPhase, ObservedAttempt, Orphans, Transition, reconcile
from trainshed.domain.jobs.states import JobState
from trainshed.domain.jobs.training import Training
from trainshed.node import failure as node_failure
from trainshed.node.process.exit_status import ExitStatus
from trainshed.node.supervisor.replica_failure import describe
from trainshed.services.jobs.failures import Failures
from trainshed.testing.workloads.job_logs import WrittenJob, open_jobs

T0 = 1_763_000_000_000_000
SPEC: dict[str, Any] = {"job": "mnist_1", "module": "trainer.task"}
WORKER: dict[str, Any] = {"type": "worker", "index": 1, "name": "worker-replica-1"}
TRACEBACK = 'Traceback (most recent call last):\n  File "/w/task.py", line 3, in <module>\n    main(job_dir)\n'
TF = "tensorflow.python.framework.errors_impl."
UV_UNKNOWN = Failure(
    cause=FailureCause.INSTALL_FAILED,
    message="The package can't be installed: its requirements (nosuchpkg).",
    output="  x No solution found when resolving dependencies:\n"
    "  `-> Because nosuchpkg was not found in the package registry and you require\n"
    "      nosuchpkg, we can conclude that your requirements are unsatisfiable.",
)
UV_PYTHON = Failure(
    cause=FailureCause.INSTALL_FAILED,
    message="The package can't be installed: its requirements (pandas>=2).",
    output="  `-> Because the current Python version (3.7.9) does not satisfy Python>=3.9 and pandas>=2 depends on it.",
)


def ended(tail: str, end: ExitStatus | None = None, *, oom: bool = False) -> Failure:
    seen = {"cause": node_failure.OUT_OF_MEMORY} if oom else {}
    return Failure.parse(describe(SPEC, WORKER, end or ExitStatus(1), tail, seen))


def known(cause: FailureCause, **facts: str | int | float) -> Failure:
    return Failure(cause=cause, facts=facts)


@pytest.mark.parametrize(
    ("failure", "sign", "summary", "remedy"),
    [
        (
            known(FailureCause.CONTAINER_TOOL_MISSING, wanted="Podman or Docker"),
            "",
            "The job's image can't be run: this machine has no Podman or Docker.",
            "Install Podman",
        ),
        (
            known(FailureCause.CONTAINER_TOOL_MISSING, broken="/usr/bin/docker", detail="no daemon"),
            "",
            "The job's image can't be run: /usr/bin/docker does not work on this machine: no daemon.",
            "Install Podman",
        ),
        (
            known(
                FailureCause.IMAGE_MISSING,
                image="a/b:1",
                detail="there was no answer of a registry",
            ),
            "",
            "There is no image a/b:1 here, and it can't be pulled: there was no answer of a registry.",
            "Build it on the server's machine",
        ),
        (
            known(FailureCause.IMAGE_ARCHITECTURE, image="a/b", architecture="s390x", machine="amd64"),
            "",
            "The image a/b is made for s390x, and the machine is amd64.",
            "--platform linux/amd64",
        ),
        (
            ended("", ExitStatus(None, 9), oom=True),
            "",
            "worker-replica-1 ran out of memory.",
            "smaller batch size",
        ),
        (ended(TRACEBACK + "MemoryError\n"), "", "worker-replica-1 ran out of memory.", "smaller batch size"),
        (
            ended(TRACEBACK + "numpy.core._exceptions._ArrayMemoryError: Unable to allocate 7.45 GiB for an array\n"),
            "memory",
            "ran out of memory",
            "fewer jobs at once",
        ),
        (
            ended(
                TRACEBACK + f"{TF}ResourceExhaustedError: {{{{function_node f}}}} OOM when allocating tensor [Op:Add]\n"
            ),
            "memory",
            "ran out of memory",
            "smaller batch size",
        ),
        (
            ended("", ExitStatus(None, 9)),
            "",
            "killed by signal 9 (SIGKILL), and not by Trainshed",
            "Most often it is",
        ),
        (ended("step 3\n", ExitStatus(None, 11)), "", "crashed in compiled code (SIGSEGV)", "pin the versions"),
        (ended("", ExitStatus(None, 15)), "", "was killed by signal 15 (SIGTERM)", "Submit the job again"),
        (ended(TRACEBACK + "OSError: [Errno 28] No space left on device\n"), "disk", "The disk is full.", "Delete"),
        (
            ended("usage: task.py [-h]\ntask.py: error: unrecognized arguments: --job-dir gs://b/x\n", ExitStatus(2)),
            "job-dir",
            "does not take --job-dir",
            "parser.parse_known_args()",
        ),
        (
            ended("usage: task.py [-h]\ntask.py: error: unrecognized arguments: --lr 3\n", ExitStatus(2)),
            "arguments",
            "does not take these arguments: --lr 3.",
            "Check what stands behind",
        ),
        (
            ended("task.py: error: the following arguments are required: --train-files\n", ExitStatus(2)),
            "missing arguments",
            "not given what it needs: --train-files.",
            "Add it behind",
        ),
        (
            ended("/r/bin/python: No module named trainer.task\n"),
            "own module",
            "no module trainer.task in the package",
            "--module-name",
        ),
        (
            ended(
                "/r/bin/python3.7: Error while finding module specification for 'trainer.task' "
                "(ModuleNotFoundError: No module named 'trainer')\n"
            ),
            "own module",
            "no module trainer.task in the package",
            "--package-path",
        ),
        (
            ended(TRACEBACK + "ModuleNotFoundError: No module named 'pandas'\n"),
            "module",
            "The module pandas is not there.",
            "install_requires",
        ),
        (
            ended(TRACEBACK + "ModuleNotFoundError: No module named 'tensorflow.contrib'\n"),
            "TensorFlow 1",
            "uses tensorflow.contrib, which TensorFlow 2 does not have",
            "--runtime-version 1.15",
        ),
        (
            ended(TRACEBACK + "AttributeError: module 'tensorflow' has no attribute 'placeholder'\n"),
            "TensorFlow 1",
            "uses placeholder, which",
            "--runtime-version 1.15",
        ),
        (
            ended(TRACEBACK + "ImportError: cannot import name 'Self' from 'typing' (/usr/lib/python3.7/typing.py)\n"),
            "import",
            "no Self in the module typing",
            "--runtime-version",
        ),
        (
            ended(TRACEBACK + "pkg_resources.DistributionNotFound: The 'tfx' distribution was not found\n"),
            "package",
            "The package tfx is not installed.",
            "install_requires",
        ),
        (
            ended(TRACEBACK + "FileNotFoundError: [Errno 2] No such file or directory: 'gs://shed/data/train.csv'\n"),
            "object",
            "There is no gs://shed/data/train.csv.",
            "trainshed buckets ls gs://shed/",
        ),
        (
            ended(
                TRACEBACK + f"{TF}NotFoundError: {{{{function_node __wrapped__IteratorGetNext}}}} "
                "gs://shed/eval.tfrecord; No such file or directory [Op:IteratorGetNext]\n"
            ),
            "object",
            "There is no gs://shed/eval.tfrecord.",
            "trainshed buckets ls gs://shed/",
        ),
        (
            ended(
                TRACEBACK + "google.api_core.exceptions.NotFound: 404 GET http://x/storage: No such object: gs://b/o\n"
            ),
            "object",
            "There is no gs://b/o.",
            "trainshed buckets ls gs://b/",
        ),
        (
            ended(
                TRACEBACK + "Exception: URL fetch failure on https://storage.googleapis.com/tensorflow/flowers.tgz: "
                "404 -- Not Found\n"
            ),
            "public data",
            "The trainer reads gs://tensorflow, which no project here has",
            "trainshed buckets mb gs://tensorflow",
        ),
        (
            ended(
                TRACEBACK + f"{TF}UnavailableError: Error executing an HTTP request: libcurl code 60 meaning 'SSL peer "
                "certificate or SSH remote key was not OK' when reading gs://weather/a.csv\n"
            ),
            "gs:// in TensorFlow 1",
            "TensorFlow 1 does not trust this server's certificate",
            "Pass the URI as an argument",
        ),
        (
            ended(TRACEBACK + "FileNotFoundError: [Errno 2] No such file or directory: 'data/train.csv'\n"),
            "file",
            "There is no file data/train.csv.",
            "trainshed buckets cp",
        ),
        (
            ended(TRACEBACK + "OSError: [Errno 98] Address already in use\n"),
            "port",
            "A port that the job wanted to listen on is in use.",
            "TF_CONFIG",
        ),
        (
            ended(TRACEBACK + "PermissionError: [Errno 13] Permission denied: '/etc/model'\n"),
            "permission",
            "may not read or write /etc/model.",
            "--job-dir",
        ),
        (
            ended(TRACEBACK + f"{TF}PermissionDeniedError: /srv/out; Permission denied\n"),
            "permission",
            "may not read or write /srv/out.",
            "--job-dir",
        ),
        (
            ended(
                TRACEBACK + "tensorflow_estimator.python.estimator.basic_session_run_hooks.NanLossDuringTrainingError: "
                "NaN loss during training.\n"
            ),
            "NaN",
            "The loss became NaN",
            "lower learning rate",
        ),
        (UV_UNKNOWN, "requirement", "The package nosuchpkg, which the trainer requires,", "install_requires"),
        (UV_PYTHON, "old Python", "needs Python >=3.9, and this runtime has 3.7.9", "newer runtime"),
        (
            known(FailureCause.TIME_LIMIT, limit_s=60.0),
            "",
            "longer than its time limit of 60 s.",
            "more time",
        ),
    ],
)
def test_a_known_cause_is_told_with_its_remedy(failure: Failure, sign: str, summary: str, remedy: str) -> None:
    found = diagnose(failure, runtime="2.21")
    assert found.sign == sign
    assert summary in found.summary
    assert remedy in found.remedy


@pytest.mark.parametrize(
    ("last", "cause", "words"),
    [
        ("AttributeError: module 'tensorflow' has no attribute 'function'", "old runtime", "--runtime-version 2.21"),
        ("SyntaxError: invalid syntax", "syntax", "Python 3.7"),
    ],
)
def test_a_runtime_may_be_too_old(last: str, cause: str, words: str) -> None:
    old = diagnose(ended(f"{TRACEBACK}{last}\n"), runtime="1.15")
    assert (old.sign, words in old.remedy) == (cause, True)
    new = diagnose(ended(f"{TRACEBACK}{last}\n"), runtime="2.21")
    assert (new.sign, new.remedy) == ("", "")


def test_an_unknown_cause_is_told_in_the_words_of_the_trainer() -> None:
    found = diagnose(ended(TRACEBACK + "mine.errors.Diverged: at step 3\n"))
    assert (found.summary, found.remedy) == ("worker-replica-1 ended with status 1: Diverged: at step 3.", "")
    assert diagnose(ended("giving up\n", ExitStatus(7))).summary == "worker-replica-1 ended with status 7: giving up."
    assert diagnose(ended("", ExitStatus(7))).summary == "worker-replica-1 ended with status 7."


def test_a_line_that_only_announces_the_cause_is_told_with_the_next() -> None:
    output = f"{TRACEBACK}InvalidArgumentError: Graph execution error:\nIncompatible shapes: [2] vs. [3]\n"
    failure = Failure(cause=FailureCause.REPLICA_EXITED, replica="master-replica-0", exit_code=1, output=output)
    assert diagnose(failure).summary.endswith("Graph execution error: Incompatible shapes: [2] vs. [3].")


def test_frames_and_what_was_got_over_do_not_make_a_cause() -> None:
    frames = TRACEBACK.replace("main(job_dir)", "raise MemoryError  # No space left on device")
    assert diagnose(ended(f"{frames}ValueError: bad\n")).sign == ""
    assert diagnose(ended(f"ImportError: No module named 'x'\n{TRACEBACK}ValueError: bad\n")).sign == ""


def test_an_error_of_the_server_has_its_own_remedy() -> None:
    found = diagnose(supervisor_lost(Orphans()))
    assert found.summary == "The supervisor of this job was killed, and its replicas were ended with it."
    assert found.remedy.startswith("Nothing is wrong with the job itself")
    launch = Failure(cause=FailureCause.LAUNCH_FAILED, message="There is no place. Make one.")
    assert (diagnose(launch).summary, diagnose(launch).remedy) == ("There is no place. Make one.", "")


def supervisor_lost(orphans: Orphans | None) -> Failure:
    job = Job(project="p", id="j", workload=Training.parse({}), state=JobState.RUNNING, created_us=1)
    action = reconcile(job, ObservedAttempt(phase=AttemptPhase.LOST, orphans=orphans), now_us=2)
    assert isinstance(action, Transition)
    assert action.job.failure is not None
    return action.job.failure


@pytest.mark.parametrize(
    ("orphans", "summary", "remedy"),
    [
        (None, "It is not known whether processes of the job live.", "Nothing is wrong"),
        (Orphans(), "killed, and its replicas were ended with it.", "Nothing is wrong"),
        (
            Orphans(ended=(7, 8)),
            "were both killed. The server found processes of the job and ended them: pid 7, 8.",
            "",
        ),
        (Orphans(ended=(7,), left=(9,)), "ended them: pid 7. It can't end these, which belong", "End them by hand"),
        (Orphans(left=(9,)), "both killed. It can't end these, which belong to another user or hang", "kill -9 PID"),
        (Orphans(ended=tuple(range(100, 125))), "118, 119 and 5 more.", "Nothing is wrong"),
    ],
)
def test_a_lost_supervisor_is_told_with_what_became_of_its_processes(
    orphans: Orphans | None, summary: str, remedy: str
) -> None:
    failure = supervisor_lost(orphans)
    assert summary in error_message(failure, "j")
    assert remedy in error_message(failure, "j")
    assert diagnose(failure).remedy
    assert set(failure.facts) in (set(), set(failures.FACTS[FailureCause.SUPERVISOR_LOST]))


@pytest.mark.parametrize("cause", FailureCause)
@pytest.mark.parametrize("replica", ["", "master-replica-0"])
def test_every_cause_has_sentences_whatever_is_known_of_it(cause: FailureCause, replica: str) -> None:
    bare = Failure(cause=cause, replica=replica, message="" if replica else "It broke.")
    odd = replace(bare, signal=77, facts=dict.fromkeys(("limit_s", "image", "memory_limit_bytes", "gang_size"), "x"))
    for failure in (bare, odd):
        assert error_message(failure, "j")
        assert diagnose(failure).summary or replica


def test_the_supervisor_knows_no_other_causes() -> None:
    assert set(FailureCause) - set(node_failure.CAUSES) == {
        FailureCause.SUPERVISOR_LOST,
        FailureCause.LAUNCH_FAILED,
        FailureCause.BUCKET_LIMIT,
        FailureCause.METRIC_MISSING,
        FailureCause.TRIALS_FAILED,
    }
    assert set(node_failure.CAUSES) < set(FailureCause)


def test_the_supervisor_knows_the_same_facts() -> None:
    own = {cause: names for cause, names in failures.FACTS.items() if cause in node_failure.FACTS}
    assert own == node_failure.FACTS
    of_the_server = {FailureCause.CANCELLED, FailureCause.SUPERVISOR_LOST, FailureCause.BUCKET_LIMIT}
    assert set(failures.FACTS) - set(own) == of_the_server
    assert failures.RAN_FACTS == node_failure.RAN_FACTS
    assert failures.RESTART_FACTS == node_failure.RESTART_FACTS


def test_sentences_are_made_of_known_facts() -> None:
    read: set[object] = set()
    sources = "".join(map(inspect.getsource, (failure_text, limit_words)))
    for node in ast.walk(ast.parse(sources)):
        match node:
            case ast.Compare(left=ast.Constant(value=name), ops=[ast.In() | ast.NotIn()], comparators=[subject]):
                read |= {name} if ast.unparse(subject) in ("facts", "failure.facts") else set()
            case ast.Subscript(value=subject, slice=ast.Constant(value=name)):
                read |= {name} if ast.unparse(subject) in ("facts", "failure.facts") else set()
            case ast.Call(func=ast.Attribute(value=subject, attr="get"), args=[ast.Constant(value=name), *_]):
                read |= {name} if ast.unparse(subject) in ("facts", "failure.facts") else set()
            case ast.Call(func=ast.Name(id="_amount"), args=[_, ast.Constant(value=name)]):
                read.add(name)
    known = {
        *failures.RAN_FACTS,
        *failures.RESTART_FACTS,
        *(name for names in failures.FACTS.values() for name in names),
    }
    assert read - known == set()
    assert known - read == {"tool"}, "only programs that read the API need it"


def test_an_error_of_a_node_has_the_facts_of_its_cause() -> None:
    error = node_failure.NodeFailureError("No.", node_failure.IMAGE_MISSING, image="a/b", tool="podman", detail="x")
    assert Failure.parse(error.failure).facts == {"image": "a/b", "tool": "podman", "detail": "x"}
    with pytest.raises(ValueError, match="image_missing has the facts image, tool, detail"):
        node_failure.NodeFailureError("No.", node_failure.IMAGE_MISSING, picture="a/b")


def test_braces_of_trainers_are_no_templates() -> None:
    found = diagnose(ended(TRACEBACK + "FileNotFoundError: [Errno 2] No such file or directory: 'gs://b/{who}'\n"))
    assert found.summary == "There is no gs://b/{who}."
    assert len(diagnose(ended("x" * 100_000)).summary) < 500


@pytest.mark.parametrize("sign", SIGNS, ids=lambda sign: sign.name)
def test_every_sign_has_a_name_a_sentence_and_a_remedy(sign: Any) -> None:
    assert [each.name for each in SIGNS].count(sign.name) == 1
    assert sign.summary.endswith(".") and sign.remedy
    words = dict.fromkeys(sign.pattern.groupindex, "x") | {"who": "x"}
    assert "{" not in sign.summary.format(**words) + sign.remedy.format(**words)


@pytest.mark.parametrize(
    ("end", "tail", "oom"),
    [
        (ExitStatus(None, 9), "", True),
        (ExitStatus(None, 9), "", False),
        (ExitStatus(1), "[Errno 28] No space left on device", False),
        (ExitStatus(2), "error: unrecognized arguments: --job-dir x", False),
        (ExitStatus(1), "/p/python: No module named trainer.task", False),
        (ExitStatus(1), TRACEBACK + "ModuleNotFoundError: No module named 'pandas'", False),
        (ExitStatus(1), TRACEBACK + "importlib.metadata.PackageNotFoundError: tfx", False),
    ],
)
def test_wherever_a_supervisor_has_advice_there_is_a_remedy(end: ExitStatus, tail: str, oom: bool) -> None:
    failure = ended(tail, end, oom=oom)
    assert len(error_message(failure, "j").split("\n\n")) == 3
    assert diagnose(failure).remedy


class Failed:
    """A job that was written by hand, and what is told of its failure."""

    def __init__(self, path: Path) -> None:
        self.home = Home(path)
        self.written = WrittenJob(open_jobs(self.home), self.home, project="proj", job_id="j", created_us=T0)
        self.failures = Failures(self.home)

    def told(self, failure: Failure, state: JobState = JobState.FAILED) -> dict[str, Any]:
        found = self.failures.of(_as(self.written.job, failure, state))
        assert found is not None
        return found


def _as(job: Job, failure: Failure | None, state: JobState) -> Job:
    return replace(job, failure=failure, state=state)


@pytest.fixture
def failed(tmp_path: Path) -> Failed:
    return Failed(tmp_path)


def say(failed: Failed, text: str, *, replica: str = "worker-replica-1", severity: str = "ERROR") -> None:
    failed.written.say([(T0 + 1, line) for line in text.splitlines()], replica=replica, severity=severity)


def lines(told: dict[str, Any]) -> list[str]:
    return [line["message"] for line in told["lines"]]


def test_the_lines_are_the_last_traceback_of_the_replica(failed: Failed) -> None:
    say(failed, f"{TRACEBACK}KeyError: 'got over'\n")
    say(failed, "step 5", severity="INFO")
    say(failed, f"{TRACEBACK}ValueError: bad")
    say(failed, f"{TRACEBACK}RuntimeError: of another", replica="master-replica-0")
    failed.written.say([(T0 + 1, "We clean up.")], replica="worker-replica-1", severity="INFO", kind="cleanup")
    told = failed.told(ended(f"{TRACEBACK}ValueError: bad\n"))
    assert lines(told) == [*TRACEBACK.splitlines(), "ValueError: bad"]
    assert told["replica"] == told["lines"][0]["replica"] == "worker-replica-1"
    assert (told["cause"], told["exitCode"], told["signal"]) == ("replica_exited", 1, None)
    assert set(told["lines"][0]) == {"insertId", "time", "replica", "trial", "severity", "message"}


def test_a_chain_of_tracebacks_is_one(failed: Failed) -> None:
    chained = "During handling of the above exception, another exception occurred:"
    text = f"{TRACEBACK}KeyError: 1\n{chained}\n{TRACEBACK}ValueError: 2"
    say(failed, f"{TRACEBACK}OSError: 0\nstep 1\n{text}")
    assert lines(failed.told(ended(text))) == text.splitlines()


def test_a_long_traceback_keeps_its_head_and_its_end(failed: Failed) -> None:
    text = "Traceback (most recent call last):\n" + "  frame\n" * 500 + "RecursionError: deep"
    say(failed, text)
    told = lines(failed.told(ended(text)))
    assert (told[0], told[-1], len(told)) == ("Traceback (most recent call last):", "RecursionError: deep", 60)


def test_without_a_traceback_the_last_errors_are_the_lines(failed: Failed) -> None:
    say(failed, "\n".join(f"error {n}" for n in range(50)))
    say(failed, "step 9", severity="INFO")
    assert lines(failed.told(ended("error 49", ExitStatus(3)))) == [f"error {n}" for n in range(30, 50)]


def test_without_any_error_they_are_the_last_lines(failed: Failed) -> None:
    say(failed, "\n".join(f"step {n}" for n in range(50)), severity="INFO")
    assert lines(failed.told(ended("", ExitStatus(None, 9))))[-1] == "step 49"


def test_a_job_whose_packages_cannot_be_installed(failed: Failed) -> None:
    say(failed, "No solution found", replica="master-replica-0", severity="INFO")
    say(failed, "The package can't be installed.", replica="master-replica-0")
    told = failed.told(UV_UNKNOWN)
    assert told["replica"] == "service"
    assert lines(told) == ["No solution found", "The package can't be installed."]


def test_only_jobs_that_failed_have_a_failure(failed: Failed) -> None:
    late = known(FailureCause.TIME_LIMIT, limit_s=60)
    assert "time limit" in failed.told(late, JobState.CANCELLED)["summary"]
    by_me = known(FailureCause.CANCELLED, by="me")
    for failure, state in ((None, JobState.SUCCEEDED), (None, JobState.RUNNING), (by_me, JobState.CANCELLED)):
        assert failed.failures.of(_as(failed.written.job, failure, state)) is None
