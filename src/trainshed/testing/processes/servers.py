"""A real server in its own process, for tests: started, killed, started again."""

from __future__ import annotations

import contextlib
import http.client
import json
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from trainshed.config import Home
from trainshed.domain.jobs.reconcile import AttemptPhase
from trainshed.engines.local.engine import LocalEngine
from trainshed.node import crashpoints
from trainshed.testing.answers import FAULTS
from trainshed.testing.eventually import eventually
from trainshed.testing.processes import server_process

START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 120.0
JOBS_END_TIMEOUT_S = 120.0
_LIVE_PHASES = (AttemptPhase.PREPARING, AttemptPhase.RUNNING)

#: Forks servers from a process that has imported all of it: a start costs a third of the CPU time.
_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload([server_process.__name__])


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """A whole response. The names of its headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def ask(url: str, method: str, path: str, *, body: Any = None, headers: Mapping[str, str] | None = None) -> HttpAnswer:
    """Send one request, on its own connection: `body` unchanged if it is bytes, else as JSON."""
    data = body if body is None or isinstance(body, bytes) else json.dumps(body)
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)
    try:
        connection.request(method, path, data, dict(headers or {}))
        response = connection.getresponse()
        return HttpAnswer(
            response.status, {name.lower(): value for name, value in response.getheaders()}, response.read()
        )
    finally:
        connection.close()


class Caller:
    """Plain HTTP, so that nothing comes between a test and the response."""

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
        """Send `body` (bytes unchanged, else as JSON). Returns the status and the response (JSON parsed)."""
        all_headers = dict(headers or {})
        if token is not None:
            all_headers["authorization"] = f"Bearer {token}"
        response = ask(self._url, method, path, body=body, headers=all_headers)
        kind = response.headers.get("content-type", "")
        return response.status, response.json if response.body and kind.startswith(
            "application/json"
        ) else response.body


def files_of(home: Path) -> Iterator[tuple[Path, bytes]]:
    """Yield all files of a state folder while a server uses it. Files that are removed meanwhile are left out."""
    for folder, _, names in os.walk(home):
        for path in (Path(folder, name) for name in names):
            try:
                content = path.read_bytes() if path.is_file() else None
            except FileNotFoundError:
                continue
            if content is not None:
                yield path, content


@contextlib.contextmanager
def stand_in(url: str) -> Iterator[socket.socket]:
    """Listen in place of a killed server, to see that a client asks for it. Nothing responds."""
    address = urlsplit(url)
    with socket.create_server((str(address.hostname), int(address.port or 0))) as listener:
        listener.settimeout(START_TIMEOUT_S)
        yield listener


class _ForkedServer:
    """A server that was forked. Has the methods of `subprocess.Popen` that `RunningServer` needs."""

    def __init__(self, home: Path, environment: Mapping[str, str], log: Path) -> None:
        self._process = _FORKS.Process(
            target=server_process.serve_forked, args=(home, dict(environment), log), daemon=True
        )
        self._process.start()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def poll(self) -> int | None:
        return self._process.exitcode

    def send_signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def wait(self, timeout: float) -> int:
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired("a forked server", timeout)
        return self._process.exitcode


class RunningServer:
    """A server on free ports with its own state folder. `settings` are names without the prefix.

    Its user code is in no sandbox, unless a setting asks for one: many tests exchange files with them.

    With an `environment`, it is a process of its own: variables may be read when a module is imported.
    """

    defaults: Mapping[str, Any] = {
        "port": 0,
        "tls_port": 0,
        "gs_in_trainers": "trainshed",
        "sandbox": "none",
        "public_data": False,  # no test asks for anything outside this machine
    }
    crash_at = ""  #: the crash point of the next start, as `TRAINSHED_CRASH_AT` has it; its hits go to `hits`

    def __init__(
        self, home: Path, settings: Mapping[str, Any] | None = None, *, environment: Mapping[str, str] | None = None
    ) -> None:
        self.home = home
        self._environment = dict(environment or {})
        self._settings = {**self.defaults, **(settings or {})}
        self._process: subprocess.Popen[bytes] | _ForkedServer | None = None
        self.info: dict[str, Any] = {}

    def start(self) -> RunningServer:
        """Start it and wait until it is ready. Raises `RuntimeError`, with the end of its log, if it does not start."""
        env = {k: v for k, v in os.environ.items() if not k.startswith("TRAINSHED_")}
        env |= {f"TRAINSHED_SERVER_{name.upper()}": str(value) for name, value in self._settings.items()}
        if self.crash_at:
            env |= {crashpoints.VARIABLE: self.crash_at, crashpoints.HITS_VARIABLE: str(self.hits)}
        self.home.mkdir(parents=True, exist_ok=True)
        self._process = self._launch(env)
        announcement = self.home / "server.json"
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline and self._process.poll() is None:
            if announcement.exists() and json.loads(announcement.read_text())["pid"] == self._process.pid:
                self.info = json.loads(announcement.read_text())
                # the ports stay the same over a restart, as with a real server
                for name, url in (("port", self.url), ("tls_port", self.tls_url)):
                    self._settings[name] = url.rpartition(":")[2]
                ask(self.url, "GET", "/healthz")  # from then on it handles signals
                return self
            time.sleep(0.02)
        raise RuntimeError(f"The server did not start:\n{self.log.read_text()[-2000:]}")

    def _launch(self, env: Mapping[str, str]) -> subprocess.Popen[bytes] | _ForkedServer:
        if not self._environment:
            return _ForkedServer(self.home, env, self.log)
        return self._run([sys.executable, "-m", server_process.__name__, str(self.home)], {**env, **self._environment})

    def _run(self, command: Sequence[str], env: Mapping[str, str]) -> subprocess.Popen[bytes]:
        with open(self.log, "ab") as log:
            return subprocess.Popen(command, env=env, stdout=log, stderr=log, start_new_session=True)

    @property
    def hits(self) -> Path:
        return self.home.with_name(f"{self.home.name}.hits")

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
        """The owner's token."""
        return (self.home / "token").read_text().strip()

    @property
    def authority(self) -> Path:
        """The certificate that clients of `tls_url` must trust."""
        return self.home / "certificates" / "ca.pem"

    @property
    def pid(self) -> int:
        return int(self.info["pid"])

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """Send a request as the owner, which must succeed. Returns the response."""
        status, response = Caller(self.url)(method, path, token=self.token, body=body)
        assert status < 300, response
        return response

    def env(self) -> dict[str, str]:
        """Return the environment of a command line that uses this server."""
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("TRAINSHED_")}
        return inherited | {"TRAINSHED_HOME": str(self.home)}

    def kill(self) -> None:
        """Send SIGKILL and wait for the exit."""
        self._end(signal.SIGKILL)

    def wait(self) -> int:
        """Wait until it exits by itself. Returns the exit status, negative for a signal."""
        process, self._process = self._process, None
        assert process is not None
        return process.wait(timeout=STOP_TIMEOUT_S)

    def stop(self) -> int:
        """Send SIGTERM. Returns the exit status."""
        return self._end(signal.SIGTERM)

    def close(self) -> int:
        """Stop it, with all of its jobs. Returns the exit status."""
        status = self.stop()
        self.end_jobs()
        return status

    def end_jobs(self) -> None:
        """End the jobs that a stopped server left running. No server may run that starts them again."""
        engine = LocalEngine(Home(self.home), uv=Path("uv"))
        attempts = [folder for folder in self.home.glob("jobs/*/*/*") if folder.is_dir()]
        for attempt in attempts:
            engine.cancel(attempt)
        eventually(
            lambda: [path for path, status in engine.observe(attempts).items() if status.phase in _LIVE_PHASES],
            lambda running: not running,
            within_s=JOBS_END_TIMEOUT_S,
        )

    def _end(self, number: signal.Signals) -> int:
        process = self._process
        if process is None:
            return 0
        process.send_signal(number)
        self._process = None
        status = process.wait(timeout=STOP_TIMEOUT_S)
        faults = self.home / FAULTS
        assert not faults.exists(), faults.read_text()
        return status


class MeasuredServer(RunningServer):
    """A server as users start it, for benchmarks: a new interpreter, a sandbox, and answers that nobody checks."""

    defaults: Mapping[str, Any] = {"port": 0, "tls_port": 0, "gs_in_trainers": "trainshed"}

    def _launch(self, env: Mapping[str, str]) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "trainshed.cli", "serve"]
        return self._run(command, {**env, **self._environment, "TRAINSHED_HOME": str(self.home)})
