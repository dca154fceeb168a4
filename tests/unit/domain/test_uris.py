"""gs:// URIs."""

from __future__ import annotations

import pytest

from trainshed.domain.uris import bucket_of, is_uri, uri_parts
from trainshed.errors import InvalidArgumentError


@pytest.mark.parametrize(
    ("uri", "parts"),
    [
        ("gs://b/a/b", ("b", "a/b")),
        ("gs://b/a/", ("b", "a/")),
        ("gs://b/", ("b", "")),
        ("gs://b", ("b", "")),
        ("gs://b/line\nend", ("b", "line\nend")),
        ("gs://b*/x?", ("b*", "x?")),
        ("gs://", ("", "")),
    ],
)
def test_a_uri_names_a_bucket_and_an_object(uri: str, parts: tuple[str, str]) -> None:
    assert is_uri(uri)
    assert uri_parts(uri) == parts


@pytest.mark.parametrize("text", ["/tmp/x", "b/x", "s3://b/x", "gs:///x", "GS://b/x", ""])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgumentError, match=r"is not in a bucket\. Write gs://BUCKET/NAME"):
        uri_parts(text)


@pytest.mark.parametrize(("text", "bucket"), [("b", "b"), ("gs://b", "b"), ("gs://b/", "b"), ("gs://b/x", "b/x")])
def test_a_bucket_is_named_with_or_without_its_scheme(text: str, bucket: str) -> None:
    assert bucket_of(text) == bucket
