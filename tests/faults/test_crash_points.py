"""A process is killed at every named step of every state transition, and the next one goes on.

What was acknowledged is there; what was not is absent or whole; each attempt starts once; nothing is left behind.
"""

from __future__ import annotations

import base64
import hashlib
import http.client
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from urllib.parse import quote, urlsplit

import pytest
import sqlalchemy as sa

from trainshed.backup.archive import write_backup
from trainshed.backup.restore import finish_restore, restore
from trainshed.config import Home
from trainshed.node.crashpoints import KILL, VARIABLE
from trainshed.state_lock import hold_lock
from trainshed.store.database import LATEST_SCHEMA, Database
from trainshed.store.projects import ProjectStore
from trainshed.testing import cache
from trainshed.testing.eventually import eventually
from trainshed.testing.processes.servers import HttpAnswer, RunningServer
from trainshed.testing.reliability.crash_points import CrashingServer, Scenario, point_names
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
        assert info.json["md5Hash"] == base64.b64encode(hashlib.md5(found.body).digest()).decode()
        return found.body


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


def job_scenario(world: World, name: str, *, go: Path | None = None) -> Scenario:
    """A job that runs until after the crash, or until a file is there."""
    enough = go or world.scratch / f"{name}.go"
    created = acknowledged(world.create_job(name, go=enough))
    yield
    enough.touch()
    if not created and world.call("GET", f"/v1/projects/{PROJECT}/jobs/{name}").status == 404:
        assert world.starts(name) == 0
        assert acknowledged(world.create_job(name, go=enough))
    done = world.jobs.wait(name, {"SUCCEEDED"})
    assert world.starts(name) == 1
    again = world.create_job(name, go=enough)
    assert again is not None
    assert again.status == 409
    assert world.jobs.get(name) == done


def ended_job_scenario(world: World, name: str) -> Scenario:
    """A job that ends before the crash."""
    return job_scenario(world, name, go=world.scratch / "go")


def lost_job_scenario(world: World, name: str) -> Scenario:
    """The supervisor is what dies."""
    created = world.create_job(name, go=world.scratch / "never")
    assert acknowledged(created)
    yield
    failed = world.jobs.wait(name, {"FAILED"})
    assert failed["errorMessage"]
    assert world.starts(name) <= 1
    assert world.jobs.get(name) == failed
    assert processes_of(name) == []


def cancel_scenario(world: World, name: str) -> Scenario:
    assert acknowledged(world.create_job(name, go=world.scratch / "never"))
    world.jobs.wait(name, {"RUNNING"})
    cancelled = acknowledged(world.try_call("POST", f"/v1/projects/{PROJECT}/jobs/{name}:cancel", {}))
    yield
    if not cancelled:
        again = world.call("POST", f"/v1/projects/{PROJECT}/jobs/{name}:cancel", {})
        assert again.status in (200, 400), again.body
    world.jobs.wait(name, {"CANCELLED"})
    assert world.starts(name) == 1
    assert processes_of(name) == []


def put_scenario(world: World, name: str) -> Scenario:
    assert acknowledged(world.put(name, b"old"))
    stored = acknowledged(world.put(name, b"newer"))
    yield
    assert world.read(name) in ((b"newer",) if stored else (b"old", b"newer"))


def patch_scenario(world: World, name: str) -> Scenario:
    assert acknowledged(world.put(name, b"data"))
    changed = acknowledged(world.try_call("PATCH", f"{OBJECTS}/{name}", {"metadata": {"a": "b"}}))
    yield
    assert world.read(name) == b"data"
    found = world.call("GET", f"{OBJECTS}/{name}").json.get("metadata")
    assert found in (({"a": "b"},) if changed else (None, {"a": "b"}))


def delete_scenario(world: World, name: str) -> Scenario:
    assert acknowledged(world.put(name, b"data"))
    deleted = acknowledged(world.try_call("DELETE", f"{OBJECTS}/{name}"))
    yield
    assert world.read(name) in ((None,) if deleted else (None, b"data"))


def compose_scenario(world: World, name: str) -> Scenario:
    assert acknowledged(world.put(f"{name}.1", b"one"))
    assert acknowledged(world.put(f"{name}.2", b"two"))
    body = {"sourceObjects": [{"name": f"{name}.1"}, {"name": f"{name}.2"}]}
    made = acknowledged(world.try_call("POST", f"{OBJECTS}/{name}-whole/compose", body))
    yield
    assert world.read(f"{name}-whole") in ((b"onetwo",) if made else (None, b"onetwo"))


def rewrite_scenario(world: World, name: str) -> Scenario:
    assert acknowledged(world.put(name, b"data"))
    made = acknowledged(world.try_call("POST", f"{OBJECTS}/{name}/rewriteTo/b/{BUCKET}/o/{name}-copy", {}))
    yield
    assert world.read(f"{name}-copy") in ((b"data",) if made else (None, b"data"))


