"""What scenarios share: a server with a bucket, a trainer and a model, and what to ask of it."""

from __future__ import annotations

import base64
import hashlib
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

from trainshed.node.crashpoints import DELAY, KILL
from trainshed.testing.processes.servers import HttpAnswer, RunningServer
from trainshed.testing.reliability.crash.points import CrashingServer
from trainshed.testing.workloads.deployer import Deployer
from trainshed.testing.workloads.submitter import Submitter

PROJECT = "crashes"
BUCKET = f"{PROJECT}-bucket"
OBJECTS = f"/storage/v1/b/{BUCKET}/o"

#: Adds a line to a file when it starts, and ends when another one is there.
TRAINER = """
import os, sys, time
with open(sys.argv[1], "a") as stamps:
    stamps.write("started\\n")
while not os.path.exists(sys.argv[2]):
    time.sleep(0.01)
"""


class World(CrashingServer):
    """What scenarios share: a server, a bucket, a packed trainer and a model."""

    def __init__(self, server: RunningServer, scratch: Path) -> None:
        super().__init__(server)
        self.scratch = scratch
        server.start()
        self.jobs = Submitter(server, PROJECT, scratch)
        (scratch / "go").touch()
        self._stamps = scratch / "stamps"
        self._stamps.mkdir()
        first = self.jobs.submit("first", TRAINER, args=[str(self._stamps / "first"), str(scratch / "go")])
        self.training = first["trainingInput"]
        self.jobs.wait("first", {"SUCCEEDED"})
        self.deployer = Deployer(server, f"{PROJECT}-models", scratch / "models")
        self.deployer.deploy_routine("first")
        self.version = self.deployer.get("first")
        self.routine = {field: self.version[field] for field in ("packageUris", "predictionClass")}
        self.deployer.finish(self.deployer.delete("first"))
        server.stop()

    @property
    def may_fail(self) -> bool:
        """Whether the point makes its step fail, so that the server has a reason to refuse what was asked for."""
        return self.action not in (KILL, DELAY)

    def create_job(self, name: str, *, go: Path) -> HttpAnswer | None:
        args = [str(self._stamps / name), str(go)]
        body = {"jobId": name, "trainingInput": {**self.training, "args": args}}
        return self.try_call("POST", f"/v1/projects/{PROJECT}/jobs", body)

    def starts(self, name: str) -> int:
        path = self._stamps / name
        return path.read_text().count("\n") if path.exists() else 0

    def put(self, name: str, data: bytes) -> HttpAnswer | None:
        return self.try_call("POST", f"/upload/storage/v1/b/{BUCKET}/o?uploadType=media&name={quote(name)}", data)

    def read(self, name: str) -> bytes | None:
        """The bytes of an object, which must match its metadata. Returns None if there is none."""
        found = self.call("GET", f"{OBJECTS}/{quote(name, safe='')}?alt=media")
        info = self.call("GET", f"{OBJECTS}/{quote(name, safe='')}")
        listed = self.call("GET", f"{OBJECTS}?prefix={quote(name, safe='')}").json.get("items", [])
        assert (found.status == 200) == (info.status == 200) == ([each["name"] for each in listed] == [name])
        if found.status != 200:
            assert (found.status, info.status) == (404, 404)
            return None
        assert (
            info.json["md5Hash"] == base64.b64encode(hashlib.md5(found.body, usedforsecurity=False).digest()).decode()
        )
        return found.body

    def finish(self, operation: HttpAnswer | None) -> None:
        """Wait until a long-running operation is done or the server dies."""
        while acknowledged(operation):
            assert operation is not None
            if operation.json.get("done"):
                return
            operation = self.try_call("GET", f"/v1/{operation.json['name']}")


def acknowledged(answer: HttpAnswer | None) -> bool:
    return answer is not None and answer.status < 300


def processes_of(job: str) -> list[int]:
    """The processes that a job's environment was handed down to."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if f"TRAINSHED_JOB={job}".encode() in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
    return found
