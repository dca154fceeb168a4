"""The tutorials of docs/tutorials, typed line by line into `trainshed shell`: one sees what they say one sees.

In a tutorial, a block marked `bash` is typed, all blocks of one file in one shell. `bash fails` ends with an exit
status other than 0. `bash background` goes on while the next ones are typed. A block marked `output` shows lines that
the block before it prints, in this order; other lines may stand between them, and `...` is any text.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from trainshed.node.process.ports import free_ports
from trainshed.testing.clusters.containers import Podman
from trainshed.testing.processes.servers import RunningServer

TUTORIALS = Path(__file__).resolve().parents[2] / "docs" / "tutorials"
TRAINSHED = Path(sys.executable).with_name("trainshed")
BLOCK_S = 800.0
WEB_PORT = "8080"  #: of the documents' web preview; a test takes a free one

#: what makes trainings short: variables that the tutorials let one set before
SHORT = {
    "distributed-mnist": {"TRAIN_STEPS": "150"},
    "taxi": {"NUM_EPOCHS": "1"},
    "train-on-the-cloud": {"MAX_STEPS": "60"},
    "synchronous-mnist": {"EPOCHS": "1", "STEPS_PER_EPOCH": "20"},
    "iris": {},
    "pytorch-mnist": {"EPOCHS": "1"},
    "tuning": {"TRAIN_STEPS": "60"},
}


@dataclass
class Block:
    """What is typed, and what is seen then."""

    kind: str  #: "", "fails" or "background"
    text: str
    seen: list[str] = field(default_factory=list)


def blocks(page: str) -> list[Block]:
    """What a tutorial has one type, in order."""
    found: list[Block] = []
    for language, kind, text in re.findall(r"^```(\w+) ?(\w*)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL):
        if language == "bash":
            found.append(Block(kind, text))
        elif language == "output":
            found[-1].seen += text.splitlines()
    return found


def unseen(expected: list[str], shown: list[str]) -> str | None:
    """The first expected line that does not come, in its order."""
    lines = iter(shown)
    for line in expected:
        if line.strip() == "...":
            continue
        parts = re.split(r"\s*\.\.\.\s*", " ".join(line.split()))
        rule = re.compile(".*?".join(re.escape(part) for part in parts))
        if not any(rule.fullmatch(" ".join(text.split())) for text in lines):  # columns may be wider
            return line
    return None


class Typist:
    """Types into one real shell and reads all that it shows, stderr among it."""

    def __init__(self, server: RunningServer, folder: Path, project: str, variables: dict[str, str]) -> None:
        (folder / "tmp").mkdir()
        [port] = free_ports(1)
        self._port = str(port)
        own = {"HOME": str(folder), "SHELL": "/bin/bash", "TZ": "UTC", "TMPDIR": str(folder / "tmp"), **variables}
        own["BROWSER"] = "true"  # the program of that name opens nothing
        self._folder = folder
        self._process = subprocess.Popen(
            [TRAINSHED, "shell", "--project", project],
            env=server.env() | own,
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._lines: list[str] = []
        self._count = 0
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.append(line.rstrip("\n"))

    def _write(self, text: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(text)
        self._process.stdin.flush()

    def type(self, block: Block) -> str:
        """Type a block, which must end as it should. What it should have shown and did not, or nothing."""
        text = block.text.replace("/tmp/data", f"{self._folder}/tmp/data").replace(WEB_PORT, self._port)
        expected = [line.replace(WEB_PORT, self._port) for line in block.seen]
        if block.kind == "background":
            self._in_background(text, expected)
            return ""
        self._count += 1
        mark, start = f"-- {self._count} typed:", len(self._lines)
        self._write(f"{text}\nprintf '\\n{mark} %s\\n' $?\n")
        deadline = time.monotonic() + BLOCK_S
        while not any(line.startswith(mark) for line in self._lines[start:]):
            assert self._reader.is_alive(), f"the shell ended:\n{text}\n{self._tail(start)}"
            assert time.monotonic() < deadline, f"it takes too long:\n{text}\n{self._tail(start)}"
            time.sleep(0.05)
        shown = self._lines[start:]
        status = int(next(line for line in shown if line.startswith(mark)).rpartition(" ")[2])
        assert (status != 0) == (block.kind == "fails"), f"{text}\n{self._tail(start)}"
        commands_own = [line for line in shown if line.startswith("Traceback (most recent call last)")]  # not in a log
        assert not commands_own, self._tail(start)
        missing = unseen(expected, shown)
        return f"{missing!r} is not seen after\n{text}\n{self._tail(start)}" if missing is not None else ""

    def _in_background(self, text: str, expected: list[str]) -> None:
        self._count += 1
        output = self._folder / "tmp" / f"background-{self._count}"
        output.touch()
        self._write(f"{text.rstrip()} >{output} 2>&1 </dev/null &\n")
        deadline = time.monotonic() + BLOCK_S
        while missing := unseen(expected, output.read_text().splitlines()):
            assert time.monotonic() < deadline, f"{missing!r} is not seen after\n{text}\n{output.read_text()[-3000:]}"
            time.sleep(0.1)

    def _tail(self, start: int) -> str:
        return "\n".join(self._lines[start:])[-5000:]

    def close(self) -> None:
        self._write("kill $(jobs -p) 2>/dev/null; wait; exit\n")
        try:
            self._process.wait(timeout=180)
        finally:
            if self._process.poll() is None:
                os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait(timeout=30)
            self._reader.join(timeout=30)
            for pipe in (self._process.stdin, self._process.stdout):
                assert pipe is not None
                pipe.close()


@pytest.fixture
def typist(
    request: pytest.FixtureRequest, framework_server: RunningServer, podman: Podman, tmp_path: Path
) -> Iterator[Typist]:
    name = request.param
    made = Typist(framework_server, tmp_path, f"tutorial-{name}"[:30].strip("-"), SHORT[name] | podman.env)
    yield made
    made.close()


def test_every_tutorial_is_tested_and_listed() -> None:
    pages = {path.stem for path in TUTORIALS.glob("*.md")} - {"index"}
    assert pages == set(SHORT)
    index = (TUTORIALS / "index.md").read_text()
    assert all(f"({name}.md)" in index for name in pages)


def case(name: str) -> Any:
    """A tutorial is slow by nature, and the samples of all have tests of their own. One is typed in every run."""
    return pytest.param(name, name, id=name, marks=() if name == "iris" else pytest.mark.soak)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("name", "typist"), [case(name) for name in SHORT], indirect=["typist"])
def test_a_tutorial_shows_what_it_says(name: str, typist: Typist) -> None:
    page = (TUTORIALS / f"{name}.md").read_text()
    typed = blocks(page)
    assert sum(bool(block.seen) for block in typed) >= 5
    missed = [text for block in typed if (text := typist.type(block))]
    assert not missed, "\n\n".join(missed)


def test_a_line_that_does_not_come_is_missed() -> None:
    shown = ["a 1 b", "between", "CLASSES  PROBABILITIES", "7        [0.1, 0.9]"]
    assert unseen(["a ... b", "...", "7        [...]"], shown) is None
    assert unseen(["7        [...]", "a ... b"], shown) == "a ... b"
    assert unseen(["a 2 b"], shown) == "a 2 b"
    page = "```bash\nls\n```\n\n```output\na ... b\n```\n\n```bash fails\nfalse\n```\n\n```\nnot typed\n```\n"
    assert blocks(page) == [Block("", "ls\n", ["a ... b"]), Block("fails", "false\n")]
