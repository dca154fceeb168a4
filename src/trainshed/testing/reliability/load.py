"""A load on a real server: seeded client threads that create, read, change and delete resources of all kinds."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from trainshed.testing.eventually import eventually
from trainshed.testing.processes.servers import RunningServer
from trainshed.testing.reliability.clients import LoggedClient, ServerGoneError
from trainshed.testing.reliability.history import History, OperationOutcome
from trainshed.testing.reliability.models import JobSeen
from trainshed.testing.reliability.stamps import TRAINER
from trainshed.testing.workloads.submitter import wheel, wheel_name

PROJECT = "reliability"
BUCKET = "reliability-objects"
CLIENTS = 4
SHARED_NAMES = 3  #: of each kind, that all clients of a batch change at the same time
MAX_OBJECT_BYTES = 40_000
JOBS_END_TIMEOUT_S = 240.0
MAX_PAUSE_S = 0.03  #: of a client between two operations; the machine is shared
TRAINER_PACKAGE = wheel_name("trainer")


def prepare(server: RunningServer, scratch: Path) -> None:
    """Create the bucket of the load and store the trainer in it, unless both are there."""
    client = LoggedClient(0, server.url, server.token, History())
    if client.send("GET", f"/storage/v1/b/{BUCKET}").status == 404:
        server.call("POST", f"/storage/v1/b?project={PROJECT}", {"name": BUCKET})
    if client.send("GET", f"/storage/v1/b/{BUCKET}/o/{TRAINER_PACKAGE}").status == 404:
        upload_trainer(server, scratch, name=TRAINER_PACKAGE, source=TRAINER)


def upload_trainer(server: RunningServer, scratch: Path, *, name: str, source: str) -> None:
    """Store a package whose module `trainer.task` is `source` in the bucket of the load."""
    folder = scratch / "package" / "trainer"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "__init__.py").touch()
    (folder / "task.py").write_text(source)
    path = f"/upload/storage/v1/b/{BUCKET}/o?uploadType=media&name={quote(name, safe='')}"
    server.call("POST", path, wheel(folder))


def training_input(package: str, *args: str) -> dict[str, Any]:
    return {
        "region": "us-central1",
        "runtimeVersion": "python",
        "packageUris": [f"gs://{BUCKET}/{package}"],
        "pythonModule": "trainer.task",
        "args": args,
    }


class Load:
    """Client threads with resources of their own batch. The same seed and batch ask for the same things."""

    def __init__(self, server: RunningServer, stamps: Path, *, seed: int, batch: int, max_jobs: int) -> None:
        """`max_jobs` are created: each costs three processes."""
        self.history = History()
        self.tokens: dict[str, str] = {}  #: the secrets, by the ids of the tokens
        self.jobs: set[str] = set()  #: ids that a client has asked for
        self._server = server
        self._stamps = stamps
        self._batch = batch
        self._max_jobs = max_jobs
        self._up = threading.Event()
        self._end = threading.Event()
        self._failures: list[BaseException] = []
        self._sources = {f"b{batch}/source-{number}": bytes([number]) * 5000 for number in range(2)}
        self._threads = [
            threading.Thread(
                target=self._run, args=(number, random.Random(f"{seed}/{batch}/{number}")), name=f"load-{number}"
            )
            for number in range(CLIENTS)
        ]

    def start(self) -> None:
        """Start the clients. The server must run."""
        client = self._client(0)
        for name, data in self._sources.items():
            client.put_object(BUCKET, name, data)
        self._up.set()
        for thread in self._threads:
            thread.start()

    def pause(self) -> None:
        """The server is about to end: clients that miss it wait for `resume`."""
        self._up.clear()

    def resume(self) -> None:
        self._up.set()

    def stop(self) -> None:
        """End the clients. Raises what a client could not cope with."""
        self.abandon()
        if self._failures:
            raise self._failures[0]

    def abandon(self) -> None:
        """End the clients, whatever became of them."""
        self._end.set()
        self._up.set()
        for thread in self._threads:
            thread.join()

    def quiesce(self) -> dict[str, JobSeen]:
        """Wait for the end of all jobs, then read every resource once more. Returns the jobs, by their ids."""
        client = self._client(len(self._threads))
        seen: dict[str, JobSeen] = {}
        for job in sorted(self.jobs):
            value = eventually(
                lambda job=job: client.read_job(PROJECT, job).value,  # type: ignore[misc]
                lambda value: value is None or value.ended,
                within_s=JOBS_END_TIMEOUT_S,
            )
            if value is not None:
                seen[job] = value
        for key in self.history.by_key():
            kind, _, name = key.partition("/")
            if kind == "object":
                client.read_object(*name.split("/", 1))
            elif kind == "bucket":
                client.read_bucket(name)
            elif kind == "model":
                client.read_model(*name.split("/"))
            elif kind == "token":
                client.read_token(name, self.tokens[name])
        return seen

    def _client(self, number: int) -> LoggedClient:
        return LoggedClient(number, self._server.url, self._server.token, self.history)

    def _run(self, number: int, chance: random.Random) -> None:
        client = self._client(number)
        actions = self._actions(client, chance)
        names, weights = list(actions), [weight for weight, _ in actions.values()]
        try:
            while not self._end.is_set():
                self._up.wait()
                action = actions[chance.choices(names, weights)[0]][1]
                try:
                    action()
                except ServerGoneError:
                    self._end.wait(0.02)  # `pause` may come a moment later
                self._end.wait(chance.uniform(0.0, MAX_PAUSE_S))
        except BaseException as exc:
            self._failures.append(exc)
            raise

    def _actions(self, client: LoggedClient, chance: random.Random) -> Mapping[str, tuple[int, Callable[[], Any]]]:
        generations: dict[str, int] = {}

        def name() -> str:
            return f"b{self._batch}/shared-{chance.randrange(SHARED_NAMES)}"

        def put() -> None:
            client.put_object(BUCKET, name(), chance.randbytes(chance.randrange(MAX_OBJECT_BYTES)))

        def put_if() -> None:
            key = name()
            done = client.put_object(BUCKET, key, chance.randbytes(3000), if_generation=generations.get(key, 0))
            if done.outcome is OperationOutcome.OK:
                generations[key] = done.value

        def read() -> None:
            key = name()
            done = client.read_object(BUCKET, key)
            if done.outcome is OperationOutcome.OK:
                generations[key] = done.value[1] if done.value else 0

        shared = [f"b{self._batch}/shared-{number}" for number in range(SHARED_NAMES)]
        return {
            "put": (6, put),
            "put if": (4, put_if),
            "compose": (2, lambda: client.compose_object(BUCKET, name(), self._sources)),
            "read": (8, read),
            "list": (4, lambda: client.list_objects(BUCKET, f"b{self._batch}/", shared)),
            "delete": (3, lambda: client.delete_object(BUCKET, name())),
            "bucket": (3, lambda: self._change_bucket(client, chance)),
            "model": (4, lambda: self._change_model(client, chance)),
            "token": (2, lambda: self._use_token(client, chance)),
            "job": (1, lambda: self._create_job(client, chance)),
            "job read": (6, lambda: self._read_job(client, chance)),
            "cancel": (1, lambda: self._cancel_job(client, chance)),
        }

    def _change_bucket(self, client: LoggedClient, chance: random.Random) -> None:
        bucket = f"reliability-{self._batch}-{chance.randrange(SHARED_NAMES)}"
        match chance.randrange(3):
            case 0:
                client.create_bucket(PROJECT, bucket)
            case 1:
                client.delete_bucket(bucket)
            case _:
                client.read_bucket(bucket)

    def _change_model(self, client: LoggedClient, chance: random.Random) -> None:
        model = f"model_{self._batch}_{chance.randrange(SHARED_NAMES)}"
        match chance.randrange(3):
            case 0:
                client.create_model(PROJECT, model, f"written by {client.number}: {chance.randrange(10**9)}")
            case 1:
                client.delete_model(PROJECT, model)
            case _:
                client.read_model(PROJECT, model)

    def _use_token(self, client: LoggedClient, chance: random.Random) -> None:
        made = client.create_token(f"user-{client.number}")
        if made is None:
            return
        self.tokens[made[0]] = made[1]
        client.read_token(*made)
        if chance.random() < 0.5:
            client.revoke_token(made[0])
        client.read_token(*made)

    def _create_job(self, client: LoggedClient, chance: random.Random) -> None:
        if len(self.jobs) >= self._max_jobs:
            return
        job = f"job_{self._batch}_{chance.randrange(3 * self._max_jobs)}"  # two clients take one name now and then
        self.jobs.add(job)
        training = training_input(TRAINER_PACKAGE, str(self._stamps), f"{chance.uniform(0.0, 0.8):.2f}")
        client.create_job(PROJECT, job, training)

    def _read_job(self, client: LoggedClient, chance: random.Random) -> None:
        if self.jobs:
            client.read_job(PROJECT, chance.choice(sorted(self.jobs)))

    def _cancel_job(self, client: LoggedClient, chance: random.Random) -> None:
        if self.jobs:
            client.cancel_job(PROJECT, chance.choice(sorted(self.jobs)))
