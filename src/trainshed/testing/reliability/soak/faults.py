"""Faults that a server must bear without a restart. Each strikes once, and repairs what it broke."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import sqlite3
import struct
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import urlsplit

import psutil

from trainshed.config import Home
from trainshed.testing.eventually import eventually
from trainshed.testing.processes.servers import RunningServer
from trainshed.testing.reliability.fuzz.generator import RequestGenerator
from trainshed.testing.reliability.fuzz.routes import served_operations
from trainshed.testing.reliability.fuzz.wire import WireClient, response_faults
from trainshed.testing.reliability.load import BUCKET, PROJECT, TRAINER_PACKAGE, training_input
from trainshed.testing.reliability.stamps import read_lives, supervisor_pid

VICTIM_S = 8.0  #: that a trainer runs unless it is killed
MAX_LOCK_S = 3.0
MAX_PAUSE_S = 3.0
SOCKETS = 100
CUT_UPLOADS = 20
READS = 100
_VICTIM_TIMEOUT_S = 120.0
_RESET = struct.pack("ii", 1, 0)  #: SO_LINGER: close with a reset


class SoakFaults:
    """The faults of one batch, on one server."""

    def __init__(self, server: RunningServer, stamps: Path, chance: random.Random, *, batch: int) -> None:
        self.victims: list[str] = []  #: jobs of which a process was killed
        self.errors: list[str] = []  #: responses that are the server's own fault
        self._server = server
        self._stamps = stamps
        self._chance = chance
        self._batch = batch
        self.strikes: Mapping[str, Callable[[], None]] = {
            "supervisor": self._kill_supervisor,
            "trainer": self._kill_trainer,
            "lock": self._lock_database,
            "pause": self._pause_server,
            "uploads": self._cut_uploads,
            "sockets": self._open_sockets,
            "reads": self._send_reads,
        }

    def end_victims(self) -> None:
        """Wait for the ends of the jobs of which a process was killed."""
        for job in self.victims:
            path = f"/v1/projects/{PROJECT}/jobs/{job}"
            eventually(
                lambda path=path: self._server.call("GET", path),  # type: ignore[misc]
                lambda body: "endTime" in body,
                within_s=_VICTIM_TIMEOUT_S,
            )

    def _victim(self) -> tuple[Path, int]:
        """Start a job. Returns the folder of its attempt, and the pid of its trainer."""
        job = f"victim_{self._batch}_{len(self.victims)}"
        self.victims.append(job)
        training = training_input(TRAINER_PACKAGE, str(self._stamps), f"{VICTIM_S}")
        self._server.call("POST", f"/v1/projects/{PROJECT}/jobs", {"jobId": job, "trainingInput": training})
        life = eventually(
            lambda: next((each for each in read_lives(self._stamps) if each.job == job), None),
            within_s=_VICTIM_TIMEOUT_S,
        )
        assert life is not None
        return self._server.home / "jobs" / PROJECT / job / life.attempt, life.pid

    def _kill_supervisor(self) -> None:
        folder, _ = self._victim()
        pid = supervisor_pid(folder)
        if pid is not None:
            _kill(pid, folder)

    def _kill_trainer(self) -> None:
        folder, pid = self._victim()
        _kill(pid, folder)

    def _lock_database(self) -> None:
        """Hold the write lock, as a backup by another program does."""
        with contextlib.closing(sqlite3.connect(Home(self._server.home).database, timeout=60)) as database:
            database.execute("BEGIN IMMEDIATE")
            time.sleep(self._chance.uniform(0.1, MAX_LOCK_S))
            database.rollback()

    def _pause_server(self) -> None:
        os.kill(self._server.pid, signal.SIGSTOP)
        try:
            time.sleep(self._chance.uniform(0.1, MAX_PAUSE_S))
        finally:
            os.kill(self._server.pid, signal.SIGCONT)

    def _connect(self) -> socket.socket:
        address = urlsplit(self._server.url)
        return socket.create_connection((str(address.hostname), int(address.port or 0)), timeout=60)

    def _cut_uploads(self) -> None:
        """Reset uploads in the middle of their bodies."""
        for number in range(CUT_UPLOADS):
            head = (
                f"POST /upload/storage/v1/b/{BUCKET}/o?uploadType=media&name=cut-{number} HTTP/1.1\r\n"
                f"host: localhost\r\nauthorization: Bearer {self._server.token}\r\ncontent-length: 1000000\r\n\r\n"
            )
            with self._connect() as client:
                client.sendall(head.encode() + bytes(self._chance.randrange(100_000)))
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)

    def _open_sockets(self) -> None:
        """Hold connections with half a head."""
        with contextlib.ExitStack() as stack:
            for _ in range(SOCKETS):
                client = stack.enter_context(self._connect())
                with contextlib.suppress(ConnectionError):  # the server closes the oldest ones when it is full
                    client.sendall(b"GET /healthz HTTP/1.1\r\nho")
            time.sleep(1.0)

    def _send_reads(self) -> None:
        """Send generated requests that change nothing."""
        reads = [each for each in served_operations(self._server) if each.method == "GET"]
        generator = RequestGenerator(reads, f"{self._batch}/{self._chance.random()}")
        with contextlib.closing(WireClient(self._server.url, self._server.token)) as client:
            for _ in range(READS):
                request = generator.next()
                self.errors += [f"{request}\n    {each}" for each in response_faults(request, client.send(request), [])]


def _kill(pid: int, folder: Path) -> None:
    """Kill a process, unless the pid is a stranger's by now."""
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        if str(folder) in " ".join([*process.cmdline(), *process.environ().values()]):
            process.kill()
