"""A host as a process: what it says, what it answers, and how it ends. The model is a class of a few lines."""

from __future__ import annotations

import json
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from trainshed.serving.frames import MAX_RAW_HEAD_BYTES, REQUEST_HEAD, FrameKind, pack_raw, unpack_raw
from trainshed.testing.processes.host_processes import MAIN, RunningHost

MODEL = """
import ctypes, pathlib, sys, time

print("imported")

class Model:
    def __init__(self, folder):
        self.folder = pathlib.Path(folder)

    @classmethod
    def from_path(cls, folder):
        word = (pathlib.Path(folder) / "load").read_text()
        if word == "raise":
            raise ValueError("no such weights")
        if word == "exit":
            sys.exit(3)
        if word == "hoard":
            cls.hoard = bytearray(1 << 30)
        return cls(folder)

    def predict(self, instances, **kwargs):
        print("predicting", flush=True)
        answers = []
        for instance in instances:
            if instance == "hang":
                (self.folder / "hangs").touch()
                while not (self.folder / "go").exists():
                    time.sleep(0.01)
            if instance == "raise":
                raise RuntimeError("this word")
            if instance == "rant":
                raise RuntimeError("word " * 20_000 + "end")
            if instance == "hoard":
                bytearray(1 << 32)
            answers.append([instance, kwargs])
        return answers

    def raw_predict(self, body, content_type):
        return body[::-1], content_type + "; reversed"
"""


class Running(RunningHost):
    """A host of the model above, once it has said what it is."""

    def __init__(self, folder: Path, **spec: Any) -> None:
        (folder / "site").mkdir()
        (folder / "site" / "wordy.py").write_text(MODEL)
        (folder / "load").write_text(spec.pop("load", ""))
        words = {"loader": "custom", "prediction_class": "wordy.Model", "site": str(folder / "site")}
        super().__init__(folder, "host", words | spec)
        self.said = self.heard()

    def hang(self, number: int) -> None:
        """Send a request that the model hangs on; returns when it does."""
        self.send(number, {"instances": ["hang"]})
        while not (self.folder / "hangs").exists():
            assert self.process.poll() is None


@pytest.fixture
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    hosts: list[Running] = []

    def start(**spec: Any) -> Running:
        hosts.append(Running(tmp_path_factory.mktemp("host"), **spec))
        return hosts[-1]

    yield start
    for host in hosts:
        host.close()


def test_it_says_that_it_is_ready_and_answers(started: Any) -> None:
    host = started()
    assert {name: host.said[name] for name in ("event", "loader", "batching", "sample", "signatures")} == {
        "event": "ready",
        "loader": "custom",
        "batching": False,
        "sample": None,
        "signatures": {},
    }
    message = "Requests are not batched: there is no sample request to check the model with."
    assert host.said["invariance"] == {"difference": None, "rows": 0, "message": message}
    assert host.said["detail"].startswith("wordy.Model on Python")
    assert host.said["load_s"] > 0
    assert host.ask({"instances": ["a", 1], "deep": {"er": [1]}}) == (
        200,
        {"predictions": [["a", {"deep": {"er": [1]}}], [1, {"deep": {"er": [1]}}]]},
    )


def test_what_the_model_prints_goes_to_its_log_alone(started: Any) -> None:
    host = started()
    host.ask({"instances": [1]})
    host.process.send_signal(signal.SIGTERM)
    assert host.ended() == 0
    assert host.output.read() == b""
    assert host.log.read_text() == "imported\npredicting\n"


def test_an_error_of_many_words_is_cut_and_the_log_has_them_all(started: Any) -> None:
    host = started()
    status, answer = host.ask({"instances": ["rant"]})
    message = answer["error"]["message"]
    assert status == 500
    assert len(message) < 4500
    assert "word word ... (cut after 4,096 of 100," in message
    assert message.endswith("the version's log has the rest) (Error code: 4)")
    assert "word word end" in host.log.read_text()


@pytest.mark.parametrize(
    "spec, message",
    [
        ({"load": "raise"}, "no such weights"),
        ({"load": "exit"}, "3"),
        ({"load": "hoard", "memory_bytes": 600 << 20}, "MemoryError"),
        ({"prediction_class": "wordy.Absent"}, "Absent"),
        ({"prediction_class": ""}, "no prediction class is given"),
        ({"format": 2}, "format 1"),
        ({"colour": "red"}, "colour"),
        ({"loader": "abacus"}, "There is no loader 'abacus'"),
        ({"explanation": {"sampledShapleyAttribution": {}}}, "explained"),
    ],
)
def test_a_model_that_can_not_be_loaded_says_why(started: Any, spec: dict[str, Any], message: str) -> None:
    host = started(**spec)
    assert host.said["event"] == "failed"
    assert message in host.said["message"]
    assert host.said["message"].endswith(("(Error code: 0)", "(Error code: 4)"))
    assert host.ended() == 1
    assert not (host.folder / "s").exists()


def test_failures_are_the_requests_own(started: Any) -> None:
    host = started(memory_bytes=2 << 30)
    for words in (["raise"], ["hoard"]):
        status, answer = host.ask({"instances": words})
        assert (status, answer["error"]["code"], answer["error"]["status"]) == (500, 500, "INTERNAL")
        assert answer["error"]["message"].startswith("Prediction failed: ")
    status, answer = host.ask(b"{")
    assert (status, answer["error"]["status"]) == (400, "INVALID_ARGUMENT")
    assert answer["error"]["message"].startswith("Prediction failed: Invalid inputs: The body is not JSON")
    assert answer["error"]["message"].endswith("(Error code: 1)")
    assert host.ask({"instances": [1]})[0] == 200


