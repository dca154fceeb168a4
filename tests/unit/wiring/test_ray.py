"""A Ray cluster as a place for jobs: when there is one, and what is said when there is none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trainshed.config import Home, Settings
from trainshed.control.jobs.credentials import RemoteCredentials
from trainshed.control.jobs.engines import EngineRegistry
from trainshed.domain.capacity.machine_types import STANDARD
from trainshed.domain.jobs.training import Training
from trainshed.domain.jobs.workload import parse_workload
from trainshed.engines.local.engine import LocalEngine
from trainshed.errors import CannotProceedError, InvalidArgumentError
from trainshed.proxy.node_endpoint import NodeEndpoint
from trainshed.wiring.ray import RayDependencies, RayIntegration


def issue(project: str, job: str, *, ttl_s: float) -> str:
    return f"token of {project}/{job} for {ttl_s:g} s"


def ray_site(tmp_path: Path, *, listening: str, **settings: Any) -> RayIntegration:
    home = Home(tmp_path)
    nodes = NodeEndpoint(tls_url=f"https://{listening}:8471", authority="", serves_gs=True)
    known = {
        "home": home,
        "settings": Settings(**settings),
        "uv": Path("uv"),
        "machines": STANDARD,
        "supervisors": LocalEngine(home, Path("uv")),
        "nodes": nodes,
        "credentials": RemoteCredentials(nodes, issue=issue, issue_fetch_token=issue),
    }
    # what it is asked about buckets and folders comes up when a job is prepared
    asked = {name: lambda *_: None for name in RayDependencies.__dataclass_fields__ if name not in known}
    return RayIntegration(RayDependencies(**known, **asked))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("listening", "address", "words"),
    [
        ("10.0.0.1", "", "This server knows no Ray cluster. Start it with --ray-address"),
        ("127.0.0.1", "10.0.0.5:6379", "where the machines of the cluster at 10.0.0.5 can't reach it"),
        ("10.0.0.1", "10.0.0.5:6379", ""),
        ("10.0.0.1", "ray://head.example:10001", ""),
        ("127.0.0.1", "127.0.0.1:6379", ""),
    ],
)
def test_a_job_may_name_it_if_the_server_and_the_cluster_can_reach_each_other(
    tmp_path: Path, listening: str, address: str, words: str
) -> None:
    site = ray_site(tmp_path, listening=listening, ray_address=address).registered_engine
    assert words in site.unavailable_reason
    assert bool(site.unavailable_reason) == bool(words)
    sites = EngineRegistry(
        {"local": ray_site(tmp_path, listening="127.0.0.1", ray_address="127.0.0.1:1").registered_engine, "ray": site},
        default="local",
    )
    training = parse_workload({"trainingInput": {"pythonModule": "trainer.task"}})
    if words:
        with pytest.raises(InvalidArgumentError) as caught:
            sites.choose({"trainshed-engine": "ray"}, training)
        assert words in str(caught.value)
        with pytest.raises(CannotProceedError, match="The setting engine is ray"):
            EngineRegistry(sites.table, default="ray")
    else:
        assert sites.choose({"trainshed-engine": "ray"}, training) == "ray"
        assert EngineRegistry(sites.table, default="ray").choose({}, training) == "ray"


@pytest.mark.parametrize("sandbox", ["full", "landlock"])
def test_a_server_that_must_have_a_sandbox_lets_no_job_use_a_cluster(tmp_path: Path, sandbox: str) -> None:
    settings = {"listening": "10.0.0.1", "ray_address": "10.0.0.5:6379"}
    reason = ray_site(tmp_path, sandbox=sandbox, **settings).registered_engine.unavailable_reason
    assert f"the setting sandbox is '{sandbox}'" in reason
    assert ray_site(tmp_path, sandbox="auto", **settings).registered_engine.unavailable_reason == ""


def test_a_server_without_a_cluster_starts_nothing_and_ends_at_once(tmp_path: Path) -> None:
    ray = ray_site(tmp_path, listening="127.0.0.1")
    ray.begin(lambda: None)
    ray.close()
    assert list(ray.registered_engine.engine.reservations()) == []
    assert not (tmp_path / "bridge").exists()


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, False),
        ({"scaleTier": "BASIC_GPU"}, True),
        ({"scaleTier": "BASIC_GPU", "runtimeVersion": "2.15"}, True),
        ({"scaleTier": "BASIC_GPU", "runtimeVersion": "1.8"}, True),
        ({"scaleTier": "BASIC_GPU", "runtimeVersion": "python"}, False),
        ({"scaleTier": "CUSTOM", "masterType": "standard", "runtimeVersion": "2.15"}, False),
    ],
)
def test_a_job_is_told_that_tensorflow_has_no_use_for_its_gpus(
    tmp_path: Path, given: dict[str, str], told: bool
) -> None:
    site = ray_site(tmp_path, listening="10.0.0.1", ray_address="10.0.0.5:6379").registered_engine
    said = site.shortfall(Training.parse({"pythonModule": "trainer.task"} | given))
    assert ("computes on CPUs" in said) is told