def move_scenario(world: World, name: str) -> Scenario:
    assert acknowledged(world.put(f"{name}.from", b"data"))
    moved = acknowledged(world.try_call("POST", f"{OBJECTS}/{name}.from/moveTo/o/{name}.to"))
    yield
    found = (world.read(f"{name}.from"), world.read(f"{name}.to"))
    assert found in (((None, b"data"),) if moved else ((b"data", None), (b"data", b"data"), (None, b"data")))


CHUNK = os.urandom(256 << 10)


def upload_scenario(world: World, name: str) -> Scenario:
    """A resumable upload of two chunks, which goes on from what the next server has of it."""
    begin = f"/upload/storage/v1/b/{BUCKET}/o?uploadType=resumable&name={name}"
    begun = world.try_call("POST", begin, {})
    session, size = "", 2 * len(CHUNK)
    if acknowledged(begun):
        assert begun is not None
        location = urlsplit(begun.headers["location"])
        session = f"{location.path}?{location.query}"
        first = {"content-range": f"bytes 0-{len(CHUNK) - 1}/{size}"}
        last = {"content-range": f"bytes {len(CHUNK)}-{size - 1}/{size}"}
        sent = world.try_call("PUT", session, CHUNK, first)
        done = acknowledged(world.try_call("PUT", session, CHUNK, last)) if sent is not None else False
    yield
    if not session:
        return
    asked = world.call("PUT", session, b"", {"content-range": f"bytes */{size}"})
    if asked.status == 308:
        assert not done
        have = int(asked.headers["range"].rpartition("-")[2]) + 1 if "range" in asked.headers else 0
        assert have >= (len(CHUNK) if sent is not None else 0)
        rest = {"content-range": f"bytes {have}-{size - 1}/{size}"}
        assert acknowledged(world.call("PUT", session, (CHUNK + CHUNK)[have:], rest))
    else:
        assert asked.status == 200
    assert world.read(name) == CHUNK + CHUNK


def bucket_scenario(world: World, name: str) -> Scenario:
    bucket = name.replace("_", "-").replace(".", "-")
    made = acknowledged(world.try_call("POST", f"/storage/v1/b?project={PROJECT}", {"name": bucket}))
    deleted = made and acknowledged(world.try_call("DELETE", f"/storage/v1/b/{bucket}"))
    yield
    status = world.call("GET", f"/storage/v1/b/{bucket}").status
    assert status in ((404,) if deleted else (200, 404))
    if status == 404:
        assert acknowledged(world.call("POST", f"/storage/v1/b?project={PROJECT}", {"name": bucket}))
    upload = f"/upload/storage/v1/b/{bucket}/o?uploadType=media&name=a"
    assert acknowledged(world.call("POST", upload, b"data"))
    assert acknowledged(world.call("DELETE", f"/storage/v1/b/{bucket}/o/a"))
    assert acknowledged(world.call("DELETE", f"/storage/v1/b/{bucket}"))


def token_scenario(world: World, name: str) -> Scenario:
    made = world.try_call("POST", "/trainshed/v1/tokens", {"user": name, "project": PROJECT, "role": "editor"})
    revoked = False
    if acknowledged(made):
        assert made is not None
        revoked = acknowledged(world.try_call("POST", f"/trainshed/v1/tokens/{made.json['id']}:revoke", {}))
    yield
    listed = [each for each in world.call("GET", "/trainshed/v1/tokens").json["tokens"] if each["user"] == name]
    assert len(listed) <= 1
    if acknowledged(made):
        assert made is not None
        assert [each["id"] for each in listed] == [made.json["id"]]
        answer = world.call(
            "GET", f"/v1/projects/{PROJECT}/jobs", headers={"authorization": f"Bearer {made.json['token']}"}
        )
        assert answer.status in ((401,) if revoked else (200, 401))


def model_scenario(world: World, name: str) -> Scenario:
    path = f"/v1/projects/{PROJECT}/models"
    model = name.replace(".", "_")
    made = acknowledged(world.try_call("POST", path, {"name": model}))
    deleted = made and acknowledged(world.try_call("DELETE", f"{path}/{model}"))
    yield
    status = world.call("GET", f"{path}/{model}").status
    assert status in ((404,) if deleted else (200, 404))
    if status == 404:
        assert acknowledged(world.call("POST", path, {"name": model}))
    assert acknowledged(world.call("DELETE", f"{path}/{model}"))


