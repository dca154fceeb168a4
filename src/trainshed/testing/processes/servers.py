"""A real server in a process of its own, for tests: started, killed, started again."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from trainshed.config import Home
from trainshed.domain.jobs.reconcile import AttemptPhase
from trainshed.engines.local.engine import LocalEngine
from trainshed.testing.contracts.engines import wait_for

START_S = 120.0
END_S = 120.0
JOBS_END_S = 120.0
_ALIVE = (AttemptPhase.PREPARING, AttemptPhase.RUNNING)

_PROGRAM = """
import sys
from pathlib import Path
from trainshed.config import Home, Settings
from trainshed.errors import CannotProceedError
from trainshed.server import log_to_stderr, serve
import os
home = Home(Path(sys.argv[1]))
log_to_stderr(home.server_log)
try:
    serve(home, Settings.read(os.environ))
except CannotProceedError as exc:
    sys.exit(str(exc))
"""


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """All of an answer. The names of its headers are in small letters."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def ask(url: str, method: str, path: str, *, body: Any = None, headers: Mapping[str, str] | None = None) -> HttpAnswer:
    """One request, on a connection of its own: `body` is sent as it is if it is bytes, else as JSON."""
    data = body if body is None or isinstance(body, bytes) else json.dumps(body)
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)
    try:
        connection.request(method, path, data, dict(headers or {}))
        answer = connection.getresponse()
        return HttpAnswer(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())
    finally:
        connection.close()


class Caller:
    """Plain HTTP, so that nothing comes between a test and the answer."""

    def __init__(self, url: str) -> None:
        self._url = url

    def __call__(
        self,
        method: str,
        path: str,
        *,
        token: str | None = None,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> tuple[int, Any]:
        """Send `body` (bytes as they are, else as JSON) and return the status and the answer (JSON parsed)."""
        sent = dict(headers or {})
        if token is not None:
            sent["authorization"] = f"Bearer {token}"
        answer = ask(self._url, method, path, body=body, headers=sent)
        kind = answer.headers.get("content-type", "")
        return answer.status, answer.json if answer.body and kind.startswith("application/json") else answer.body


def files_of(home: Path) -> Iterator[tuple[Path, bytes]]:
    """All that a state folder holds, while a server works there: what is removed meanwhile is left out."""
    for folder, _, names in os.walk(home):
        for path in (Path(folder, name) for name in names):
            try:
                content = path.read_bytes() if path.is_file() else None
            except FileNotFoundError:
                continue
            if content is not None:
                yield path, content


class RunningServer:
    """A server on free ports with a state folder of its own. `settings` are names without the prefix."""

    def __init__(
        self, home: Path, settings: Mapping[str, Any] | None = None, *, environment: Mapping[str, str] | None = None
    ) -> None:
        self.home = home
        self._environment = dict(environment or {})
        self._settings = {"port": 0, "tls_port": 0, "gs_in_trainers": "trainshed"} | dict(settings or {})
        self._process: subprocess.Popen[bytes] | None = None
        self.info: dict[str, Any] = {}

    def start(self) -> RunningServer:
        """Start and wait until it is ready. `RuntimeError` with the end of its log if it does not get there."""
        env = {k: v for k, v in os.environ.items() if not k.startswith("TRAINSHED_")}
        env |= {f"TRAINSHED_SERVER_{name.upper()}": str(value) for name, value in self._settings.items()}
        env |= self._environment
        self.home.mkdir(parents=True, exist_ok=True)
        with open(self.log, "ab") as log:
            command = [sys.executable, "-c", _PROGRAM, str(self.home)]
            self._process = subprocess.Popen(command, env=env, stdout=log, stderr=log, start_new_session=True)
        announcement = self.home / "server.json"
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline and self._process.poll() is None:
            if announcement.exists() and json.loads(announcement.read_text())["pid"] == self._process.pid:
                self.info = json.loads(announcement.read_text())
                # the ports stay the same over a restart, as they do for real servers
                for name, url in (("port", self.url), ("tls_port", self.tls_url)):
                    self._settings[name] = url.rpartition(":")[2]
                ask(self.url, "GET", "/healthz")  # it hears signals from then on
                return self
            time.sleep(0.02)
        raise RuntimeError(f"The server did not start:\n{self.log.read_text()[-2000:]}")

    @property
    def log(self) -> Path:
        return self.home / "server.log"

    @property
    def url(self) -> str:
        return str(self.info["url"])

    @property
    def tls_url(self) -> str:
        return str(self.info["tls_url"])

    @property
    def token(self) -> str:
        """The owner's."""
        return (self.home / "token").read_text().strip()

    @property
    def authority(self) -> Path:
        """The certificate that clients of `tls_url` must trust."""
        return self.home / "certificates" / "ca.pem"

    @property
    def pid(self) -> int:
        return int(self.info["pid"])

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """Call as the owner; the answer must be good."""
        status, answer = Caller(self.url)(method, path, token=self.token, body=body)
        assert status < 300, answer
        return answer

    def env(self) -> dict[str, str]:
        """The environment of a command line that talks to this server."""
        clean = {k: v for k, v in os.environ.items() if not k.startswith("TRAINSHED_")}
        return clean | {"TRAINSHED_HOME": str(self.home)}

    def kill(self) -> None:
        """SIGKILL: no goodbye."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """SIGTERM, and its exit status."""
        return self._end(signal.SIGTERM)

    def close(self) -> int:
        """Stop it for good, with all of its jobs. Its exit status."""
        status = self.stop()
        self.end_jobs()
        return status

    def end_jobs(self) -> None:
        """End the jobs that a server left behind, which go on without one. There must be none to start them again."""
        engine = LocalEngine(Home(self.home), uv=Path("uv"))
        attempts = [folder for folder in self.home.glob("jobs/*/*/*") if folder.is_dir()]
        for attempt in attempts:
            engine.cancel(attempt)
        wait_for(
            lambda: [path for path, seen in engine.observe(attempts).items() if seen.phase in _ALIVE],
            lambda running: not running,
            within_s=JOBS_END_S,
        )

    def _end(self, number: signal.Signals) -> int:
        process = self._process
        if process is None:
            return 0
        process.send_signal(number)
        self._process = None
        return process.wait(timeout=END_S)
