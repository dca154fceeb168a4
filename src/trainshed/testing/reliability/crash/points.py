"""Crash points of the program: their names, and a server that is taken through them one after another."""

from __future__ import annotations

import ast
import http.client
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any

from trainshed.node.crashpoints import KILL
from trainshed.testing.answers import ARM_PATH
from trainshed.testing.eventually import eventually
from trainshed.testing.processes.servers import HttpAnswer, RunningServer, ask

SOURCE = Path(__file__).resolve().parents[3]

#: What a test does around a crash: it prepares and acts, yields while the server dies and starts again, and checks.
Scenario = Generator[None, None, None]


def point_names(source: Path = SOURCE) -> list[str]:
    """The names of all crash points. Raises `ValueError` for one that is no plain string, or is there twice."""
    names: dict[str, str] = {}
    for path in sorted(source.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "crashpoint"):
                continue
            place = f"{path.relative_to(source).as_posix()}:{node.lineno}"
            match node.args:
                case [ast.Constant(value=str(name))] if name not in names:
                    names[name] = place
                case _:
                    raise ValueError(f"{place}: a crash point has a plain name of its own.")
    return sorted(names)


class CrashingServer:
    """A server that dies or fails at one crash point after another, on one state folder."""

    def __init__(self, server: RunningServer) -> None:
        self.server = server
        self.point = ""  #: the one that was armed last
        self.action = KILL
        self.statuses: list[int] = []  #: of the responses since a point was armed

    def start(self, point: str, at: int = 1) -> None:
        """Start the server with a point that kills it when it is passed for the `at`th time."""
        self._begin(point, KILL)
        self.server.crash_at = f"{point}:{KILL}:{at}"
        self.server.start()

    def arm(self, point: str, action: str, at: int = 1) -> None:
        """Arm a point in the server that runs."""
        self._begin(point, action)
        self._arm(f"{point}:{action}:{at}")

    def disarm(self) -> None:
        self._arm("")

    def _begin(self, point: str, action: str) -> None:
        self.server.hits.unlink(missing_ok=True)
        self.point, self.action, self.statuses = point, action, []

    def _arm(self, crash_at: str) -> None:
        answer = ask(self.server.url, "POST", ARM_PATH, body={"crashAt": crash_at, "hits": str(self.server.hits)})
        assert answer.status == 200, answer

    def await_hit(self) -> None:
        """Wait until the point has acted."""
        eventually(
            self._hits, lambda names: names == [self.point], describe=lambda: self.server.log.read_text()[-3000:]
        )

    def _hits(self) -> list[str]:
        return self.server.hits.read_text().splitlines() if self.server.hits.exists() else []

    def restart(self, *, died: bool) -> None:
        """Start the server again, without a crash point. With `died`, it must have been killed by the point."""
        if died:
            status = self.server.wait()
            assert status == -9, f"the server exited with {status}"
        else:
            self.server.kill()
        self.server.crash_at = ""
        self.server.start()

    def try_call(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> HttpAnswer | None:
        """Send a request as the owner. Returns None if the server dies before it responds."""
        try:
            return self.call(method, path, body, headers)
        except (OSError, http.client.HTTPException):
            return None

    def call(self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None) -> HttpAnswer:
        every = {"authorization": f"Bearer {self.server.token}", **(headers or {})}
        answer = ask(self.server.url, method, path, body=body, headers=every)
        self.statuses.append(answer.status)
        return answer
