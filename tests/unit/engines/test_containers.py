"""What hosts are told of their containers: which command line, which port, and under which name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from trainshed.config import Home
from trainshed.domain.models.version_container import ServingContainer
from trainshed.engines.hosts.spec import HostSpec, ResolvedContainer
from trainshed.engines.local.containers import BRIDGE, HOST, ContainerOptions, HostContainers, render
from trainshed.serving.container.container import HostContainerSpec

WANTED = ResolvedContainer(
    container=ServingContainer(
        image="example/predictor:1.0",
        command=(),
        args=("--port=$(AIP_HTTP_PORT)", "--model=$(AIP_STORAGE_URI)"),
        env=(("HOME", "/tmp"), ("API_KEY", "a secret")),
        port=0,
        predict="/p",
        health="/h",
    ),
    tool={"kind": "podman", "path": "/usr/bin/podman", "limits": ["memory", "cpu", "pids"]},
    image="sha256:0123456789abcdef",
    env={"AIP_MODE": "PREDICTION", "AIP_STORAGE_URI": "/gcs/mine/model"},
    folder="/gcs/mine/model",
)
SPEC = HostSpec(
    project="p",
    model="m",
    version="v",
    instance=0,
    python=Path("/usr/bin/python3"),
    model_dir=Path("/home/models/p/d00d"),
    loader="container",
    container=WANTED,
    threads=1,
    memory_bytes=1 << 20,
    body_limit=1 << 20,
)


def rendered(network: str, *, port: int = 0) -> dict[str, Any]:
    wanted = replace(WANTED, container=replace(WANTED.container, port=port))
    return render(SPEC, wanted, ContainerOptions(network=network), name="n", port=12345)


def test_on_a_network_of_its_own_it_listens_where_it_likes() -> None:
    order = rendered(BRIDGE)
    assert order["port"] == 12345
    assert order["box"].ports == [(12345, 8080)]
    assert order["box"].args == ["--port=8080", "--model=/gcs/mine/model"]
    assert order["box"].env == {
        "AIP_HTTP_PORT": "8080",
        "AIP_MODE": "PREDICTION",
        "AIP_STORAGE_URI": "/gcs/mine/model",
        "HOME": "/tmp",
        "API_KEY": "a secret",
    }
    assert rendered(BRIDGE, port=9000)["box"].ports == [(12345, 9000)]


def test_on_the_machines_network_it_listens_on_a_free_port_or_its_own() -> None:
    order = rendered(HOST)
    assert (order["port"], order["box"].ports, order["box"].env["AIP_HTTP_PORT"]) == (12345, [], "12345")
    order = rendered(HOST, port=9000)
    assert (order["port"], order["box"].env["AIP_HTTP_PORT"]) == (9000, "9000")


def test_the_order_is_one_that_hosts_take(tmp_path: Path) -> None:
    containers = HostContainers(Home(tmp_path), free_port=lambda: 12345)
    order = containers.order(SPEC, WANTED)
    taken = HostContainerSpec.from_json(order)
    assert taken.image == "example/predictor:1.0 (0123456789ab)"
    assert taken.run[:2] == ("/usr/bin/podman", "run")
    words = " ".join(taken.run)
    assert "--publish 127.0.0.1:12345:8080" in words
    assert "--network host" not in words
    assert "--cap-drop all" in words
    assert "source=/home/models/p/d00d,target=/gcs/mine/model,readonly" in words
    assert "sha256:0123456789abcdef --port=8080" in words
    assert "a secret" not in words
    assert "a secret" not in repr(taken)
    assert (taken.env["API_KEY"], taken.env["AIP_HTTP_PORT"]) == ("a secret", "8080")
    name = taken.run[taken.run.index("--name") + 1]
    assert taken.end[-1] == name
    assert containers.order(SPEC, WANTED)["end"][-1] != name


def test_without_files_nothing_is_mounted() -> None:
    order = render(SPEC, replace(WANTED, folder=""), ContainerOptions(), name="n", port=12345)
    assert order["box"].mounts == []


@pytest.mark.parametrize("content", [None, b"", b"{}", b"[]"])
def test_where_there_were_none_nothing_is_swept(tmp_path: Path, content: bytes | None) -> None:
    home = Home(tmp_path)
    if content is not None:
        home.hosts.mkdir()
        (home.hosts / ".containers").write_bytes(content)
    HostContainers(home, free_port=lambda: 1).sweep()
