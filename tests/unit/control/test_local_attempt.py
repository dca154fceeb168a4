"""gs:// addresses in arguments become paths, and only those of the job's own buckets."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainshed.buckets.names import object_path, resolve_uris, split_uri
from trainshed.control.jobs.local_attempt import free_ports
from trainshed.errors import InvalidArgumentError

ROOT = Path("/state/buckets")


def own(uri: str) -> Path | None:
    try:
        bucket, name = split_uri(uri)
        return object_path(ROOT, bucket, name.rstrip("/")) if bucket == "mine" else None
    except InvalidArgumentError:
        return None


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("gs://mine/data", "/state/buckets/mine/data"),
        ("gs://mine/data/", "/state/buckets/mine/data/"),
        ("gs://mine", "/state/buckets/mine"),
        ("--data_dir=gs://mine/data", "--data_dir=/state/buckets/mine/data"),
        ("gs://mine/a*.csv,gs://mine/b", "/state/buckets/mine/a*.csv,/state/buckets/mine/b"),
        ("gs://theirs/data", "gs://theirs/data"),
        ("gs://mine/../theirs/data", "gs://mine/../theirs/data"),
        ("no address", "no address"),
    ],
)
def test_addresses_become_paths(given: str, wanted: str) -> None:
    assert resolve_uris(given, own) == wanted


def test_ports_differ() -> None:
    assert len(set(free_ports(30))) == 30


def test_ports_are_not_those_that_the_kernel_gives_to_others() -> None:
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert all(1024 < port < first for port in free_ports(30))
