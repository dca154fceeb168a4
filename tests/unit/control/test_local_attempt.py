"""gs:// addresses in arguments become paths, and only those of the job's own buckets."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainshed.buckets.names import object_path, split_uri
from trainshed.domain.uris import resolve_uris
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
