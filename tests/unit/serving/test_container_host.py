"""A host of a container as a process. In the container's place is a program of a few lines: a host runs what it is
told to run, and the rest is Podman's and Docker's."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from trainshed.serving.frames import FrameKind, pack_raw, unpack_raw
from trainshed.testing.clusters.containers import ANSWERS
from trainshed.testing.eventually import eventually
from trainshed.testing.processes.host_processes import MAIN, RunningHost
from trainshed.testing.processes.resources import held_port

PREDICTOR = """
import json, os, sys, time
from pathlib import Path
ANSWERS
folder, port, word = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
print("starting", word, "with", os.environ["API_KEY"], flush=True)
if word == "fail":
    sys.exit("no such weights")
if word == "sick":
    (folder / "sick").touch()

class Predictor(Answers):
    def do_GET(self):
        if self.path != "/health":
            self.answer(404, b"")
        else:
            self.answer(503 if (folder / "sick").exists() else 200, b"")

    def do_POST(self):
        body = self.body()
        if self.path != "/predict":
            self.answer(404, b"no such path", "text/plain")
        elif self.headers["content-type"] != "application/json":
            self.answer(200, body[::-1], self.headers["content-type"])
        else:
            instances = json.loads(body)["instances"]
            for instance in instances:
                if instance == "hang":
                    (folder / ("hangs-%d" % time.monotonic_ns())).touch()
                    while not (folder / "go").exists():
                        time.sleep(0.01)
                if instance == "die":
                    print("dying", flush=True)
                    os._exit(7)
            self.answer(200, json.dumps({"predictions": instances}).encode())

