"""A real host as a process, and a connection to it. What it loads, or runs, is the test's."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainshed.serving.frames import ANSWER_HEAD, FrameKind, pack_request

MAIN = "import sys; from trainshed.serving.main import main; sys.exit(main(sys.argv[1:]))"
_WAIT_S = 90.0


class RunningHost:
    """Started at once, in `folder`, which has its log and its socket. There is a connection once `heard` says so."""

    def __init__(self, folder: Path, word: str, spec: Mapping[str, Any], *, program: str = MAIN) -> None:
        """`word` is `host`, or `pass` for a container; `program` is what runs the serving code."""
        self.folder = folder
        self.log = folder / "log"
        places = {"socket": str(folder / "s"), "model_dir": str(folder)}
        (folder / "spec.json").write_text(json.dumps({"format": 1, **places, **spec}))
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
        """What it says of itself first. It is connected to if it is ready."""
        said: dict[str, Any] = json.loads(self.output.readline())
        if said["event"] == "ready":
            self.connect()
        return said

    def connect(self) -> None:
        """In place of the connection that there was."""
        self.socket.close()
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(_WAIT_S)
        self.socket.connect(str(self.folder / "s"))

    def send(self, number: int, body: object = b"", kind: FrameKind = FrameKind.PREDICT) -> None:
        """Bytes go as they are, all else as JSON."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.socket.sendall(pack_request(number, kind, data))

    def receive(self) -> tuple[int, int, bytes]:
        """Number, status and body."""
        length, number, status = ANSWER_HEAD.unpack(self._exactly(ANSWER_HEAD.size))
        return number, status, self._exactly(length)

    def ask(self, body: object = b"", kind: FrameKind = FrameKind.PREDICT) -> tuple[int, Any]:
        """Status and body of the answer, as JSON unless it is one to a raw request."""
        self.send(1, body, kind)
        number, status, answer = self.receive()
        assert number == 1
        return status, answer if kind is FrameKind.RAW and status == 200 else json.loads(answer)

    def stats(self) -> dict[str, Any]:
        found: dict[str, Any] = self.ask(kind=FrameKind.STATS)[1]
        return found

    def let_go(self) -> None:
        """What hangs until there is this file goes on."""
        (self.folder / "go").touch()

    def ended(self) -> int:
        """Its exit status, once it has ended."""
        return self.process.wait(_WAIT_S)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self.life.close()
        self.output.close()
        self.socket.close()

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            piece = self.socket.recv(size - len(data))
            if not piece:
                raise EOFError
            data += piece
        return data
