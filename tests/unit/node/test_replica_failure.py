"""What a failed job says about itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trainshed.domain.jobs.failure import Failure, FailureCause
from trainshed.domain.jobs.failure_text import diagnose, error_message
from trainshed.node import failure as failures
from trainshed.node.process.exit_status import ExitStatus
from trainshed.node.process.sampler import oom_kills
from trainshed.node.supervisor.replica_failure import describe, is_peer_loss

SPEC: dict[str, Any] = {"job": "mnist_1", "module": "trainer.task"}
MASTER: dict[str, Any] = {"type": "master", "index": 0, "name": "master-replica-0"}
PEAK = 1 << 30
LOGS = "To find out more about why your job exited please check the logs: trainshed jobs logs mnist_1"
TRACEBACK = 'Traceback (most recent call last):\n  File "task.py", line 3, in <module>\n    main()\n'


def explain(spec: dict[str, Any], replica: dict[str, Any], end: ExitStatus, tail: str, oom: bool, **facts: int) -> str:
    seen: dict[str, Any] = {"memory_peak_bytes": PEAK, "facts": facts}
    if oom and end.signal == 9:
        seen["cause"] = failures.OUT_OF_MEMORY
    described = describe(spec, replica, end, tail, seen)
    assert (described["replica"], described["memory_peak_bytes"]) == (replica["name"], PEAK)
    assert set(described["facts"]) <= {*failures.RAN_FACTS, *failures.RESTART_FACTS}
    return error_message(Failure.parse(described), spec["job"])


def test_the_last_traceback_is_the_reason() -> None:
    tail = f"noise\n{TRACEBACK}KeyError: 'first'\nmore noise\n{TRACEBACK}ValueError: second\n"
    assert explain(SPEC, MASTER, ExitStatus(1), tail, False) == (
        f"The replica master 0 exited with a non-zero status of 1. \n{TRACEBACK}ValueError: second\n\n{LOGS}"
    )


def test_without_a_traceback_the_last_lines_are() -> None:
    said = explain(SPEC, MASTER, ExitStatus(4), "".join(f"line {n}\n" for n in range(100)), False)
    assert said.splitlines()[:3] == ["The replica master 0 exited with a non-zero status of 4. ", "line 80", "line 81"]
    assert explain(SPEC, MASTER, ExitStatus(4), "", False) == (
        f"The replica master 0 exited with a non-zero status of 4. \n\n{LOGS}"
    )


def test_a_long_traceback_loses_its_oldest_frames() -> None:
    frames = "".join(f'  File "deep.py", line {n}, in f\n    f()\n' for n in range(500))
    said = explain(
        SPEC, MASTER, ExitStatus(1), f"Traceback (most recent call last):\n{frames}RecursionError: deep\n", False
    )
    lines = said.splitlines()
    assert lines[1:3] == ["Traceback (most recent call last):", "  [...]"]
    assert "RecursionError: deep" in lines
    assert len(said) < 2500
    assert len(explain(SPEC, MASTER, ExitStatus(1), "x" * 100_000, False)) < 2500


FRAMES = "".join(f'  File "lib/ops.py", line {n}, in create_op\n    op_def=op_def)\n' for n in range(200))
MISMATCH = "InvalidArgumentError: Incompatible shapes: [2] vs. [3]"


@pytest.mark.parametrize(
    ("tail", "ending"),
    [
        (
            f"{TRACEBACK}errors_impl.{MISMATCH}\n\t [[node add]]\n\nOriginal stack trace for 'add':\n{FRAMES}",
            f"errors_impl.{MISMATCH}\n\t [[node add]]",
        ),
        (
            f"{TRACEBACK}{MISMATCH}\n\nCaused by op 'add', defined at:\n{FRAMES}\n{MISMATCH}\n",
            f"{MISMATCH}\n{MISMATCH}",
        ),
        (
            f"{TRACEBACK}InvalidArgumentError: Graph execution error:\n\n"
            f"Detected at node 'add' defined at (most recent call last):\n{FRAMES}Node: 'add'\nIncompatible shapes\n",
            "InvalidArgumentError: Graph execution error:\nIncompatible shapes",
        ),
    ],
    ids=["1.15", "1.13", "2"],
)
def test_the_stack_that_made_an_operation_hides_no_cause(tail: str, ending: str) -> None:
    said = explain(SPEC, MASTER, ExitStatus(1), tail, False)
    assert said == f"The replica master 0 exited with a non-zero status of 1. \n{TRACEBACK}{ending}\n\n{LOGS}"


def test_a_module_of_the_own_package_is_told_from_a_missing_one(tmp_path: Path) -> None:
    (tmp_path / "trainer").mkdir()
    (tmp_path / "trainer" / "model.py").touch()
    (tmp_path / "trainer" / "parts").mkdir()
    spec = {**SPEC, "site": str(tmp_path)}
    for name in ("model", "parts"):
        tail = f"{TRACEBACK}ModuleNotFoundError: No module named '{name}'\n"
        said = explain(spec, MASTER, ExitStatus(1), tail, False)
        assert f"Write `from trainer import {name}` in place of `import {name}`." in said
        failure = Failure.parse(describe(spec, MASTER, ExitStatus(1), tail, {}))
        assert diagnose(failure).sign == "relative import"
    for name in ("pandas", "model.deep"):
        tail = f"{TRACEBACK}ModuleNotFoundError: No module named '{name}'\n"
        assert "install_requires" in explain(spec, MASTER, ExitStatus(1), tail, False)


@pytest.mark.parametrize(
    ("end", "tail", "oom", "words"),
    [
        (
            ExitStatus(1),
            TRACEBACK + "ModuleNotFoundError: No module named 'pandas'\n",
            False,
            "add that to install_requires",
        ),
        (
            ExitStatus(1),
            "/r/bin/python: No module named trainer.task\n",
            False,
            "Check --module-name (it is trainer.task",
        ),
        (
            ExitStatus(1),
            "/r/bin/python3.7: Error while finding module specification for 'trainer.task' "
            "(ModuleNotFoundError: No module named 'trainer')\n",
            False,
            "There is no module trainer.task in the package",
        ),
        (ExitStatus(1), TRACEBACK + "ModuleNotFoundError: No module named 'trainer'\n", False, "Check --module-name"),
        (
            ExitStatus(2),
            "usage: task.py [-h]\ntask.py: error: unrecognized arguments: --job-dir /b/x\n",
            False,
            "parser.parse_known_args()",
        ),
        (ExitStatus(1), TRACEBACK + "MemoryError\n", False, "The replica master 0 ran out-of-memory and exited with"),
        (ExitStatus(None, 9), "", True, "ran out-of-memory and exited with a non-zero status of 9(SIGKILL)."),
        (ExitStatus(None, 9), "", False, "The replica master 0 was killed by signal 9 (SIGKILL)."),
        (ExitStatus(None, 11), "", True, "The replica master 0 was killed by signal 11 (SIGSEGV)."),
        (ExitStatus(None, 40), "", False, "was killed by signal 40 (SIGRTMIN+"),
        (ExitStatus(1), TRACEBACK + "OSError: [Errno 28] No space left on device\n", False, "The disk is full."),
        (
            ExitStatus(1),
            TRACEBACK + "importlib.metadata.PackageNotFoundError: tfx\n",
            False,
            "The package tfx is not installed",
        ),
    ],
)
def test_common_cases_come_with_advice(end: ExitStatus, tail: str, oom: bool, words: str) -> None:
    said = explain(SPEC, MASTER, end, tail, oom)
    assert words in said
    assert said.endswith(LOGS)


@pytest.mark.parametrize(
    ("end", "tail", "cause"),
    [
        (ExitStatus(3), "x", failures.REPLICA_EXITED),
        (ExitStatus(1), TRACEBACK + "MemoryError", failures.OUT_OF_MEMORY),
        (ExitStatus(None, 9), "MemoryError", failures.REPLICA_KILLED),
        (ExitStatus(None, 64), "", failures.NODE_LOST),
    ],
)
def test_the_cause_follows_from_the_exit(end: ExitStatus, tail: str, cause: str) -> None:
    found = describe(SPEC, MASTER, end, tail, {})
    assert (found["cause"], found["exit_code"], found["signal"]) == (cause, end.code, end.signal)
    assert found["facts"] == {"module": "trainer.task"}


def test_what_a_node_observed_is_the_cause() -> None:
    seen = {"cause": failures.IMAGE_MISSING, "facts": {"image": "a/b"}, "message": "There is none."}
    found = describe(SPEC, MASTER, ExitStatus(1), "There is none.", seen)
    assert (found["cause"], found["facts"]) == (failures.IMAGE_MISSING, {"module": "trainer.task", "image": "a/b"})


def test_a_container_has_its_image_and_its_limit() -> None:
    container = {"image": "a/b", "command": ["run", "it"], "memory_bytes": 4_000_000_000}
    replica = MASTER | {"container": container}
    assert describe(SPEC, replica, ExitStatus(1), "", {})["facts"] == {
        "image": "a/b",
        "command": "run",
        "memory_limit_bytes": 4_000_000_000,
    }
    assert "more memory than the 4 GB of its machine type" in explain(SPEC, replica, ExitStatus(None, 9), "", True)


def test_a_failed_installation_tells_what_its_installer_left(tmp_path: Any) -> None:
    folder, logs = str(tmp_path), "\n\nTo find out more please check the logs: trainshed jobs logs j"
    failures.write_failure(folder, failures.INSTALLATION, failures.NodeFailureError("Bad.", "install_failed").failure)
    left = failures.read_failure(folder, failures.INSTALLATION)
    assert left is not None
    assert error_message(Failure.parse(left), "j") == f"Bad.{logs}"
    killed = Failure(cause=FailureCause.INSTALL_FAILED, signal=9)
    assert error_message(killed, "j") == f"The installation of the job's packages was killed by signal 9.{logs}"


@pytest.mark.parametrize("content", ["", "[]", "{", '{"cause": "bad luck"}', '{"cause": [], "facts": 1}', "[" * 60_000])
def test_a_file_that_is_no_failure_says_nothing(tmp_path: Any, content: str) -> None:
    (tmp_path / "install.failure").write_text(content)
    assert failures.read_failure(str(tmp_path), failures.INSTALLATION) is None
    failures.remove_failure(str(tmp_path), failures.INSTALLATION)
    failures.remove_failure(str(tmp_path), failures.INSTALLATION)
    assert failures.read_failure(str(tmp_path), failures.INSTALLATION) is None


def test_the_kernel_counts_its_kills() -> None:
    assert oom_kills() >= 0


@pytest.mark.parametrize(
    ("tail", "expected"),
    [
        (f"{TRACEBACK}tensorflow.python.framework.errors_impl.UnavailableError: From /job:ps: Socket closed", True),
        (f"{TRACEBACK}tensorflow.python.framework.errors_impl.AbortedError: Session 1 is not found.", True),
        (f"{TRACEBACK}RuntimeError: [gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:1", True),
        (f"{TRACEBACK}ConnectionResetError: [Errno 104] Connection reset by peer", True),
        (f"{TRACEBACK}ConnectionRefusedError: [Errno 111] Connection refused", True),
        ("E0000 coordination: UNAVAILABLE: failed to connect to all addresses", True),
        (f"{TRACEBACK}BrokenPipeError: [Errno 32] Broken pipe", True),
        (f"{TRACEBACK}ValueError: a bug", False),
        (f"W0000 UNAVAILABLE: Socket closed\n{TRACEBACK}ValueError: a bug after trouble that was got over", False),
        (f"{TRACEBACK}UnavailableError: x\nDuring handling of it:\n{TRACEBACK}KeyError: 'last'", False),
        ("Socket closed\n" + "step 1\n" * 50, False),
        ("", False),
    ],
)
def test_last_words_of_a_broken_connection_are_an_echo(tail: str, expected: bool) -> None:
    assert is_peer_loss(tail) is expected


def test_what_else_there_is_to_say_comes_before_the_advice() -> None:
    said = explain(SPEC, MASTER, ExitStatus(None, 9), "tail\n", True, gang_restarts=3, gang_size=1)
    parts = said.split("\n\n")
    assert parts[1] == "The job had been restarted 3 times already, which is the limit."
    assert parts[2].startswith("The machine had no memory left")
