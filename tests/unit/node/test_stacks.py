"""Stacks of other processes, and what py-spy prints of them."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from trainshed.node.supervisor import stacks
from trainshed.node.supervisor.stacks import MAX_THREADS, StackDump, kernel_threads, parse_stack, python_process
from trainshed.testing.eventually import eventually

OWN = str(Path(stacks.__file__).parents[2] / "node" / "main.py")


def _thread(name: str | None, *files: str, number: int = 8) -> dict[str, Any]:
    frames = [{"filename": file, "line": index, "name": f"f{index}"} for index, file in enumerate(files)]
    return {"pid": 7, "os_thread_id": number, "thread_name": name, "frames": frames}


def _dump(tool: str, pid: int, folder: Path, *, timeout_s: float = 60.0) -> StackDump:
    dump = StackDump(tool, pid, str(folder), time.monotonic() + timeout_s)
    eventually(lambda: dump.poll(time.monotonic()))
    return dump


def test_the_main_thread_comes_first_and_has_its_name() -> None:
    output = json.dumps([_thread("feeder", "a.py"), _thread(None, "b.py", number=9), _thread(None, "c.py", number=7)])
    assert [(each["name"], each["frames"]) for each in parse_stack(output.encode())] == [
        ("MainThread", [["c.py", 0, "f0"]]),
        ("feeder", [["a.py", 0, "f0"]]),
        ("9", [["b.py", 0, "f0"]]),
    ]


def test_frames_of_the_warm_process_are_left_out() -> None:
    output = json.dumps([_thread("MainThread", "task.py", "runpy.py", OWN, "run.py")]).encode()
    assert [frame[0] for frame in parse_stack(output)[0]["frames"]] == ["task.py", "runpy.py"]


def test_a_stack_is_bounded() -> None:
    deep = [_thread("t", *["/x" * 400] * 200) for _ in range(2 * MAX_THREADS)]
    stack = parse_stack(json.dumps(deep).encode())
    assert 1 <= len(stack) <= MAX_THREADS
    assert len(json.dumps(stack)) < 64 * 1024


@pytest.mark.parametrize("output", [b"", b"{}", b"[1]", b'[{"frames": []}]', b"null"])
def test_another_document_is_refused(output: bytes) -> None:
    with pytest.raises((ValueError, LookupError, TypeError, AttributeError)):
        parse_stack(output)


def test_a_stopped_process_has_a_stack(tmp_path: Path) -> None:
    tool = shutil.which("py-spy", path=str(Path(sys.executable).parent))
    assert tool is not None
    with subprocess.Popen(
        [sys.executable, "-c", "def halt():\n    print(1, flush=True)\n    input()\nhalt()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGSTOP)
        dump = _dump(tool, process.pid, tmp_path)
        threads = kernel_threads(process.pid)
        process.kill()
    assert dump.error == ""
    assert dump.stack[0]["name"] == "MainThread"
    assert dump.stack[0]["frames"][0][2] == "halt"
    assert threads[0][1] == "T"


def test_without_the_tool_the_reason_is_known(tmp_path: Path) -> None:
    assert "not installed" in _dump("", os.getpid(), tmp_path).error
    assert "can't be started" in _dump(str(tmp_path / "none"), os.getpid(), tmp_path).error


def test_what_the_tool_says_last_is_the_reason(tmp_path: Path) -> None:
    tool = tmp_path / "tool"
    tool.write_text("#!/bin/sh\necho Error: first >&2\necho Permission denied. >&2\nexit 1\n")
    tool.chmod(0o755)
    dump = _dump(str(tool), os.getpid(), tmp_path)
    assert (dump.stack, dump.error) == ([], "py-spy says: Permission denied")


def test_a_tool_that_does_not_end_is_not_waited_for(tmp_path: Path) -> None:
    tool = tmp_path / "tool"
    tool.write_text("#!/bin/sh\nexec sleep 600\n")
    tool.chmod(0o755)
    dump = _dump(str(tool), os.getpid(), tmp_path, timeout_s=0.2)
    assert dump.error == "py-spy did not end in time"


def test_the_python_among_the_processes_of_a_replica() -> None:
    with subprocess.Popen(["/bin/sleep", "600"]) as other:
        assert python_process([other.pid, os.getpid()]) == os.getpid()
        assert python_process([other.pid]) == other.pid
        other.kill()
    assert python_process([]) is None
