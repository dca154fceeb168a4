"""What replicas on other machines are told of this server, and what is kept for them."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest

from trainshed.artifacts import staging
from trainshed.artifacts.staging import Package, StagedPackage
from trainshed.buckets.backend import BackendRouter
from trainshed.buckets.file_backend import FileBackend
from trainshed.config import Settings
from trainshed.control.jobs.credentials import RemoteAttempt, RemoteCredentials
from trainshed.control.uri_resolver import UriResolver
from trainshed.domain.uris import resolve_uris
from trainshed.engines.base import AttemptSpec, Replica
from trainshed.errors import CannotProceedError, FailedPreconditionError, NotFoundError
from trainshed.proxy.google_hosts import PATTERN
from trainshed.proxy.node_endpoint import NodeEndpoint, check_reachable, host_for_nodes

REACH = NodeEndpoint(tls_url="https://10.0.0.1:8471", authority="-----PEM-----", serves_gs=True)
CONTENT = b"a package"
SHA256 = hashlib.sha256(CONTENT).hexdigest()


def launch(tmp_path: Path) -> AttemptSpec:
    address = "@host:{0}@:@port:{0}@".format
    cluster = {"chief": [address("master-replica-0")], "worker": [address("worker-replica-0")]}
    names = (("master-replica-0", "master"), ("worker-replica-0", "worker"))
    path = tmp_path / "trainer.tar.gz"
    path.write_bytes(CONTENT)
    return AttemptSpec(
        project="p-one",
        job="j",
        attempt=1,
        folder=tmp_path / "attempt",
        python=Path("/python"),
        module="m",
        args=("--data", "gs://b/data"),
        packages=(Package(uri="gs://b/trainer.tar.gz", path=path, sha256=SHA256),),
        site=Path("/site"),
        replicas=tuple(
            Replica(name=name, type=kind, index=0, primary=False, env={"TF_CONFIG": json.dumps({"cluster": cluster})})
            for name, kind in names
        ),
        env={"MINE": "1", "BOTO_CONFIG": "/chosen"},
        grace_s=1,
        max_running_s=60,
        log_limit_bytes=1,
    )


def equipped(tmp_path: Path, reach: NodeEndpoint = REACH) -> tuple[RemoteAttempt, list[tuple[str, str, str, float]]]:
    issued: list[tuple[str, str, str, float]] = []

    def issue(project: str, job: str, *, ttl_s: float) -> str:
        issued.append(("job", project, job, ttl_s))
        return "ts_of_the_job"

    def issue_fetch_token(project: str, job: str, *, ttl_s: float) -> str:
        issued.append(("fetch", project, job, ttl_s))
        return "ts_fetch"

    return RemoteCredentials(reach, issue=issue, issue_fetch_token=issue_fetch_token).inject(launch(tmp_path)), issued


def test_packages_are_put_aside_and_told_by_content(tmp_path: Path) -> None:
    made, _ = equipped(tmp_path)
    path = f"/trainshed/v1/projects/p-one/jobs/j/packages/{SHA256}"
    assert made.packages == (
        {
            "uri": "gs://b/trainer.tar.gz",
            "sha256": SHA256,
            "size": len(CONTENT),
            "url": f"https://10.0.0.1:8471{path}",
        },
    )
    assert made.spec.packages == ()
    (tmp_path / "trainer.tar.gz").write_bytes(b"another")
    staged = StagedPackage(tmp_path / "attempt", SHA256)
    assert (staged.size, staged.read(2, 4)) == (len(CONTENT), b"pack")
    staged.close()


def test_the_kit_holds_the_tokens_and_the_launch_none(tmp_path: Path) -> None:
    made, issued = equipped(tmp_path)
    assert issued == [("job", "p-one", "j", 86_460), ("fetch", "p-one", "j", 86_460)]
    assert made.credentials["token"] == "ts_fetch"
    assert made.credentials["ca"] == "-----PEM-----"
    assert made.credentials["sidecar_proxy"] == {"host": "10.0.0.1", "port": 8471, "names": PATTERN}
    assert json.loads(made.credentials["files"]["google.json"])["refresh_token"] == "ts_of_the_job"
    assert made.credentials["files"]["token-for"] == "https://10.0.0.1:8471"
    assert "gs_json_host = 10.0.0.1" in made.credentials["files"]["boto"]
    assert "ca_certificates_file = @node@/credentials/bundle.pem" in made.credentials["files"]["boto"]
    assert "ts_of" not in repr(made)
    assert "ts_of" not in repr(made.spec.env)


def test_all_of_it_goes_over_tls_or_by_the_relay(tmp_path: Path) -> None:
    env = dict(equipped(tmp_path)[0].spec.env)
    assert (env["MINE"], env["BOTO_CONFIG"]) == ("1", "/chosen")
    assert {value for value in env.values() if "http://" in value} == {"http://@sidecar_proxy@"}
    assert env["TRAINSHED_URL"] == "https://10.0.0.1:8471"
    assert env["SSL_CERT_FILE"] == "@node@/credentials/bundle.pem"
    assert env["GOOGLE_APPLICATION_CREDENTIALS"] == "@node@/credentials/google.json"
    gang = "@host:master-replica-0@,@host:worker-replica-0@"
    assert env["no_proxy"] == env["NO_PROXY"] == f"localhost,127.0.0.1,::1,10.0.0.1,{gang}"
    assert str(tmp_path) not in repr(env)


def test_with_the_real_cloud_chosen_nothing_but_packages_is_from_here(tmp_path: Path) -> None:
    made, issued = equipped(tmp_path, replace(REACH, serves_gs=False))
    assert made.spec.env == {"MINE": "1", "BOTO_CONFIG": "/chosen"}
    assert made.credentials == {"files": {}, "sidecar_proxy": None, "ca": "-----PEM-----", "token": "ts_fetch"}
    assert [kind for kind, *_ in issued] == ["fetch"]


# -- what is put aside


def test_what_was_replaced_in_between_is_not_put_aside(tmp_path: Path) -> None:
    [package] = launch(tmp_path).packages
    package.path.write_bytes(b"another")
    with pytest.raises(FailedPreconditionError, match="was replaced"):
        staging.stage_package(tmp_path / "attempt", package)
    assert [*(tmp_path / "attempt" / "artifacts").iterdir()] == []


@pytest.mark.parametrize(
    "sha256", ["", "..", "../../spec.json", "0" * 63, "0" * 64, "A" * 64, f"{SHA256}/..", "é" * 64]
)
def test_only_what_was_put_aside_is_given_out(tmp_path: Path, sha256: str) -> None:
    [package] = launch(tmp_path).packages
    staging.stage_package(tmp_path / "attempt", package)
    (tmp_path / "attempt" / "spec.json").write_text("{}")
    with pytest.raises(NotFoundError, match="no package"):
        StagedPackage(tmp_path / "attempt", sha256)


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "artifacts").mkdir()
    (tmp_path / "artifacts" / SHA256).symlink_to("/etc/passwd")
    with pytest.raises(OSError, match="symbolic"):
        StagedPackage(tmp_path, SHA256)


# -- buckets, as other machines see them


def owner(bucket: str) -> str:
    if bucket.startswith("absent"):
        raise NotFoundError("no bucket")
    return "p-two" if bucket == "theirs" else "p-one"


@pytest.fixture
def addresses(tmp_path: Path) -> UriResolver:
    tree = FileBackend(tmp_path / "buckets", tmp_path / "uploads")
    return UriResolver(buckets=tmp_path / "buckets", backend=BackendRouter(tree, {}), owner=owner)


@pytest.mark.parametrize(
    ("given", "shared", "led"),
    [
        ("--data=gs://mine/a/,x", "--data=/mnt/b/mine/a/,x", "--data=gs://mine/a/,x"),
        ("gs://theirs/a", "gs://theirs/a", "gs://theirs/a"),
        ("gs://absent/a", "gs://absent/a", "gs://absent/a"),
        ("s3://mine/a", "s3://mine/a", "s3://mine/a"),
    ],
)
def test_addresses_in_arguments(addresses: UriResolver, given: str, shared: str, led: str) -> None:
    assert resolve_uris(given, addresses.remote_path_resolver("p-one", "/mnt/b", serves_gs=False)) == shared
    assert resolve_uris(given, addresses.remote_path_resolver("p-one", "", serves_gs=True)) == led


def test_a_bucket_with_rules_is_no_folder_for_jobs(addresses: UriResolver, tmp_path: Path) -> None:
    guarded = replace(addresses, is_guarded=lambda bucket: bucket == "mine")
    uri = "--data=gs://mine/a/"
    for path_of in (
        guarded.path_resolver("p-one", serves_gs=True),
        guarded.remote_path_resolver("p-one", "/mnt/b", serves_gs=True),
    ):
        assert resolve_uris(uri, path_of) == uri
        assert resolve_uris("gs://my-other/a", path_of) != "gs://my-other/a"
    with pytest.raises(FailedPreconditionError, match="versioning, holds or retention"):
        resolve_uris(uri, guarded.path_resolver("p-one", serves_gs=False))
    folder = tmp_path / "buckets" / "mine"
    folder.mkdir()
    (folder / "input.csv").write_text("1")
    assert addresses.local_file("p-one", "gs://mine/input.csv", copies=tmp_path / "copies") == folder / "input.csv"
    copy = guarded.local_file("p-one", "gs://mine/input.csv", copies=tmp_path / "copies")
    assert (copy.is_relative_to(tmp_path / "copies"), copy.read_text()) == (True, "1")


def test_an_address_that_would_be_looked_for_elsewhere_is_told_of(addresses: UriResolver) -> None:
    path_of = addresses.remote_path_resolver("p-one", "", serves_gs=False)
    assert resolve_uris("gs://absent/a s3://mine/a", path_of) == "gs://absent/a s3://mine/a"
    with pytest.raises(FailedPreconditionError, match=r"Set node_buckets .* TensorFlow 2, and set gs_in_trainers"):
        resolve_uris("--data=gs://mine/a", path_of)


def test_the_folder_of_buckets_is_a_whole_path() -> None:
    assert Settings(node_buckets="/mnt/buckets").node_buckets == "/mnt/buckets"
    with pytest.raises(CannotProceedError, match="begins with"):
        Settings(node_buckets="mnt")


# -- where other machines find the server


@pytest.mark.parametrize(
    ("listening", "given", "wanted"),
    [
        ("127.0.0.1", "", "127.0.0.1"),
        ("10.1.2.3", "", "10.1.2.3"),
        ("10.1.2.3", "shed.example", "shed.example"),
        ("0.0.0.0", "10.1.2.3", "10.1.2.3"),
    ],
)
def test_the_address_for_other_machines(listening: str, given: str, wanted: str) -> None:
    assert host_for_nodes(listening, given=given, cluster="10.9.9.9") == wanted


@pytest.mark.parametrize("cluster", ["", "127.0.0.1", "localhost", "192.0.2.7", "no-such-host.invalid"])
def test_every_address_becomes_one(cluster: str) -> None:
    assert host_for_nodes("0.0.0.0", cluster=cluster) not in ("", "0.0.0.0")


@pytest.mark.parametrize(
    ("host", "cluster", "good"),
    [
        ("127.0.0.1", "10.0.0.2", False),
        ("localhost", "head.example", False),
        ("::1", "10.0.0.2", False),
        ("127.0.0.1", "127.0.0.1", True),
        ("127.0.0.1", "localhost", True),
        ("10.0.0.1", "10.0.0.2", True),
        ("shed.example", "10.0.0.2", True),
    ],
)
def test_a_server_that_a_cluster_cannot_reach_is_refused(host: str, cluster: str, good: bool) -> None:
    if good:
        check_reachable(host, cluster)
        return
    with pytest.raises(CannotProceedError, match=r"can't reach it. Start it with --host 0\.0\.0\.0"):
        check_reachable(host, cluster)
