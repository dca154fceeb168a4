"""Small real trainers for tests: written, packed, uploaded, submitted and waited for over plain HTTP."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from trainshed.domain.jobs.states import TERMINAL_STATES
from trainshed.testing.eventually import eventually
from trainshed.testing.processes.servers import RunningServer

TIMEOUT_S = 240.0
VERSION = "0.0.0"
#: Prints a numbered line every 50 ms until the file exists that its argument names.
COUNT_UNTIL = """
import itertools, os, sys, time
for number in itertools.count():
    print("line", number, flush=True)
    time.sleep(0.05)
    if os.path.exists(sys.argv[1]):
        print("the last one was", number, flush=True)
        break
"""


def wheel_name(package: str) -> str:
    return f"{package}-{VERSION}-py3-none-any.whl"


def wheel(folder: Path, *, requires: Collection[str] = ()) -> bytes:
    """Return the wheel of the package whose modules are in `folder` and which has its name.

    uv unpacks a wheel in milliseconds; for a source archive it starts setuptools.
    """
    info = f"{folder.name}-{VERSION}.dist-info"
    needs = "".join(f"Requires-Dist: {requirement}\n" for requirement in requires)
    files = {file.relative_to(folder.parent).as_posix(): file.read_bytes() for file in sorted(folder.rglob("*.py"))}
    files[f"{info}/METADATA"] = f"Metadata-Version: 2.1\nName: {folder.name}\nVersion: {VERSION}\n{needs}".encode()
    files[f"{info}/WHEEL"] = b"Wheel-Version: 1.0\nGenerator: trainshed\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    files[f"{info}/RECORD"] = "".join(f"{name},,\n" for name in (*files, f"{info}/RECORD")).encode()
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, data in files.items():
            archive.writestr(zipfile.ZipInfo(name), data)  # without a time: the same source is installed once
    return content.getvalue()


PACKAGE = wheel_name("trainer")  #: in the folder of each job


class Submitter:
    """Submits trainers of a few lines to one project of one server.

    It uses a bucket of that project: a new one, unless `bucket` names one that exists.
    """

    def __init__(self, server: RunningServer, project: str, scratch: Path, *, bucket: str = "") -> None:
        self.server = server
        self.project = project
        self.bucket = bucket or f"{project.rpartition(':')[2]}-bucket"
        self.labels: Mapping[str, str] = {}  #: of the jobs to come
        self._scratch = scratch
        if not bucket:
            server.call("POST", f"/storage/v1/b?project={project}", {"name": self.bucket})

    def submit(
        self, job: str, source: str, *, args: Collection[str] = (), requires: Collection[str] = (), **training: Any
    ) -> dict[str, Any]:
        """Submit a job whose module `trainer.task` is `source`. `training` adds to its trainingInput."""
        folder = self._scratch / job / "trainer"
        folder.mkdir(parents=True)
        (folder / "__init__.py").touch()
        (folder / "task.py").write_text(source)
        package = folder.parent / PACKAGE
        package.write_bytes(wheel(folder, requires=requires))
        uri = self.upload(package, f"{job}/{PACKAGE}")
        defaults: Mapping[str, Any] = {
            "region": "us-central1",
            "runtimeVersion": "python",
            "packageUris": [uri],
            "pythonModule": "trainer.task",
            "args": list(args),
        }
        body = {"jobId": job, "labels": self.labels, "trainingInput": {**defaults, **training}}
        created: dict[str, Any] = self.server.call("POST", f"/v1/projects/{self.project}/jobs", body)
        return created

    def upload(self, path: Path, name: str) -> str:
        target = f"/upload/storage/v1/b/{self.bucket}/o?uploadType=media&name={quote(name, safe='')}"
        self.server.call("POST", target, path.read_bytes())
        return f"gs://{self.bucket}/{name}"

    def get(self, job: str) -> dict[str, Any]:
        body: dict[str, Any] = self.server.call("GET", f"/v1/projects/{self.project}/jobs/{job}")
        return body

    def wait(
        self, job: str, states: Collection[str] = TERMINAL_STATES, *, timeout_s: float = TIMEOUT_S
    ) -> dict[str, Any]:
        """Wait until the job is in one of these states. Returns it."""
        ends = {*states, *TERMINAL_STATES}
        body = eventually(lambda: self.get(job), lambda body: body["state"] in ends, within_s=timeout_s)
        assert body["state"] in states, f"Job {job} is {body['state']}, not {sorted(states)}: {body}"
        return body

    def lines(self, job: str) -> list[str]:
        """Return every message in its log so far."""
        response = self.server.call("GET", f"/trainshed/v1/projects/{self.project}/jobs/{job}/logs")
        return [entry["message"] for entry in response["entries"]]

    def attempt(self, job: str) -> Path:
        return self.server.home / "jobs" / self.project / job / "1"
