"""Versions that are containers, run for real: created, asked, lost, replaced and deleted, with nothing left behind."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import trainshed
from trainshed.engines.local.containers import BRIDGE, HOST
from trainshed.node.containers import tool as container_tool
from trainshed.node.containers.tool import ContainerSpec, ContainerTool
from trainshed.node.process import tree
from trainshed.node.process.ports import free_ports
from trainshed.testing.clusters.containers import ANSWERS, Docker, Podman
from trainshed.testing.eventually import eventually
from trainshed.testing.processes.servers import RunningServer, ask
from trainshed.testing.workloads.deployer import Deployer

PROJECT = "served-containers"
NAME = "localhost/trainshed-tests/predictor:1"
POLL_S = 0.3  #: between two lists of containers, each of which takes a process of some weight

#: An HTTP server as users write them. It has been told where to listen and where its files are.
PREDICTOR = """
import json, os, sys
ANSWERS
folder = os.environ["AIP_STORAGE_URI"]
weight = int(open(os.path.join(folder, "weights.txt")).read()) if folder else 1
print("weight", weight, "as user", os.getuid(), flush=True)
if sys.argv[1:] == ["fail"]:
    sys.exit("these weights are of another model")

class Predictor(Answers):
    def do_GET(self):
        self.answer(200 if self.path == os.environ["AIP_HEALTH_ROUTE"] else 404, b"")

    def do_POST(self):
        body = self.body()
        if self.path != os.environ["AIP_PREDICT_ROUTE"]:
            self.answer(404, b"")
        elif self.headers["content-type"] != "application/json":
            self.answer(200, body.upper(), "text/plain; charset=utf-8")
        else:
            instances = json.loads(body)["instances"]
            if "env" in instances:
                self.answer(200, json.dumps({"predictions": [dict(os.environ)]}).encode())
            elif any(not isinstance(each, int) for each in instances):
                self.answer(422, b'{"error": "numbers, please"}')
            else:
                self.answer(200, json.dumps({"predictions": [each * weight for each in instances]}).encode())

