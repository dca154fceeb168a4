"""Which program runs containers, what it is told, and which images it is given. The programs here are small scripts."""

from __future__ import annotations

import fcntl
import itertools
import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trainshed.node.containers import images
from trainshed.node.containers import tool as container_tool
from trainshed.node.containers.replica import attempt_key, run_replica
from trainshed.node.containers.tool import DOCKER, PODMAN, ContainerSpec, ContainerTool, NoContainerToolError
from trainshed.node.remote.setup import prepare_node
from trainshed.testing.eventually import eventually

ROOT = ("memory", "cpu", "pids")
#: answers `info`; has the images that are files in a folder beside it; pulls those in `registry`
SCRIPT = """#!{python}
import os, shutil, sys
folder = os.path.dirname(os.path.abspath(__file__))
name = os.path.basename(__file__)
words = sys.argv[1:]
def has(image):
    return os.path.join(folder, name + "-images", image.replace("/", "_"))
if words[0] == "info":
    if not os.path.exists(os.path.join(folder, name + "-info")):
        sys.exit("Cannot connect to the daemon.\\nIs it running?")
    print(open(os.path.join(folder, name + "-info")).read())
elif words[:2] == ["image", "inspect"]:
    if not os.path.exists(has(words[2])):
        sys.exit("Error: no such image")
    print(open(has(words[2])).read())
elif words[0] == "pull":
    source = os.path.join(folder, "registry", words[1].replace("/", "_"))
    print("Copying blob 1 of 1", flush=True)
    if not os.path.exists(source):
        sys.exit(os.environ.get("PULL_ERROR", "Error: connection refused."))
    shutil.copy(source, has(words[1]))
elif words[0] == "ps":
    key = words[-1].rpartition("=")[2]
    print("\\n".join(name for name in os.listdir(os.path.join(folder, "containers")) if name.startswith(key)))
elif words[0] == "rm":
    for each in words[3:]:
        os.unlink(os.path.join(folder, "containers", each))
"""
Install = Callable[..., Path]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Puts a program on an otherwise empty PATH."""
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "registry").mkdir()

    def put(kind: str, info: object = None) -> Path:
        path = tmp_path / kind
        path.write_text(SCRIPT.format(python=sys.executable))
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        (tmp_path / f"{kind}-images").mkdir()
        if info is not None:
            (tmp_path / f"{kind}-info").write_text(json.dumps(info))
        return path

    return put


def add(folder: Path, image: str, *, architecture: str = "") -> None:
    about = [{"Id": f"id-of-{image}", "Architecture": architecture or container_tool.architecture()}]
    (folder / image.replace("/", "_")).write_text(json.dumps(about))


ROOTFUL = {"host": {"security": {"rootless": False}}}
DAEMON = {"MemoryLimit": True, "CpuCfsQuota": True, "PidsLimit": False}


def test_a_machine_with_neither_is_told_what_to_install(install: Install) -> None:
    with pytest.raises(
        NoContainerToolError, match=r"needs Podman or Docker to run it, and this machine has neither. Install it"
    ):
        container_tool.find()
    with pytest.raises(NoContainerToolError, match=r"needs Docker to run it, and this machine has none"):
        container_tool.find("docker")


def test_a_client_without_its_daemon_is_not_enough(install: Install) -> None:
    path = install("docker")
    with pytest.raises(
        NoContainerToolError, match=rf"{path} does not work on this machine: Is it running\?. Start Docker's daemon"
    ):
        container_tool.find()
    install("podman", ROOTFUL)
    assert [tool.kind for tool in container_tool.find()] == [PODMAN]


def test_podman_comes_first_unless_the_other_is_wanted(install: Install) -> None:
    install("podman", ROOTFUL)
    install("docker", DAEMON)
    assert [(tool.kind, tool.limits) for tool in container_tool.find()] == [(PODMAN, ROOT), (DOCKER, ("memory", "cpu"))]
    assert [tool.kind for tool in container_tool.find("docker")] == [DOCKER]


@pytest.mark.parametrize(
    ("controllers", "limits"), [(None, ()), (["memory", "pids"], ("memory", "pids")), (["cpu", "io"], ("cpu",))]
)
def test_a_users_podman_limits_what_the_machine_lets_it(
    install: Install, controllers: list[str] | None, limits: tuple[str, ...]
) -> None:
    install("podman", {"host": {"security": {"rootless": True}, "cgroupControllers": controllers}})
    assert container_tool.find()[0].limits == limits


def words_after(argv: list[str], flag: str) -> list[str]:
    return [value for word, value in itertools.pairwise(argv) if word == flag]


def test_a_container_gets_no_privilege_and_only_what_is_mounted() -> None:
    box = ContainerSpec(
        "trainshed-1-master-replica-0",
        "image",
        args=["--x"],
        env={"A": "1 2", "B": ""},
        labels={"trainshed.job": "p/j/1"},
        mounts=[
            {"source": "/home/a,b/buckets/c", "target": "/gcs/c", "read_only": False},
            {"source": "/kit", "target": "/etc/trainshed", "read_only": True},
        ],
    )
    argv = container_tool.run_command(ContainerTool(PODMAN, "/bin/podman", ROOT), box)
    assert argv[:4] == ["/bin/podman", "run", "--name", "trainshed-1-master-replica-0"]
    assert argv[-2:] == ["image", "--x"]
    assert words_after(argv, "--cap-drop") == ["all"]
    assert "no-new-privileges" in words_after(argv, "--security-opt")
    assert words_after(argv, "--network") == ["host"]
    assert words_after(argv, "--pids-limit") == ["4096"]
    assert words_after(argv, "--env") == ["A", "B"]
    assert container_tool.environment(box) == {"A": "1 2", "B": ""}
    assert words_after(argv, "--label") == ["trainshed.job=p/j/1"]
    assert words_after(argv, "--mount") == [
        'type=bind,"source=/home/a,b/buckets/c",target=/gcs/c',
        "type=bind,source=/kit,target=/etc/trainshed,readonly",
    ]
    assert "--http-proxy=false" in argv
    assert not {"--privileged", "--cap-add", "--device", "--volume", "--read-only", "--entrypoint"} & set(argv)


@pytest.mark.parametrize("kind", [PODMAN, DOCKER])
def test_values_of_variables_are_not_on_the_command_line(kind: str) -> None:
    names = ("API_KEY", "GOOGLE_API_KEY", "TF_CONFIG", "https_proxy", "SSL_CERT_FILE", "HOMEPAGE", "TRAINSHED_REPLICA")
    secrets = {name: f"secret of {name}" for name in names}
    box = ContainerSpec("n", "i", env=secrets)
    argv = container_tool.run_command(ContainerTool(kind, kind, ROOT), box)
    assert words_after(argv, "--env") == sorted(secrets)
    assert "secret" not in " ".join(argv)
    assert container_tool.environment(box) == secrets


@pytest.mark.parametrize(
    "name",
    ["PATH", "HOME", "TMPDIR", "LD_PRELOAD", "XDG_RUNTIME_DIR", "CONTAINERS_CONF", "CONTAINER_HOST", "DOCKER_HOST"],
)
def test_a_variable_that_the_tool_goes_by_itself_is_not_put_into_its_environment(name: str) -> None:
    box = ContainerSpec("n", "i", env={name: "/in/the/container", "OTHER": "1"})
    argv = container_tool.run_command(ContainerTool(PODMAN, "podman", ROOT), box)
    assert words_after(argv, "--env") == sorted([f"{name}=/in/the/container", "OTHER"])
    assert container_tool.environment(box) == {"OTHER": "1"}


def test_a_command_takes_the_place_of_the_images_own() -> None:
    box = ContainerSpec("n", "image", command=["python3", "-m", "task"], args=["--x"])
    argv = container_tool.run_command(ContainerTool(DOCKER, "docker", ()), box)
    assert words_after(argv, "--entrypoint") == ["python3"]
    assert argv[-4:] == ["image", "-m", "task", "--x"]
    assert "--http-proxy=false" not in argv, "Docker does not know it"


def test_a_container_is_limited_where_that_means_something() -> None:
    cpus, much = os.cpu_count() or 1, 1 << 50
    tool = ContainerTool(PODMAN, "podman", ROOT)
    small = container_tool.run_command(tool, ContainerSpec("n", "i", cpus=0.5, memory_bytes=1 << 28))
    assert words_after(small, "--cpus") == ["0.5"]
    assert words_after(small, "--memory") == [str(1 << 28)]
    assert words_after(small, "--shm-size") == [str(1 << 27)]
    large = container_tool.run_command(tool, ContainerSpec("n", "i", cpus=cpus + 1, memory_bytes=much))
    assert not {"--cpus", "--memory"} & set(large), "more than the machine has is no limit"
    unable = container_tool.run_command(
        ContainerTool(PODMAN, "podman", ()), ContainerSpec("n", "i", cpus=0.5, memory_bytes=1 << 28)
    )
    assert not {"--cpus", "--memory", "--pids-limit"} & set(unable)


def test_what_an_image_holds_can_be_kept_from_changes() -> None:
    argv = container_tool.run_command(ContainerTool(PODMAN, "podman", ROOT), ContainerSpec("n", "i", read_only=True))
    assert "--read-only" in argv
    assert words_after(argv, "--tmpfs") == ["/tmp", "/var/tmp", "/run"]


def tools(install: Install) -> list[ContainerTool]:
    install("podman", ROOTFUL)
    install("docker", DAEMON)
    return container_tool.find()


def test_the_tool_that_has_the_images_runs_them(install: Install, tmp_path: Path) -> None:
    both = tools(install)
    add(tmp_path / "docker-images", "a/b")
    tool, ids = images.ensure_images(both, {"a/b": True}, lambda line: None)
    assert (tool.kind, ids) == (DOCKER, {"a/b": "id-of-a/b"})
    add(tmp_path / "podman-images", "a/b")
    assert images.ensure_images(both, {"a/b": True}, lambda line: None)[0].kind == PODMAN


def test_what_nobody_has_is_pulled_and_that_is_told(install: Install, tmp_path: Path) -> None:
    both = tools(install)
    add(tmp_path / "docker-images", "here")
    add(tmp_path / "registry", "here")
    add(tmp_path / "registry", "afar")
    said: list[str] = []
    tool, ids = images.ensure_images(both, {"afar": True, "here": True}, said.append)
    assert (tool.kind, sorted(ids)) == (PODMAN, ["afar", "here"])
    assert said[:3] == [
        "The image afar is not on this machine: pulling it with podman.",
        "Copying blob 1 of 1",
        "The image afar was pulled.",
    ]


def test_an_image_that_cannot_be_had_is_named_with_a_remedy(install: Install) -> None:
    with pytest.raises(images.ImageError) as refused:
        images.ensure_images(tools(install), {"a/b": True}, lambda line: None)
    assert str(refused.value) == (
        "The image a/b is not on this machine, and it can't be pulled: there was no answer of a registry. Build it "
        "here, with `podman build -t a/b .`, or check its name and whether this machine reaches the registry."
    )


PULL_ERRORS = {  # of Podman and Docker
    "a closed port": 'pinging container registry h:1: Get "https://h:1/v2/": dial tcp 10.0.0.1:1: connect: '
    "connection refused",
    "no such host": 'Get "https://h/v2/": dial tcp: lookup h on 10.0.0.2:53: no such host',
    "a silent port": 'Get "https://h:1/v2/": net/http: TLS handshake timeout',
    "another service": 'Get "https://h:1/v2/": http: server gave HTTP response to HTTPS client',
    "a page": "invalid status code from registry 418 (I'm a teapot): secret words of an internal page",
    "an answer": "reading manifest 7 in h/x: manifest unknown: manifest unknown",
    "a denial": "Error response from daemon: pull access denied for x, repository does not exist or may require "
    "'docker login': denied: requested access to the resource is denied",
}


def test_a_pull_tells_what_a_registry_answered_and_nothing_of_the_network(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    both, told = tools(install), {}
    for name, error in PULL_ERRORS.items():
        warning = f'time="now" level=warning msg="Failed, retrying in 1s. Error: {error}"'
        monkeypatch.setenv("PULL_ERROR", f"{warning}\nError: {error}")
        logged: list[str] = []
        with pytest.raises(images.ImageError) as refused:
            images.ensure_images(both, {"h/x": True}, logged.append)
        facts = refused.value.failure["facts"]
        assert isinstance(facts, dict)
        told[name] = facts["detail"]
        assert logged == [
            f"The image h/x is not on this machine: pulling it with {both[0].kind}.",
            "Copying blob 1 of 1",
        ]
    assert told.pop("an answer") == "the registry has no such tag (manifest unknown)"
    assert told.pop("a denial") == "the registry denies access, or has no such image (unauthorized)"
    assert set(told.values()) == {"there was no answer of a registry"}


def test_an_image_of_another_registry_is_not_pulled(install: Install, tmp_path: Path) -> None:
    both = tools(install)
    add(tmp_path / "registry", "a/b")
    logged: list[str] = []
    with pytest.raises(images.ImageError, match="the setting image_registries does not allow to pull it"):
        images.ensure_images(both, {"a/b": False}, logged.append)
    assert logged == []


@pytest.mark.parametrize("way", ["here", "afar", "in no list"])
def test_an_image_for_another_machine_is_named_with_a_remedy(
    install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    both = tools(install)
    if way != "in no list":
        add(tmp_path / ("podman-images" if way == "here" else "registry"), "a/b", architecture="s390x")
    monkeypatch.setenv("PULL_ERROR", "Error: no image found in manifest list for architecture amd64")
    with pytest.raises(images.ImageError) as refused:
        images.ensure_images(both, {"a/b": True}, lambda line: None)
    here = container_tool.architecture()
    made_for = "other machines alone" if way == "in no list" else "s390x"
    assert str(refused.value) == (
        f"The image a/b is made for {made_for}, and this machine is {here}. Build it for this machine: "
        f"`podman build --platform linux/{here} -t a/b .`"
    )


@pytest.mark.parametrize("whose", ["of another replica", "of a copy before this one"])
def test_the_container_of_a_killed_agent_is_removed_before_another_one_starts(
    install: Install, tmp_path: Path, whose: str
) -> None:
    path = install("podman", ROOTFUL)
    (tmp_path / "containers").mkdir()
    add(tmp_path / "podman-images", "i")
    gang = tmp_path / "cache" / "replicas" / "trainshed" / "p" / "j" / "1"
    orphan = gang / ("ps-replica-0" if whose == "of another replica" else "master-replica-0") / "1.0"
    living, own = gang / "worker-replica-0" / "1.0", gang / "master-replica-0" / "1.1"
    for folder in (orphan, living):
        folder.mkdir(parents=True)
        found = {"tool": ContainerTool(PODMAN, str(path), ROOT).words(), "images": {}}
        (folder / images.IMAGES_FILE).write_text(json.dumps(found))
        (tmp_path / "containers" / attempt_key(str(folder))).touch()
    own.mkdir(parents=True)
    order: dict[str, Any] = {
        "gang": "trainshed/p/j/1",
        "replica": "master-replica-0",
        "incarnation": "1.1",
        "cache": str(tmp_path / "cache"),
        "lock": f"{own.parent}.lock",
        "python": "python3",
        "env": {},
        "container": {"image": "i", "command": [], "args": [], "cpus": 1, "memory_bytes": 1},
        "containers": {"tool": "auto", "read_only": False, "mounts": []},
    }
    with open(order["lock"], "ab") as mine, open(f"{living.parent}.lock", "ab") as theirs:
        for lock in (mine, theirs):
            fcntl.flock(lock, fcntl.LOCK_EX)
        assert prepare_node(str(own), order, str(own / "prepared.json")) == 0
    assert [each.name for each in (tmp_path / "containers").iterdir()] == [attempt_key(str(living))]
    assert not (orphan / images.IMAGES_FILE).exists()
    assert (own / images.IMAGES_FILE).exists()


#: a tool whose container is a process that ends as the word after the image says
RUNNER = """#!{python}
import os, signal, sys, time
if sys.argv[1:3] == ["container", "inspect"]:
    print(os.getppid())
