"""Small real models for tests: written, uploaded, deployed and called over plain HTTP."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

from trainshed.testing.eventually import eventually
from trainshed.testing.processes.servers import Caller, RunningServer
from trainshed.testing.workloads.submitter import wheel, wheel_name

TIMEOUT_S = 240.0
POLL_INTERVAL_S = 0.05  #: each poll is a request, which costs the server more than the time that it saves

#: A custom prediction routine: `load` and `answer` are the bodies of its two methods.
_ROUTINE = """
import ctypes, os, signal, subprocess, sys, time

class Routine:
    def __init__(self, model_dir):
        self.model_dir = model_dir

    @classmethod
    def from_path(cls, model_dir):
        {load}
        return cls(model_dir)

    def predict(self, instances, **kwargs):
        {answer}
        return instances
"""


class Deployer:
    """Deploys to one model of one project of one server, through a bucket of that project."""

    def __init__(self, server: RunningServer, project: str, scratch: Path, *, model: str = "m") -> None:
        self.server = server
        self.project = project
        self.model = model
        self.bucket = f"{project}-bucket"
        self._scratch = scratch
        server.call("POST", f"/storage/v1/b?project={project}", {"name": self.bucket})
        server.call("POST", f"/v1/projects/{project}/models", {"name": model})

    @property
    def path(self) -> str:
        return f"/v1/projects/{self.project}/models/{self.model}"

    def upload(self, name: str, data: bytes) -> str:
        target = f"/upload/storage/v1/b/{self.bucket}/o?uploadType=media&name={quote(name, safe='')}"
        self.server.call("POST", target, data)
        return f"gs://{self.bucket}/{name}"

    def upload_folder(self, folder: Path, name: str) -> str:
        for file in folder.rglob("*"):
            if file.is_file():
                self.upload(f"{name}/{file.relative_to(folder)}", file.read_bytes())
        return f"gs://{self.bucket}/{name}"

    def create(self, version: str, uri: str, **body: Any) -> dict[str, Any]:
        """Start to create a version. Returns the operation."""
        fields = {"name": version, "deploymentUri": uri, **body}
        operation: dict[str, Any] = self.server.call("POST", f"{self.path}/versions", fields)
        return operation

    def create_routine(self, version: str, *, load: str = "", answer: str = "", **body: Any) -> dict[str, Any]:
        """Start to create a version that is a custom prediction routine. Returns the operation."""
        folder = self._scratch / version / f"routine_{version}"
        folder.mkdir(parents=True)
        (folder / "__init__.py").touch()
        (folder / "routine.py").write_text(_ROUTINE.format(load=load or "pass", answer=answer or "pass"))
        package = self.upload(f"{version}/{wheel_name(folder.name)}", wheel(folder))
        uri = self.upload(f"{version}/model/weights.txt", version.encode()).rpartition("/")[0]
        fields = {"packageUris": [package], "predictionClass": f"routine_{version}.routine.Routine"}
        return self.create(version, uri, **{**fields, **body})

    def finish(self, operation: dict[str, Any], *, timeout_s: float = TIMEOUT_S) -> dict[str, Any]:
        """Wait for an operation. Returns it."""
        if operation.get("done"):
            return operation
        return eventually(
            lambda: self.server.call("GET", f"/v1/{operation['name']}"),
            lambda current: current.get("done"),
            within_s=timeout_s,
        )

    def deploy(self, version: str, uri: str, **body: Any) -> dict[str, Any]:
        """Create a version, which must succeed. Returns its details."""
        operation = self.finish(self.create(version, uri, **body))
        assert "response" in operation, operation
        return self.details(version)

    def deploy_routine(self, version: str, **options: Any) -> dict[str, Any]:
        operation = self.finish(self.create_routine(version, **options))
        assert "response" in operation, operation
        return self.details(version)

    def refused(self, operation: dict[str, Any]) -> str:
        """Wait for an operation, which must fail. Returns its error message."""
        finished = self.finish(operation)
        assert "error" in finished, finished
        return str(finished["error"]["message"])

    def get(self, version: str) -> dict[str, Any]:
        body: dict[str, Any] = self.server.call("GET", f"{self.path}/versions/{version}")
        return body

    def details(self, version: str) -> dict[str, Any]:
        body: dict[str, Any] = self.server.call("GET", f"/trainshed{self.path}/versions/{version}")
        return body

    def delete(self, version: str) -> dict[str, Any]:
        operation: dict[str, Any] = self.server.call("DELETE", f"{self.path}/versions/{version}")
        return operation

    def ask(self, version: str, *instances: Any) -> tuple[int, Any]:
        """Request a prediction. Returns status and response. An empty version is the model's default."""
        target = f"{self.path}/versions/{version}:predict" if version else f"{self.path}:predict"
        return Caller(self.server.url)("POST", target, token=self.server.token, body={"instances": list(instances)})

    def predict(self, version: str, *instances: Any) -> list[Any]:
        status, response = self.ask(version, *instances)
        assert status == 200, response
        return list(response["predictions"])

    def until_answers(self, version: str, *instances: Any, within_s: float = TIMEOUT_S) -> float:
        """Return the seconds until a prediction succeeds."""
        start = time.monotonic()
        while True:
            status, response = self.ask(version, *instances)
            elapsed = time.monotonic() - start
            if status == 200:
                return elapsed
            assert status in (503, 504), response
            assert elapsed < within_s, response
            time.sleep(POLL_INTERVAL_S)


class Callers:
    """Each thread calls `ask` with its own number, one request after the other, until `with` ends."""

    def __init__(self, ask: Callable[[int], tuple[int, Any]], count: int) -> None:
        self.statuses: Counter[int] = Counter()
        self.wrong: list[Any] = []  #: responses other than the number
        self._ask = ask
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._go_on, args=(number,)) for number in range(count)]

    def __enter__(self) -> Callers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def _go_on(self, number: int) -> None:
        while not self._stopping.is_set():
            status, response = self._ask(number)
            with self._lock:
                self.statuses[status] += 1
                if (status, response) != (200, {"predictions": [number]}):
                    self.wrong.append((status, response))