ThreadingHTTPServer(("0.0.0.0", int(os.environ["AIP_HTTP_PORT"])), Predictor).serve_forever()
""".replace("ANSWERS", ANSWERS)


class Contained(Deployer):
    """Deploys containers."""

    def contain(self, version: str, image: str, *, weight: int = 0, **body: Any) -> dict[str, Any]:
        """Begin to create a version; the operation."""
        given = {"name": version, "container": {"image": image}, **body}
        if weight:
            given["deploymentUri"] = self.upload(f"{version}/weights.txt", str(weight).encode()).rpartition("/")[0]
        operation: dict[str, Any] = self.server.call("POST", f"{self.path}/versions", given)
        return operation

    def contained(self, version: str, image: str, **how: Any) -> dict[str, Any]:
        """Create a version, which must work, and return its details."""
        operation = self.finish(self.contain(version, image, **how))
        assert "response" in operation, operation
        return self.details(version)

    def asked(self, version: str, instance: Any) -> Any:
        """The one prediction for one instance."""
        [prediction] = self.predict(version, instance)
        return prediction

    def raw(self, version: str, body: bytes, kind: str) -> tuple[int, str, bytes]:
        answer = ask(
            self.server.url,
            "POST",
            f"{self.path}/versions/{version}:rawPredict",
            body=body,
            headers={"authorization": f"Bearer {self.server.token}", "content-type": kind},
        )
        return answer.status, answer.headers["content-type"], answer.body


@pytest.fixture(scope="module")
def image(runner: Podman | Docker, tmp_path_factory: pytest.TempPathFactory) -> str:
    """An image with the predictor in it, which runs as a user of its own."""
    folder = tmp_path_factory.mktemp("predictor")
    (folder / "predictor.py").write_text(PREDICTOR)
    (folder / "Dockerfile").write_text(
        f'FROM {runner.base()}\nCOPY predictor.py /predictor.py\nUSER 1234\nENTRYPOINT ["python3", "/predictor.py"]\n'
    )
    runner("build", "--quiet", "--tag", NAME, str(folder))
    return NAME


@pytest.fixture(scope="module")
def network(runner: Podman | Docker, image: str) -> str:
    """The network that containers can have on this machine."""
    tool, name = ContainerTool(runner.kind, runner.kind, ()), f"trainshed-probe-{os.getpid()}"
    box = ContainerSpec(name, image, command=["true"], ports=[(free_ports(1)[0], 80)])
    try:
        runner(*container_tool.run_command(tool, box)[1:])
    except AssertionError:
        return HOST
    finally:
        with contextlib.suppress(AssertionError):  # it is gone
            runner("rm", "--force", name)
    return BRIDGE


def opened(home: Path, runner: Podman | Docker, network: str) -> RunningServer:
    settings = {"container_network": network, "container_tool": runner.kind, "sleep_after_s": 1}
    return RunningServer(home, settings, environment=runner.env).start()


@pytest.fixture(scope="module")
def server(runner: Podman | Docker, network: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    running = opened(tmp_path_factory.mktemp("containers") / "home", runner, network)
    yield running
    assert running.stop() == 0
    assert not versions(runner, PROJECT)


@pytest.fixture(scope="module")
def deployer(server: RunningServer, tmp_path_factory: pytest.TempPathFactory) -> Contained:
    return Contained(server, PROJECT, tmp_path_factory.mktemp("scratch"))


def versions(runner: Podman | Docker, project: str) -> list[str]:
    """The containers that there are, running or not, by the versions that they serve."""
    labels = [each.get("Labels") or {} for each in runner.containers()]
    names = [each.get("trainshed.version", "") for each in labels]
    return sorted(name for name in names if name.startswith(f"{project}/"))


def test_a_container_serves_a_version(deployer: Contained, image: str) -> None:
    details = deployer.contained(
        "v1",
        image,
        weight=3,
        routes={"predict": "/answer", "health": "/ok"},
    )
    assert details["loader"] == "container"
    assert details["detail"].startswith(f"the container {image} (")
    assert details["runtime"] == ""
    assert "weight 3 as user 1234" in details["log"]
    assert deployer.predict("v1", 1, 2) == [3, 6]
    assert deployer.predict("", 5) == [15]
    assert deployer.raw("v1", b"words", "text/plain") == (200, "text/plain; charset=utf-8", b"WORDS")
    assert deployer.ask("v1", "word") == (422, {"error": "numbers, please"})


def test_one_that_fails_says_why_in_its_own_words(deployer: Contained, runner: Podman | Docker, image: str) -> None:
    reason = deployer.refused(deployer.contain("bad", image, container={"image": image, "args": ["fail"]}))
    assert "The container ended with the exit status 1 before it was healthy." in reason
    assert "these weights are of another model" in reason
    eventually(lambda: f"{PROJECT}/m/bad" in versions(runner, PROJECT), lambda there: not there, interval_s=POLL_S)


def test_an_image_that_can_not_be_had_is_told(deployer: Contained) -> None:
    reason = deployer.refused(deployer.contain("none", "localhost/no-such-image:1"))
    assert reason.startswith("Create Version failed. The image localhost/no-such-image:1 is not on this machine")


def test_a_container_that_dies_is_replaced(deployer: Contained, runner: Podman | Docker, image: str) -> None:
    deployer.contained("dies", image, weight=2)
    [name] = [
        each["Names"][0]
        for each in runner.containers()
        if (each.get("Labels") or {}).get("trainshed.version") == f"{PROJECT}/m/dies"
    ]
    runner("kill", name)
    deployer.until_answers("dies", 4)
    assert deployer.predict("dies", 4) == [8]
    eventually(
        lambda: versions(runner, PROJECT).count(f"{PROJECT}/m/dies"), lambda count: count == 1, interval_s=POLL_S
    )


def test_several_hosts_sleep_and_wake_after_the_tag_moved_on(
    deployer: Contained, runner: Podman | Docker, image: str
) -> None:
    """As those of other versions do; deleted, they leave nothing."""
    moving = "localhost/trainshed-tests/moving:1"
    runner("tag", image, moving)
    deployer.contained("two", moving, manualScaling={"nodes": 2})
    eventually(lambda: [host["state"] for host in deployer.details("two")["hosts"]], lambda seen: seen == ["READY"] * 2)
    assert versions(runner, PROJECT).count(f"{PROJECT}/m/two") == 2
    runner("tag", runner.base(), moving)
    deployer.finish(
        deployer.server.call(
            "PATCH", f"{deployer.path}/versions/two?updateMask=autoScaling", {"autoScaling": {"minNodes": 0}}
        )
    )
    eventually(lambda: f"{PROJECT}/m/two" in versions(runner, PROJECT), lambda there: not there, interval_s=POLL_S)
    assert deployer.predict("two", 7) == [7]
    deployer.finish(deployer.delete("two"))
    assert f"{PROJECT}/m/two" not in versions(runner, PROJECT)
    assert deployer.ask("two", 1)[0] == 404


def test_it_is_told_what_ai_platform_tells_by_gclouds_flags(deployer: Contained, image: str) -> None:
    def run(*words: str) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-m", "trainshed.cli", *words, "--project", PROJECT]
        return subprocess.run(argv, env=deployer.server.env(), capture_output=True, text=True, check=False)

    made = run(
        *("versions", "create", "told", "--model", "m", "--image", image, "--machine-type", "n1-standard-2"),
        *("--env-vars", "A=1,GREETING=hello $(AIP_VERSION_NAME)", "--predict-route", "/p", "--health-route", "/h"),
        *("--command", "python3,/predictor.py", "--args", "a,$(GREETING)"),
    )
    assert made.returncode == 0, made.stderr
    env = deployer.asked("told", "env")
    assert (env["A"], env["GREETING"], env["AIP_PREDICT_ROUTE"]) == ("1", "hello told", "/p")
    assert env["AIP_MODE"] == "PREDICTION"
    assert env["AIP_STORAGE_URI"] == ""
    assert env["AIP_MACHINE_TYPE"] == "n1-standard-2"
    assert not [name for name in env if name.startswith("TRAINSHED")]
    assert f"Served by the container {image} (" in run("versions", "describe", "told", "--model", "m").stderr
    assert deployer.get("told")["container"] == {
        "image": image,
        "command": ["python3", "/predictor.py"],
        "args": ["a", "$(GREETING)"],
        "env": [{"name": "A", "value": "1"}, {"name": "GREETING", "value": "hello $(AIP_VERSION_NAME)"}],
    }


def test_the_python_client_deploys_containers(
    server: RunningServer, image: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAINSHED_HOME", str(server.home))
    with trainshed.connect(project=PROJECT) as connected:
        model = connected.models.deploy("python", config={"container": {"image": image}})
        assert model.predict([3]) == [3]
        [env] = model.predict(["env"])
    assert env["AIP_PREDICT_ROUTE"].startswith("/v1/models/python/versions/")
    assert env["AIP_PREDICT_ROUTE"].endswith(":predict")


def test_nothing_is_left_of_a_server_that_was_killed(runner: Podman | Docker, image: str, tmp_path: Path) -> None:
    project = "killed-containers"
    server = opened(tmp_path / "home", runner, HOST)  # which must work everywhere
    try:
        deployer = Contained(server, project, tmp_path)
        deployer.contained("v1", image, weight=2)
        assert deployer.asked("v1", "env")["AIP_HTTP_PORT"] != "8080"
        server.kill()
        eventually(lambda: versions(runner, project), lambda left: not left, interval_s=POLL_S)
        server.start()
        deployer.until_answers("v1", 4)
        assert deployer.predict("v1", 4) == [8]
        reapers = [int(child) for child in tree.children(server.pid) if _is_reaper(child)]
        assert len(reapers) == 1
        server.kill()
        for pid in reapers:  # so that there is nobody who could clean up
            tree.send_signal(pid, signal.SIGKILL)
        server.start()
        deployer.until_answers("v1", 4)
        assert versions(runner, project) == [f"{project}/m/v1"]
    finally:
        server.stop()
    assert not versions(runner, project)


def _is_reaper(pid: int) -> bool:
    try:
        return b"reap" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:  # it has ended
        return False