def version_scenario(world: World, name: str) -> Scenario:
    """A version is created, made the default and deleted, as far as it goes."""
    deployer, done = world.deployer, set()
    path = f"{deployer.path}/versions/{name}"
    with suppress(OSError, http.client.HTTPException):
        created = deployer.create(name, world.version["deploymentUri"], **world.routine)
        done.add("create")
        deployer.finish(created)
        deployer.server.call("POST", f"{path}:setDefault", {})
        deleted = deployer.delete(name)
        done.add("delete")
        deployer.finish(deleted)
    yield
    found = world.call("GET", path).status
    if "delete" in done:
        eventually(lambda: world.call("GET", path).status, (404).__eq__)
    elif "create" in done or found == 200:
        eventually(lambda: deployer.get(name)["state"], "READY".__eq__)
        deployer.until_answers(name, 1)
        assert deployer.predict("", 1) == [1]
        assert "response" in deployer.finish(deployer.delete(name))
    hosts = world.server.home / "hosts" / deployer.project / "m" / name
    files = world.server.home / "models" / deployer.project
    eventually(lambda: hosts.exists() or files.exists(), False.__eq__)


#: For each point, what passes it, and at which pass it acts: scenarios pass some while they prepare.
IN_THE_SERVER: dict[str, tuple[Callable[[World, str], Scenario], int]] = {
    "job.create.before_commit": (job_scenario, 1),
    "job.create.after_commit": (job_scenario, 1),
    "job.admit.before_write": (job_scenario, 1),
    "job.admit.after_write": (job_scenario, 1),
    "attempt.spec.written": (job_scenario, 1),
    "job.launch.before": (job_scenario, 1),
    "job.launch.after": (job_scenario, 1),
    "job.running.before_write": (job_scenario, 1),
    "job.running.after_write": (job_scenario, 1),
    "job.end.before_write": (ended_job_scenario, 1),
    "job.end.after_write": (ended_job_scenario, 1),
    "job.cancel.before_commit": (cancel_scenario, 1),
    "job.cancel.after_commit": (cancel_scenario, 1),
    "object.put.staged": (put_scenario, 2),
    "object.put.synced": (put_scenario, 2),
    "object.put.renamed": (put_scenario, 2),
    "object.put.done": (put_scenario, 2),
    "object.patch.before": (patch_scenario, 1),
    "object.patch.written": (patch_scenario, 1),
    "object.delete.before": (delete_scenario, 1),
    "object.delete.unlinked": (delete_scenario, 1),
    "object.delete.synced": (delete_scenario, 1),
    "object.compose.staged": (compose_scenario, 1),
    "object.rewrite.staged": (rewrite_scenario, 1),
    "object.move.copied": (move_scenario, 1),
    "upload.begin.data_written": (upload_scenario, 1),
    "upload.begin.recorded": (upload_scenario, 1),
    "upload.chunk.received": (upload_scenario, 1),
    "upload.chunk.synced": (upload_scenario, 1),
    "upload.finish.committed": (upload_scenario, 1),
    "bucket.create.folder_made": (bucket_scenario, 1),
    "bucket.create.recorded": (bucket_scenario, 1),
    "bucket.delete.before": (bucket_scenario, 1),
    "bucket.delete.forgotten": (bucket_scenario, 1),
    "bucket.delete.moved": (bucket_scenario, 1),
    "token.create.before_commit": (token_scenario, 1),
    "token.create.after_commit": (token_scenario, 1),
    "token.revoke.before_commit": (token_scenario, 1),
    "token.revoke.after_commit": (token_scenario, 1),
    "model.create.after_commit": (model_scenario, 1),
    "model.delete.before_commit": (model_scenario, 1),
}
#: The first passes are of the start of the supervisor; the process that acts must be one that runs the job.
IN_THE_SUPERVISOR = {
    "journal.append.before": 3,
    "journal.append.after": 3,
    "replica.start.before": 1,
    "replica.start.after": 1,
}
OF_VERSIONS = {
    "version.create.before_commit",
    "version.create.after_commit",
    "version.provision.files_copied",
    "version.provision.prepared",
    "version.provision.host_ready",
    "version.ready.published",
    "version.ready.recorded",
    "model.change.before_commit",
    "model.change.after_commit",
    "version.delete.drained",
    "version.delete.folder_removed",
    "version.delete.files_removed",
    "version.delete.row_removed",
}
OF_COMMANDS = {"backup.written", "restore.staged", "restore.planned", "restore.moved", "restore.finished"}
OF_MIGRATIONS = {"database.migrate.before_commit"}


def test_every_point_is_passed_by_a_test() -> None:
    known = {*IN_THE_SERVER, *IN_THE_SUPERVISOR, *OF_VERSIONS, *OF_COMMANDS, *OF_MIGRATIONS}
    assert sorted(known ^ set(point_names())) == []


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("crashes")
    made = World(RunningServer(cache.link_runtimes(folder / "home")), folder)
    yield made
    made.server.end_jobs()