def test_a_model_that_hangs_stops_nothing_but_itself(started: Any) -> None:
    host = started(queue_limit=2)
    host.hang(1)
    for number in (2, 3, 4):
        host.send(number, {"instances": [number]})
    number, status, body = host.receive()
    assert (number, status, json.loads(body)["error"]["status"]) == (4, 429, "RESOURCE_EXHAUSTED")
    host.send(5, kind=FrameKind.STATS)
    number, status, body = host.receive()
    stats = json.loads(body)
    assert (number, status, stats["waiting"], stats["refused"]) == (5, 200, 2, 1)
    assert stats["runningSeconds"] > 0
    host.send(3, kind=FrameKind.CANCEL)
    host.send(6, b"{")
    assert host.receive()[:2] == (6, 400)
    host.let_go()
    assert [host.receive()[:2] for _ in range(2)] == [(1, 200), (2, 200)]
    assert host.stats()["cancelled"] == 1


def test_what_a_lost_connection_asked_is_dropped(started: Any) -> None:
    host = started()
    host.hang(1)
    for number in range(2, 50):
        host.send(number, {"instances": [number]})
    assert host.stats()["waiting"] == 48
    host.connect()
    while host.stats()["waiting"]:
        assert host.process.poll() is None
    host.let_go()
    assert host.ask({"instances": [1]})[0] == 200


def test_when_told_to_end_it_answers_what_it_has(started: Any) -> None:
    host = started()
    host.hang(1)
    host.send(2, {"instances": [2]})
    host.ask(kind=FrameKind.STATS)
    host.process.send_signal(signal.SIGTERM)
    with pytest.raises(ConnectionRefusedError):
        while True:
            with socket.socket(socket.AF_UNIX) as late:
                late.connect(str(host.folder / "s"))
    host.process.send_signal(signal.SIGTERM)  # once more changes nothing
    host.let_go()
    assert [host.receive()[:2] for _ in range(2)] == [(1, 200), (2, 200)]
    assert host.ended() == 0


def test_it_ends_with_the_server_even_while_its_model_hangs(started: Any) -> None:
    host = started()
    host.hang(1)
    host.life.close()
    assert host.ended() == 0


def test_one_that_can_take_no_more_connections_ends(started: Any) -> None:
    """So that there will be another one."""
    host = started()
    resource.prlimit(host.process.pid, resource.RLIMIT_NOFILE, (3, 3))
    host.connect()
    assert host.ended() == 1
    assert "Too many open files" in host.log.read_text()


def test_raw_bodies_go_to_the_model_as_they_are(started: Any) -> None:
    host = started()
    status, body = host.ask(pack_raw("text/x-words", b"\x00\xffabc"), FrameKind.RAW)
    assert (status, unpack_raw(body)) == (200, ("text/x-words; reversed", b"cba\xff\x00"))
    assert host.ask(b"\x09", FrameKind.RAW)[0] == 400


def test_a_raw_body_of_the_greatest_size_has_room_for_its_type(started: Any) -> None:
    host = started(body_limit=1000)
    status, body = host.ask(pack_raw("text/x-words", b"x" * 1000), FrameKind.RAW)
    assert (status, unpack_raw(body)[1]) == (200, b"x" * 1000)


def test_what_there_is_nothing_for_is_refused(started: Any) -> None:
    host = started()
    assert "explanationConfig" in host.ask({"instances": [1]}, FrameKind.EXPLAIN)[1]["error"]["message"]
    assert host.ask(b"/nowhere", FrameKind.PARITY)[0] == 400
    host.socket.sendall(REQUEST_HEAD.pack(0, 1, 99))
    assert host.receive()[:2] == (1, 400)


def test_a_frame_that_makes_no_sense_ends_its_connection_alone(started: Any) -> None:
    host = started(body_limit=1000)
    with socket.socket(socket.AF_UNIX) as other:
        other.settimeout(90)
        other.connect(str(host.folder / "s"))
        other.sendall(REQUEST_HEAD.pack(1000 + MAX_RAW_HEAD_BYTES + 1, 1, FrameKind.PREDICT))
        assert other.recv(100) == b""
    assert host.ask({"instances": [1]})[0] == 200


def test_one_request_needs_no_socket(tmp_path: Path) -> None:
    (tmp_path / "wordy.py").write_text(MODEL)
    (tmp_path / "load").write_text("")
    spec = {"format": 1, "model_dir": str(tmp_path), "prediction_class": "wordy.Model", "site": str(tmp_path)}
    (tmp_path / "spec.json").write_text(json.dumps(spec))
    for body, status in ((b'{"instances": [1]}', 0), (b'{"instances": 1}', 1)):
        done = subprocess.run(
            [sys.executable, "-c", MAIN, "predict", tmp_path / "spec.json"],
            input=body,
            capture_output=True,
            check=False,
        )
        assert done.returncode == status
        assert ("error" in json.loads(done.stdout)) == bool(status)
        assert done.stderr.startswith(b"imported\n")
