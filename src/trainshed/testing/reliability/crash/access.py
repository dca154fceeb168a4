"""Secrets, the rotation of their key, holds of objects and a limit of bytes, around a crash."""

from __future__ import annotations

from trainshed.testing.eventually import eventually
from trainshed.testing.reliability.crash.points import Scenario
from trainshed.testing.reliability.crash.world import PROJECT, World, acknowledged, processes_of

_SECRETS = f"/trainshed/v1/projects/{PROJECT}/secrets"
_ROTATE = "/trainshed/v1/secrets:rotateKey"


def secrets_scenario(world: World, name: str) -> Scenario:
    """Two secrets are set, and then their key is rotated. Each one that is there can be read, and no key is lost."""
    first, second = (f"{name.replace('_', '-')}-{number}" for number in "12")
    assert acknowledged(world.try_call("POST", f"{_SECRETS}/{first}:set", {"value": "the first value"}))
    stored = acknowledged(world.try_call("POST", f"{_SECRETS}/{second}:set", {"value": "the second value"}))
    if stored:
        world.try_call("POST", _ROTATE, {})
    yield
    readable = {each["name"]: each["readable"] for each in world.call("GET", _SECRETS).json["secrets"]}
    assert set(readable.values()) == {True}
    assert first in readable
    assert second in readable or not stored
    rotated = world.call("POST", _ROTATE, {})
    assert (rotated.status, rotated.json) == (200, {"secrets": len(readable), "unreadable": []})
    for each in {first, second} & set(readable):
        assert acknowledged(world.call("DELETE", f"{_SECRETS}/{each}"))


def hold_scenario(world: World, name: str) -> Scenario:
    """An object of a bucket gets its first hold, by which jobs get the bucket as a folder no more."""
    bucket = f"{name.replace('_', '-')}-holds"
    assert acknowledged(world.try_call("POST", f"/storage/v1/b?project={PROJECT}", {"name": bucket}))
    assert acknowledged(world.try_call("POST", f"/upload/storage/v1/b/{bucket}/o?uploadType=media&name=a", b"data"))
    path = f"/storage/v1/b/{bucket}/o/a"
    held = acknowledged(world.try_call("PATCH", path, {"temporaryHold": True}))
    yield
    found = world.call("GET", path).json.get("temporaryHold", False)
    assert found or not held
    assert world.call("GET", f"{path}?alt=media").body == b"data"
    assert world.call("PATCH", path, {"temporaryHold": True}).json["temporaryHold"] is True
    assert world.call("DELETE", path).status == 403
    assert acknowledged(world.call("PATCH", path, {"temporaryHold": False}))
    assert acknowledged(world.call("DELETE", path))
    assert acknowledged(world.call("DELETE", f"/storage/v1/b/{bucket}"))


def storage_limit_scenario(world: World, name: str) -> Scenario:
    """A job whose project has more bytes in buckets than it may: it is ended, once and with that reason."""
    go = world.scratch / f"{name}.go"
    limit = {"name": "bucket-bytes", "project": PROJECT}
    assert acknowledged(world.create_job(name, go=go))
    world.jobs.wait(name, {"RUNNING"})
    assert acknowledged(world.try_call("POST", "/trainshed/v1/quotas:set", {**limit, "value": 1}))
    yield
    try:
        done = world.jobs.wait(name, {"FAILED"})
    finally:
        assert acknowledged(world.call("POST", "/trainshed/v1/quotas:unset", limit))
        go.touch()
    assert "is beyond a limit: " in done["errorMessage"]
    assert world.starts(name) == 1
    eventually(lambda: processes_of(name), lambda left: not left)
    assert world.jobs.get(name) == done