ThreadingHTTPServer(("127.0.0.1", port), Predictor).serve_forever()
""".replace("ANSWERS", ANSWERS)

WITHOUT_NUMPY = f"import sys\nsys.modules['numpy'] = None\n{MAIN}"


class Running(RunningHost):
    """A host of the program above."""

    def __init__(self, folder: Path, word: str = "well", *, queue_limit: int = 256, wait_s: float = 90.0) -> None:
        self._holds = ExitStack()
        port = self._holds.enter_context(held_port())
        program = folder / "predictor.py"
        program.write_text(PREDICTOR)
        order = {
            "image": "example (abc)",
            "run": [sys.executable, str(program), str(folder), str(port), word],
            "env": {"API_KEY": "a secret"},
            "end": ["touch", str(folder / "ended")],
            "port": port,
            "predict": "/predict",
            "health": "/health",
            "wait_s": wait_s,
            "timeout_s": 90.0,
        }
        spec = {"container": order, "queue_limit": queue_limit}
        super().__init__(folder, "container-host", spec, program=WITHOUT_NUMPY)

    def predict(self, number: int, *instances: object) -> None:
        self.send(number, {"instances": instances})

    def hanging(self) -> int:
        return len(list(self.folder.glob("hangs-*")))

    def close(self) -> None:
        self.let_go()
        if self.process.poll() is None:
            self.process.terminate()  # which ends the predictor too
            self.ended()
        super().close()
        self._holds.close()


@pytest.fixture
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    hosts: list[Running] = []

    def start(*words: str, **how: Any) -> Running:
        hosts.append(Running(tmp_path_factory.mktemp("host"), *words, **how))
        return hosts[-1]

    yield start
    for host in hosts:
        host.close()


def test_bodies_are_passed_on_as_they_are(started: Any) -> None:
    host = started()
    said = host.heard()
    assert said["invariance"]["message"] == "Requests are not batched: the container gets each as it came."
    assert (said["loader"], said["detail"], said["batching"]) == ("container", "the container example (abc)", False)
    host.send(1, b'{"instances": [1, {"a": "b"}]}')
    assert host.receive() == (1, 200, b'{"predictions": [1, {"a": "b"}]}')
    for number, kind in enumerate((FrameKind.TF_SERVING, FrameKind.MLFLOW), start=2):
        host.send(number, b'{"instances": [2]}', kind)
        assert host.receive() == (number, 200, b'{"predictions": [2]}')
    status, answer = host.ask(pack_raw("text/x-words", b"abc"), FrameKind.RAW)
    assert (status, unpack_raw(answer)) == (200, ("text/x-words", b"cba"))
    assert host.log.read_text() == "starting well with a secret\n"


def test_explanations_are_refused_with_a_sentence(started: Any) -> None:
    host = started()
    host.heard()
    status, answer = host.ask({"instances": [1]}, FrameKind.EXPLAIN)
    assert status == 400
    assert "no explanations" in answer["error"]["message"]


def test_requests_run_side_by_side_and_are_counted(started: Any) -> None:
    host = started()
    host.heard()
    for number in range(2, 5):
        host.predict(number, "hang")
    eventually(lambda: host.hanging() == 3)
    assert host.ask({"instances": ["quick"]}) == (200, {"predictions": ["quick"]})
    host.let_go()
    assert sorted(host.receive()[:2] for _ in range(3)) == [(2, 200), (3, 200), (4, 200)]
    stats = host.stats()
    assert (stats["requests"], stats["failed"], stats["waiting"], stats["runningSeconds"]) == (4, 0, 0, 0.0)


def test_too_many_are_refused_and_those_that_wait_can_be_cancelled(started: Any) -> None:
    host = started(queue_limit=2)
    host.heard()
    for number in range(2, 36):  # 32 at once, 2 wait
        host.predict(number, "hang")
        if number < 34:
            eventually(host.hanging, (number - 1).__eq__)
    host.predict(36, "late")
    assert host.receive()[:2] == (36, 429)
    host.send(35, kind=FrameKind.CANCEL)
    assert host.stats()["waiting"] == 1
    host.let_go()
    assert sorted(host.receive()[0] for _ in range(33)) == list(range(2, 35))
    stats = host.stats()
    assert (stats["refused"], stats["cancelled"], stats["requests"]) == (1, 1, 33)


def test_one_that_ends_at_once_is_told_with_its_words(started: Any) -> None:
    host = started("fail")
    message = host.heard()["message"]
    assert message.startswith("Failed to load model: The container ended with the exit status 1 before it was healthy.")
    assert "no such weights" in message
    assert host.ended() == 1


def test_one_that_is_never_healthy_is_given_up(started: Any) -> None:
    host = started("sick", wait_s=0.5)
    assert "did not answer GET /health with status 200 within 0.5 s: " in host.heard()["message"]
    assert host.ended() == 1
    assert (host.folder / "ended").exists()


def test_the_host_is_not_ready_before_the_container_is(started: Any) -> None:
    host = started("sick")
    eventually(lambda: (host.folder / "sick").exists())
    assert not (host.folder / "s").exists()
    (host.folder / "sick").unlink()
    assert host.heard()["event"] == "ready"


def test_the_host_ends_when_its_container_does(started: Any) -> None:
    host = started()
    host.heard()
    host.predict(1, "die")
    assert host.ended() == 1
    assert host.log.read_text().endswith("dying\nThe container ended with the exit status 7.\n")
    assert (host.folder / "ended").exists()


def test_a_drained_host_answers_what_it_has_and_ends_its_container(started: Any) -> None:
    host = started()
    host.heard()
    host.predict(1, "hang")
    eventually(lambda: host.hanging() == 1)
    host.process.send_signal(signal.SIGTERM)
    host.let_go()
    assert host.receive()[:2] == (1, 200)
    assert host.ended() == 0
    assert (host.folder / "ended").exists()


def test_a_host_that_is_stopped_while_its_container_starts_ends_that(started: Any) -> None:
    host = started("sick")
    eventually(lambda: (host.folder / "sick").exists())
    host.process.send_signal(signal.SIGTERM)
    assert host.ended() == 0
    assert (host.folder / "ended").exists()


def test_a_spec_that_makes_no_sense_is_told(tmp_path: Path) -> None:
    spec = tmp_path / "spec.json"
    spec.write_text(json.dumps({"format": 1, "model_dir": "x", "container": {"run": []}}))
    with subprocess.Popen(
        [sys.executable, "-c", WITHOUT_NUMPY, "container-host", spec],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        assert process.stdout is not None
        assert "can't read its spec" in json.loads(process.stdout.readline())["message"]
        assert process.wait(90) == 1