if sys.argv[1] == "run":
    print("runs", flush=True)
    how = sys.argv[-1]
    if how == "tell":
        print(" ".join(sys.argv), flush=True)
        print(os.environ["API_KEY"], os.environ["PATH"], flush=True)
        how = "0"
    if how == "wait":
        signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(3))
        print("waits", flush=True)
        time.sleep(60)
    sys.exit(int(how))
"""


def attempt(tmp_path: Path, how: str, kind: str = PODMAN) -> Path:
    tool = tmp_path / "tool"
    tool.write_text(RUNNER.format(python=sys.executable))
    tool.chmod(0o755)
    folder = tmp_path / "attempt"
    folder.mkdir()
    container = {"image": "i", "command": [], "args": [how], "cpus": 1, "memory_bytes": 1 << 30}
    env = {"API_KEY": "a secret", "PATH": "/in/the/container"}
    replica = {"name": "master-replica-0", "env": env, "container": container}
    common = {"tool": "auto", "read_only": False, "mounts": []}
    spec = {"project": "p", "job": "j", "attempt": 1, "env": {}, "replicas": [replica], "containers": common}
    (folder / "spec.json").write_text(json.dumps(spec))
    found = {"tool": ContainerTool(kind, str(tool), ROOT).words(), "images": {"i": "i"}}
    (folder / images.IMAGES_FILE).write_text(json.dumps(found))
    return folder


def stand_in(folder: Path) -> subprocess.Popen[str]:
    run = f"run_replica({str(folder)!r}, 'master-replica-0')"
    code = f"import os; from {run_replica.__module__} import run_replica; os._exit({run})"
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize(
    ("status", "seen"), [("0", 0), ("7", 7), ("125", 125), ("137", -9), ("143", -15), ("255", 255)]
)
def test_the_stand_in_ends_as_its_container_does(tmp_path: Path, status: str, seen: int) -> None:
    with stand_in(attempt(tmp_path, status)) as process:
        assert process.wait(timeout=30) == seen


def test_values_of_variables_reach_the_tool_by_its_environment(tmp_path: Path) -> None:
    with stand_in(attempt(tmp_path, "tell")) as process:
        assert process.stdout is not None
        _, words, told = process.stdout.read().splitlines()
    assert "--env API_KEY --env PATH=/in/the/container --env PYTHONUNBUFFERED " in words
    assert "a secret" not in words
    assert told == f"a secret {os.environ['PATH']}"


def test_the_stand_in_passes_signals_on(tmp_path: Path) -> None:
    with stand_in(attempt(tmp_path, "wait")) as process:
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(2)] == ["runs\n", "waits\n"]
        process.terminate()
        assert process.wait(timeout=30) == 3


@pytest.mark.parametrize(("kind", "told"), [(PODMAN, False), (DOCKER, True)])
def test_where_a_daemons_container_runs_is_written_down(tmp_path: Path, kind: str, told: bool) -> None:
    folder = attempt(tmp_path, "wait", kind)
    with stand_in(folder) as process:
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(2)] == ["runs\n", "waits\n"]
        path = folder / "master-replica-0.pid"
        if told:
            eventually(path.exists)
            assert path.read_text() == str(process.pid)
        process.terminate()
        process.wait(timeout=30)
    assert not path.exists()
