"""A real host as a process, and a connection to it. The test decides what it loads or runs."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainshed.serving.frames import ANSWER_HEAD, FrameKind, pack_request

#: As `run.py` of the shipped code: no interpreter is taken apart while threads run.
MAIN = """
import os, sys
from trainshed.serving.main import main
status = main(sys.argv[1:])
sys.stdout.flush()
sys.stderr.flush()
os._exit(status)
"""
_TIMEOUT_S = 90.0


class RunningHost:
    """Started immediately, in `folder`, which has its log and its socket. `heard` connects to it."""

    def __init__(self, folder: Path, word: str, spec: Mapping[str, Any], *, program: str = MAIN) -> None:
        """`word` is `host`, or `container-host` for a container; `program` is what runs the serving code."""
        self.folder = folder
        self.log = folder / "log"
        paths = {"socket": str(folder / "s"), "model_dir": str(folder)}
        (folder / "spec.json").write_text(json.dumps({"format": 1, **paths, **spec}))
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", program, word, folder / "spec.json"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
            )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.life, self.output = self.process.stdin, self.process.stdout
        self.socket = socket.socket(socket.AF_UNIX)

    def heard(self) -> dict[str, Any]:
        """Return its first message. Connects to it if it is ready."""
        message: dict[str, Any] = json.loads(self.output.readline())
        if message["event"] == "ready":
            self.connect()
        return message

    def connect(self) -> None:
        """Connect again, in place of the current connection."""
        self.socket.close()
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(_TIMEOUT_S)
        self.socket.connect(str(self.folder / "s"))

    def send(self, number: int, body: object = b"", kind: FrameKind = FrameKind.PREDICT) -> None:
        """Send a request: bytes unchanged, anything else as JSON."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.socket.sendall(pack_request(number, kind, data))

    def receive(self) -> tuple[int, int, bytes]:
        """Receive a response: number, status and body."""
        length, number, status = ANSWER_HEAD.unpack(self._exactly(ANSWER_HEAD.size))
        return number, status, self._exactly(length)

    def ask(self, body: object = b"", kind: FrameKind = FrameKind.PREDICT) -> tuple[int, Any]:
        """Send a request. Returns status and body of the response, as JSON unless it is raw."""
        self.send(1, body, kind)
        number, status, content = self.receive()
        assert number == 1
        return status, content if kind is FrameKind.RAW and status == 200 else json.loads(content)

    def stats(self) -> dict[str, Any]:
        stats_: dict[str, Any] = self.ask(kind=FrameKind.STATS)[1]
        return stats_

    def let_go(self) -> None:
        """Create the file that unblocks a hanging program."""
        (self.folder / "go").touch()

    def ended(self) -> int:
        """Wait for the exit. Returns the exit status. Fails with the stacks of a host that does not exit."""
        try:
            return self.process.wait(_TIMEOUT_S)
        except subprocess.TimeoutExpired as exc:
            tool = Path(sys.executable).with_name("py-spy")
            stacks = subprocess.run(
                [tool, "dump", "--pid", str(self.process.pid)], capture_output=True, text=True, check=False
            )
            raise AssertionError(f"still running:\n{stacks.stdout}{stacks.stderr}\n{self.log.read_text()}") from exc

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self.life.close()
        self.output.close()
        self.socket.close()

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            chunk = self.socket.recv(size - len(data))
            if not chunk:
                raise EOFError
            data += chunk
        return data
