"""What replicas leave on a machine of a cluster: removed when nobody uses it any more, and not before."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import time
from pathlib import Path
from typing import Any

import pytest

from trainshed.node.remote import workspace

GANG, REPLICA = "trainshed/p/j/1", "worker-replica-0"
FILES = [{"name": "saved_model.pb", "sha256": "0" * 64}]


class Node:
    """A machine with a cache."""

    def __init__(self, cache: Path) -> None:
        self.cache = cache

    def copy(self, number: int = 0, *, replica: str = REPLICA, **order: Any) -> tuple[Path, int]:
        """The folder of a copy with something in it, and what it is held by."""
        folder = Path(workspace.replica_folder(str(self.cache), GANG, replica), f"0.{number}")
        held = workspace.create(str(folder), {"cache": str(self.cache), **order})
        (folder / "work").mkdir()
        (folder / "work" / "events").write_text("x")
        return folder, held

    def lock(self, replica: str = REPLICA) -> Path:
        return Path(workspace.lock_of(workspace.replica_folder(str(self.cache), GANG, replica)))

    def model(self, files: list[dict[str, Any]], *, age_s: float) -> Path:
        folder = Path(workspace.model_folder(str(self.cache), files))
        folder.mkdir(parents=True)
        (folder / "saved_model.pb").write_bytes(b"graph")
        lock = folder.with_name(f"{folder.name}.lock")
        lock.touch()
        for path in (folder, lock):
            os.utime(path, (time.time() - age_s,) * 2)
        return folder

    def sweep(self) -> None:
        workspace.sweep(str(self.cache))

    def left(self) -> list[str]:
        """All that there is of replicas."""
        found = (self.cache / "replicas").glob("*/**/*")
        return sorted(str(path.relative_to(self.cache)) for path in found if path.name != ".lock")


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_an_order_is_whole_and_for_nobody_else(node: Node) -> None:
    folder, held = node.copy(secret="s")
    assert json.loads((folder / "agent.json").read_bytes()) == {"cache": str(node.cache), "secret": "s"}
    assert (folder / "agent.json").stat().st_mode & 0o077 == 0
    assert folder.stat().st_mode & 0o077 == 0
    os.close(held)


def test_what_is_in_use_stays_and_the_rest_goes(node: Node) -> None:
    used, held = node.copy(replica="master-replica-0")
    _, lost = node.copy(1)
    node.lock().touch()
    os.close(lost)
    node.sweep()
    assert (used / "work" / "events").exists()
    assert not any(REPLICA in path for path in node.left())
    os.close(held)
    node.sweep()
    assert node.left() == []


def test_a_workspace_whose_agent_still_cleans_up_stays(node: Node) -> None:
    folder, held = node.copy()
    os.close(held)  # the actor was killed
    with node.lock().open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        node.sweep()
        assert (folder / "work").exists()
    node.sweep()
    assert node.left() == []


def test_a_copy_that_was_just_being_made_is_removed_too(node: Node) -> None:
    folder, held = node.copy()
    os.close(held)
    (folder / "agent.json").unlink()
    node.sweep()
    assert node.left() == []


def test_the_end_of_a_copy_leaves_nothing_unless_there_is_another(node: Node) -> None:
    first, held = node.copy(0)
    second, other = node.copy(1)
    node.lock().touch()
    workspace.remove(str(node.cache), str(first))
    assert not first.exists()
    assert second.exists() and node.lock().exists()
    workspace.remove(str(node.cache), str(second))
    workspace.remove(str(node.cache), str(second))  # asked for twice
    assert node.left() == []
    os.close(held)
    os.close(other)


def test_other_machines_with_the_same_cache_see_to_their_own(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, held = node.copy()
    os.close(held)
    with monkeypatch.context() as there:
        there.setattr(socket, "gethostname", lambda: "another")
        node.sweep()
    assert folder.exists()


class TestModels:
    def test_one_that_nobody_started_with_of_late_is_removed(self, node: Node) -> None:
        old = node.model(FILES, age_s=workspace.MODEL_RETENTION_S + 60)
        fresh = node.model([{**FILES[0], "sha256": "1" * 64}], age_s=60)
        node.sweep()
        assert sorted(path.name for path in old.parent.iterdir()) == [fresh.name, f"{fresh.name}.lock"]

    def test_one_that_a_host_has_stays(self, node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
        """Also if that is on another machine with the same cache."""
        with monkeypatch.context() as there:
            there.setattr(socket, "gethostname", lambda: "another")
            _, held = node.copy(files=FILES)
        old = node.model(FILES, age_s=workspace.MODEL_RETENTION_S + 60)
        node.sweep()
        assert (old / "saved_model.pb").exists()
        os.close(held)

    def test_an_order_that_makes_no_sense_stops_nothing(self, node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
        with monkeypatch.context() as there:
            there.setattr(socket, "gethostname", lambda: "another")
            folder, held = node.copy()
        (folder / "agent.json").write_bytes(b"")
        old = node.model(FILES, age_s=workspace.MODEL_RETENTION_S + 60)
        node.sweep()
        assert not old.exists()
        os.close(held)
