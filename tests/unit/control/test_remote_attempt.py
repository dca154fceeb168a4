"""Attempts for other machines whose replicas bring an image."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from trainshed.buckets.staging import ObjectReader
from trainshed.config import Home, Settings
from trainshed.control.jobs.credentials import RemoteCredentials
from trainshed.control.jobs.remote_attempt import RemoteAttemptBuilder
from trainshed.control.uri_resolver import UriResolver
from trainshed.domain.capacity.machine_types import MachineTypes
from trainshed.domain.capacity.placement import ResourceShares
from trainshed.domain.jobs.job import Job
from trainshed.domain.jobs.training import Training
from trainshed.engines.base import AttemptSpec, Mount
from trainshed.engines.local.engine import render
from trainshed.proxy.node_endpoint import NodeEndpoint

CREDENTIALS = Mount(source=Path("@node@/credentials"), target=Path("/etc/trainshed"), read_only=True)
INPUT: dict[str, Any] = {
    "region": "us-central1",
    "masterConfig": {"imageUri": "trainer:1"},
    "args": ["--data", "gs://mine/data"],
    "jobDir": "gs://mine/out",
    "scaleTier": "CUSTOM",
    "masterType": "n1-standard-4",
}


class FolderBackends:
    """Backends without a cloud, of which no object is read."""

    def cloud_of(self, bucket: str) -> str:
        return ""

    def open(self, bucket: str, name: str) -> ObjectReader:
        raise NotImplementedError


def prepared(tmp_path: Path, **settings: Any) -> AttemptSpec:
    def issue(project: str, job: str, *, ttl_s: float) -> str:
        return "ts_secret"

    reach = NodeEndpoint(tls_url="https://10.0.0.1:8471", authority="pem", serves_gs=True)
    launches = RemoteAttemptBuilder(
        home=Home(tmp_path),
        settings=Settings(**settings),
        uri_resolver=UriResolver(buckets=tmp_path, backend=FolderBackends(), owner=lambda bucket: "p"),
        buckets=lambda project: ["mine", "other"],
        folder=lambda job: tmp_path / "attempt",
        credentials=RemoteCredentials(reach, issue=issue, issue_fetch_token=issue),
        serves_gs=True,
        machines=MachineTypes(),
        shares=ResourceShares(cpu=1.0, memory=1.0),
    )
    job = Job(project="p", id="j", workload=Training.parse(INPUT), runtime="container", created_us=1)
    return launches.prepare(job)


def test_an_image_goes_there_with_its_limits_and_addresses_as_they_are(tmp_path: Path) -> None:
    launch = prepared(tmp_path)
    [master] = launch.replicas
    assert master.container is not None
    assert master.container.image == "trainer:1"
    assert master.container.args == ("--data", "gs://mine/data", "--job-dir", "gs://mine/out")
    assert (master.container.cpus, master.container.memory_bytes) == (4, 15_000_000_000)
    assert launch.remote is not None
    assert launch.remote.runtime == {}, "nothing is built there"
    assert "@host:master-replica-0@" in master.env["TF_CONFIG"]


def test_the_way_to_the_server_is_where_containers_see_it(tmp_path: Path) -> None:
    launch = prepared(tmp_path)
    assert launch.env["CLOUDSDK_AUTH_ACCESS_TOKEN_FILE"] == "/etc/trainshed/token"
    assert launch.env["SSL_CERT_FILE"] == "/etc/trainshed/bundle.pem"
    assert "@node@" not in repr(launch.env)
    assert launch.remote is not None
    boto = launch.remote.credentials["files"]["boto"]
    assert "ca_certificates_file = /etc/trainshed/bundle.pem" in boto
    assert "state_dir = /tmp/gsutil" in boto, "what is mounted can't be written to"


@pytest.mark.parametrize(
    ("given", "mounts"),
    [
        ({}, (CREDENTIALS,)),
        (
            {"node_buckets": "/mnt/shed"},
            (
                Mount(source=Path("/mnt/shed/mine"), target=Path("/gcs/mine"), read_only=False),
                Mount(source=Path("/mnt/shed/other"), target=Path("/gcs/other"), read_only=False),
                CREDENTIALS,
            ),
        ),
    ],
)
def test_a_container_there_sees_what_its_machine_has_of_the_server(
    tmp_path: Path, given: dict[str, Any], mounts: tuple[Mount, ...]
) -> None:
    launch = prepared(tmp_path, **given)
    assert launch.containers is not None
    assert launch.containers.mounts == mounts
    spec = json.loads(json.dumps(render(launch, uv=Path("uv"), cluster={}), default=str))
    assert [each["source"] for each in spec["containers"]["mounts"]] == [str(each.source) for each in mounts]