def check_quiet(server: RunningServer) -> None:
    """Nothing that an interrupted step left is there any more. Sessions of uploads that nobody ended stay."""
    left = [path for path in (server.home / "uploads").iterdir() if path.name.startswith(("put-", "gone-"))]
    assert left == []
    with closing(sqlite3.connect(server.home / "state.db")) as connection:
        assert connection.execute("pragma integrity_check").fetchall() == [("ok",)]


@pytest.mark.fault("F41")
@pytest.mark.parametrize("point", IN_THE_SERVER)
def test_a_server_that_is_killed_at(world: World, point: str) -> None:
    scenario, at = IN_THE_SERVER[point]
    world.start(point, at)
    go_through(world, point, scenario, died=True)


def go_through(world: World, point: str, scenario: Callable[[World, str], Scenario], *, died: bool) -> None:
    """Run a scenario on a server that was started with the point. With `died`, the server is what dies there."""
    try:
        running = scenario(world, point.replace(".", "_"))
        next(running)
        world.await_hit(point)
        world.restart(died=died)
        assert next(running, "checked") == "checked"
        check_quiet(world.server)
    finally:
        world.server.kill()


@pytest.mark.parametrize("point", IN_THE_SUPERVISOR)
def test_a_supervisor_that_is_killed_at(world: World, point: str) -> None:
    world.start(point, IN_THE_SUPERVISOR[point])
    go_through(world, point, lost_job_scenario, died=False)


@pytest.mark.parametrize("point", sorted(OF_VERSIONS))
def test_a_server_that_is_killed_while_it_deploys_at(world: World, point: str) -> None:
    world.start(point)
    go_through(world, point, version_scenario, died=True)


def run_killed(point: str, code: str, *words: object) -> None:
    """Run code in a process of its own that is killed at a point."""
    env = os.environ | {VARIABLE: f"{point}:{KILL}:1"}
    done = subprocess.run([sys.executable, "-c", code, *map(str, words)], env=env, capture_output=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr


MIGRATE = """
import sys
from pathlib import Path
from trainshed.store import database
scripts = database._migrations()[: int(sys.argv[2])]
database._migrations = lambda: scripts
opened = database.Database(Path(sys.argv[1]))
opened.migrate()
opened.close()
"""


def test_a_migration_that_is_killed_leaves_the_old_database(tmp_path: Path) -> None:
    path, latest = tmp_path / "state.db", LATEST_SCHEMA
    subprocess.run([sys.executable, "-c", MIGRATE, str(path), "1"], check=True)
    run_killed("database.migrate.before_commit", MIGRATE, path, latest)
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("select max(version) from trainshed_schema").fetchall() == [(1,)]
        assert connection.execute("pragma integrity_check").fetchall() == [("ok",)]
    with closing(Database(path)) as database:
        database.migrate()
        assert database.version() == latest


BACK_UP = """
import sys
from pathlib import Path
from trainshed.backup.archive import write_backup
from trainshed.config import Home
write_backup(Home(Path(sys.argv[1])), Path(sys.argv[2]))
"""
RESTORE = """
import sys
from pathlib import Path
from trainshed.backup.restore import restore
from trainshed.config import Home
restore(Home(Path(sys.argv[1])), Path(sys.argv[2]), replace=True)
"""


def state_folder(path: Path, project: str) -> Home:
    home = Home(path)
    home.create()
    with closing(Database(home.database)) as database:
        database.migrate()
        ProjectStore(database).ensure(project, now_us=1)
    home.token.write_text(project)
    return home


def projects(home: Home) -> tuple[list[str], str]:
    with closing(Database(home.database)) as database, database.read() as tx:
        return [row["id"] for row in tx.rows(sa.text("select id from projects"))], home.token.read_text()


def test_a_backup_that_is_killed_leaves_nothing_that_looks_like_one(tmp_path: Path) -> None:
    home, target = state_folder(tmp_path / "home", "first"), tmp_path / "archives" / "backup.tar"
    target.parent.mkdir()
    run_killed("backup.written", BACK_UP, home.path, target)
    assert not target.exists()
    write_backup(home, target)
    restore(Home(tmp_path / "other"), target)
    assert projects(Home(tmp_path / "other")) == (["first"], "first")
    assert [path.name for path in home.backups.iterdir() if path.name.startswith("draft-")] == []


@pytest.mark.parametrize("point", sorted(OF_COMMANDS - {"backup.written"}))
def test_a_restore_that_is_killed_leaves_the_old_state_or_the_new_one(tmp_path: Path, point: str) -> None:
    archive = tmp_path / "backup.tar"
    write_backup(state_folder(tmp_path / "home", "first"), archive)
    home = state_folder(tmp_path / "other", "second")
    run_killed(point, RESTORE, home.path, archive)
    with hold_lock(home):
        finish_restore(home)
    expected = "second" if point == "restore.staged" else "first"
    assert projects(home) == ([expected], expected)
    assert not (home.path / "restore").exists()
