"""The server's side of the link: what it says while there is none, and where it listens."""

from __future__ import annotations

import json
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from trainshed.config import Home
from trainshed.engines.ray.bridge_process import BridgeProcess
from trainshed.errors import EngineUnavailableError, UnavailableError
from trainshed.testing.eventually import eventually


def made(path: Path) -> BridgeProcess:
    return BridgeProcess(Home(path), address="10.1.2.3:6379", python=lambda: Path(sys.executable), ship=lambda: path)


@pytest.fixture
def answers(tmp_path: Path) -> Iterator[list[Any]]:
    """What a link answers next; None closes the connection."""
    link = made(tmp_path)
    link.socket.parent.mkdir()
    waiting: list[Any] = []
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(link.socket))
    listener.listen()

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection, connection.makefile("rb") as lines:
                request = json.loads(lines.readline())
                answer = waiting.pop()
                waiting.append(request)
                if answer is not None:
                    connection.sendall(json.dumps(answer).encode() + b"\n")

    thread = threading.Thread(target=serve)
    thread.start()
    yield waiting
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join()


def test_without_a_bridge_the_outage_begins_with_the_last_response(tmp_path: Path) -> None:
    link = made(tmp_path)
    assert (link.cluster().reachable, link.cluster().since_us) == (False, 0)
    (tmp_path / "bridge").mkdir()
    (tmp_path / "bridge" / "answered").write_text("1700000000000000")
    assert link.cluster().since_us == 1_700_000_000_000_000
    with pytest.raises(EngineUnavailableError, match=r"10\.1\.2\.3:6379"):
        link.reserve("trainshed/p/j/1", {}, "PACK")


def test_questions_become_requests_and_answers_values(tmp_path: Path, answers: list[Any]) -> None:
    link = made(tmp_path)
    answers.append({"state": "ready"})
    assert link.reserve("g", {"master-replica-0": {"CPU": 2}}, "SPREAD")
    assert answers.pop() == {
        "do": "reserve",
        "gang": "g",
        "bundles": {"master-replica-0": {"CPU": 2}},
        "strategy": "SPREAD",
    }
    node = {"id": "n", "host": "10.0.0.1", "alive": True, "total": {"CPU": 4}, "free": {"CPU": 1}}
    answers.append({"reachable": True, "since": 5, "address": "a", "why": "", "nodes": [node]})
    seen = link.cluster()
    assert seen.reachable and seen.nodes[0].host == "10.0.0.1" and seen.nodes[0].free["CPU"] == 1
    answers[:] = [{"error": "The head is away."}]
    with pytest.raises(EngineUnavailableError, match="The head is away"):
        link.release("g")
    answers[:] = [None]
    with pytest.raises(EngineUnavailableError):
        link.release("g")


def test_a_path_too_long_for_a_socket_leads_to_a_short_one(tmp_path: Path) -> None:
    folder = tmp_path / ("x" * 100)
    folder.mkdir()
    link = made(folder)
    assert len(str(link.socket)) < 100
    assert made(folder).socket == link.socket


def test_each_state_folder_has_a_namespace_of_its_own_for_ever(tmp_path: Path) -> None:
    first, second = made(tmp_path / "a"), made(tmp_path / "b")
    assert first.namespace != second.namespace
    assert made(tmp_path / "a").namespace == first.namespace


def test_an_environment_that_cannot_be_built_is_the_reason_that_people_are_told(tmp_path: Path) -> None:
    def fails() -> Path:
        raise UnavailableError("The index can't be reached.")

    link = BridgeProcess(Home(tmp_path), address="h:1", python=fails, ship=lambda: tmp_path)
    link.begin()
    try:
        assert eventually(lambda: link.cluster().reason) == "The index can't be reached."
    finally:
        link.close()
