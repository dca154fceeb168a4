"""Scenarios that pass the crash points of the program, and what must hold after each of them, whatever was injected.

What was acknowledged is there; what was not is absent or whole; each attempt starts once; nothing is left behind.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from trainshed.node.crashpoints import DELAY, ENOSPC, KILL
from trainshed.testing.eventually import eventually
from trainshed.testing.processes.servers import RunningServer
from trainshed.testing.reliability.crash.access import hold_scenario, secrets_scenario, storage_limit_scenario
from trainshed.testing.reliability.crash.points import Scenario
from trainshed.testing.reliability.crash.searches import search_scenario, steering_scenario, study_scenario
from trainshed.testing.reliability.crash.uploads import part_upload_scenario, upload_scenario
from trainshed.testing.reliability.crash.world import BUCKET, OBJECTS, PROJECT, World, acknowledged, processes_of


def job_scenario(world: World, name: str, *, go: Path | None = None) -> Scenario:
    """A job that runs until after the crash, or until a file is there."""
    enough = go or world.scratch / f"{name}.go"
    created = acknowledged(world.create_job(name, go=enough))
    yield
    enough.touch()
    if not created and world.call("GET", f"/v1/projects/{PROJECT}/jobs/{name}").status == 404:
        assert world.starts(name) == 0
        assert acknowledged(world.create_job(name, go=enough))
    ends = {"SUCCEEDED", "FAILED"} if world.may_fail and world.point in OF_LAUNCHES else {"SUCCEEDED"}
    done = world.jobs.wait(name, ends)
    assert world.starts(name) <= 1
    assert world.starts(name) == 1 if done["state"] == "SUCCEEDED" else done["errorMessage"]
    again = world.create_job(name, go=enough)
    assert again is not None
    assert again.status == 409
    assert world.jobs.get(name) == done
    eventually(lambda: processes_of(name), lambda left: not left)


def ended_job_scenario(world: World, name: str) -> Scenario:
    """A job that ends before the crash."""
    return job_scenario(world, name, go=world.scratch / "go")


def supervisor_scenario(world: World, name: str) -> Scenario:
    """A job whose supervisor is what dies or fails. It ends, by itself or with a reason, and is never forgotten."""
    enough = world.scratch / f"{name}.go"
    assert acknowledged(world.create_job(name, go=enough))
    yield
    if world.action != KILL:
        enough.touch()
    ends = {KILL: {"FAILED"}, DELAY: {"SUCCEEDED"}}.get(world.action, {"SUCCEEDED", "FAILED"})
    done = world.jobs.wait(name, ends)
    assert done["state"] == "SUCCEEDED" or done["errorMessage"]
    assert world.starts(name) <= 1
    assert world.jobs.get(name) == done
    eventually(lambda: processes_of(name), lambda left: not left)


def cancel_scenario(world: World, name: str) -> Scenario:
    assert acknowledged(world.create_job(name, go=world.scratch / "never"))
    eventually(lambda: world.starts(name), (1).__eq__)
    world.jobs.wait(name, {"RUNNING"})
    cancelled = acknowledged(world.try_call("POST", f"/v1/projects/{PROJECT}/jobs/{name}:cancel", {}))
    yield
    if not cancelled:
        again = world.call("POST", f"/v1/projects/{PROJECT}/jobs/{name}:cancel", {})
        assert again.status in (200, 400), again.body
    world.jobs.wait(name, {"CANCELLED"})
    assert world.starts(name) == 1
    eventually(lambda: processes_of(name), lambda left: not left)


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


def noncurrent_scenario(world: World, name: str) -> Scenario:
    """An object of a bucket with versioning is replaced, and the version that this keeps is removed."""
    bucket = f"{name}-versions"
    objects, made = f"/storage/v1/b/{bucket}/o", {"name": bucket, "versioning": {"enabled": True}}
    assert acknowledged(world.try_call("POST", f"/storage/v1/b?project={PROJECT}", made))
    upload = f"/upload/storage/v1/b/{bucket}/o?uploadType=media&name=kept"
    first = world.try_call("POST", upload, b"old")
    assert acknowledged(first)
    assert first is not None
    old = f"{objects}/kept?generation={first.json['generation']}"
    stored = acknowledged(world.try_call("POST", upload, b"newer"))
    removed = stored and acknowledged(world.try_call("DELETE", old))
    yield
    live = world.call("GET", f"{objects}/kept?alt=media").body
    assert live in ((b"newer",) if stored else (b"old", b"newer"))
    found = world.call("GET", f"{old}&alt=media")
    gone = found.status == 404
    assert gone if removed else (stored and gone) or found.body == b"old"
    listed = world.call("GET", f"{objects}?versions=true").json["items"]
    assert len(listed) == 1 + (live == b"newer" and not gone)
    for each in listed:
        world.call("DELETE", f"{objects}/kept?generation={each['generation']}")
    assert world.call("DELETE", f"/storage/v1/b/{bucket}").status == 204


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
    """A version is created, made the default and deleted, up to the first step that fails."""
    deployer = world.deployer
    path = f"{deployer.path}/versions/{name}"
    fields = {"name": name, "deploymentUri": world.version["deploymentUri"], **world.routine}
    created = world.try_call("POST", f"{deployer.path}/versions", fields)
    world.finish(created)
    world.try_call("POST", f"{path}:setDefault", {})
    deleted = world.try_call("DELETE", path)
    world.finish(deleted)
    yield
    if acknowledged(deleted):
        eventually(lambda: world.call("GET", path).status, (404).__eq__)
    elif acknowledged(created) or world.call("GET", path).status == 200:
        check_version(world, name)
    hosts = world.server.home / "hosts" / deployer.project / "m" / name
    files = world.server.home / "models" / deployer.project
    eventually(lambda: hosts.exists() or files.exists(), False.__eq__)


def rollout_scenario(world: World, name: str) -> Scenario:
    """A rollout ends with the first request to its version. What its row says is how requests are routed."""
    deployer = world.deployer
    for version in ("old", "new"):
        world.finish(
            world.call(
                "POST",
                f"{deployer.path}/versions",
                {"name": f"{name}_{version}", "deploymentUri": world.version["deploymentUri"], **world.routine},
            )
        )
    assert acknowledged(world.call("POST", f"{deployer.path}/versions/{name}_old:setDefault", {}))
    plan = {"version": f"{name}_new", "steps": [100], "stepSeconds": 0, "minRequests": 1}
    rollouts = f"/trainshed{deployer.path}/rollouts"
    started = world.try_call("POST", rollouts, plan)
    world.try_call("POST", f"{deployer.path}:predict", {"instances": [1]})
    yield
    if not acknowledged(started):
        assert acknowledged(world.call("POST", rollouts, plan))
    eventually(
        lambda: (
            world.call("POST", f"{deployer.path}:predict", {"instances": [1]}).status == 200
            and world.call("GET", rollouts).json["rollouts"][0]["state"] == "PROMOTED"
        )
    )
    default = world.call("GET", deployer.path).json["defaultVersion"]["name"].rpartition("/")[2]
    assert default == f"{name}_new"
    for version in ("old", "new"):
        world.finish(world.call("DELETE", f"{deployer.path}/versions/{name}_{version}"))


def check_version(world: World, name: str) -> None:
    """A version is READY and answers, or has failed with a reason if something failed. Then it is deleted."""
    deployer = world.deployer
    ends = {"READY", "FAILED"} if world.may_fail and world.point.startswith("version.") else {"READY"}
    version = eventually(lambda: deployer.get(name), lambda body: body["state"] in ends)
    if version["state"] == "READY":
        deployer.until_answers(name, 1)
        assert deployer.predict("", 1) == [1]
    else:
        assert version["errorMessage"]
    assert "response" in deployer.finish(deployer.delete(name))


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
    "tuning.folder.marked": (search_scenario, 1),
    "tuning.folder.emptied": (search_scenario, 1),
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
    "object.version.kept": (noncurrent_scenario, 1),
    "object.version.removed": (noncurrent_scenario, 1),
    "object.compose.staged": (compose_scenario, 1),
    "object.rewrite.staged": (rewrite_scenario, 1),
    "object.move.copied": (move_scenario, 1),
    "upload.begin.data_written": (upload_scenario, 1),
    "upload.begin.recorded": (upload_scenario, 1),
    "upload.chunk.received": (upload_scenario, 1),
    "upload.chunk.synced": (upload_scenario, 1),
    "upload.finish.committed": (upload_scenario, 1),
    "upload.part.recorded": (part_upload_scenario, 2),
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
    "job.storage_limit.before_write": (storage_limit_scenario, 1),
    "object.hold.noted": (hold_scenario, 1),
    "secret.set.sealed": (secrets_scenario, 2),
    "secret.rotate.key_added": (secrets_scenario, 1),
    "secret.rotate.resealed": (secrets_scenario, 1),
    "search.steer.before_commit": (steering_scenario, 1),
    "search.steer.after_commit": (steering_scenario, 1),
    "study.change.before_commit": (study_scenario, 1),
    "study.change.after_commit": (study_scenario, 1),
    "study.delete.before_commit": (study_scenario, 1),
}
#: Passed by a sweep of every ten seconds, for which a scenario waits.
OF_SWEEPS = {"job.storage_limit.before_write"}
#: Where an error that nobody expects fails the job, with a reason.
OF_LAUNCHES = {"attempt.spec.written", "job.launch.before", "job.launch.after"}
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
    "rollout.stage.written",
}

#: All points that a server or its supervisors pass, with the scenario and the pass that acts.
SCENARIOS: dict[str, tuple[Callable[[World, str], Scenario], int]] = {
    **IN_THE_SERVER,
    **{point: (supervisor_scenario, at) for point, at in IN_THE_SUPERVISOR.items()},
    **dict.fromkeys(sorted(OF_VERSIONS), (version_scenario, 1)),
    "rollout.stage.written": (rollout_scenario, 1),
}


def go_through(world: World, point: str, action: str = KILL) -> None:
    """Run the scenario of a point. Raises `AssertionError` if something does not hold.

    With `KILL`, a server is started for it and killed afterwards. Any other action happens in the server that runs, and
    that one goes on.
    """
    scenario, at = SCENARIOS[point]
    name = f"{point}.{action}".replace(".", "_")
    if action == KILL:
        world.start(point, at)
        try:
            _run(world, scenario(world, name), lambda: world.restart(died=point not in IN_THE_SUPERVISOR))
        finally:
            world.server.kill()
        return
    world.arm(point, action, at)
    try:
        _run(world, scenario(world, name), world.disarm)
    finally:
        world.disarm()


def _run(world: World, running: Scenario, recover: Callable[[], None]) -> None:
    next(running)
    world.await_hit()
    check_answers(world)
    recover()
    assert next(running, "checked") == "checked"
    check_quiet(world.server)


def check_answers(world: World) -> None:
    """A slow step fails nothing, and a full disk is reported as a full disk."""
    if world.action == DELAY:
        assert [status for status in world.statuses if status >= 400] == []
    if world.action == ENOSPC:
        assert [status for status in world.statuses if status == 500] == []


def check_quiet(server: RunningServer) -> None:
    """Nothing that an interrupted write left is there. Sessions of uploads that nobody ended stay."""
    left = [path for path in (server.home / "uploads").iterdir() if path.name.startswith("put-")]
    assert left == []
    if (database := server.home / "state.db").exists():
        with closing(sqlite3.connect(database)) as connection:
            assert connection.execute("pragma integrity_check").fetchall() == [("ok",)]
