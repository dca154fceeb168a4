"""Signed URLs as values: what was signed, and what is no signature at all."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainshed.domain.access.signatures import SignableRequest, account_of, email_of, signed_url
from trainshed.errors import InvalidArgumentError

V4 = {
    "X-Goog-Algorithm": "GOOG4-RSA-SHA256",
    "X-Goog-Credential": "ci@p-one.iam.gserviceaccount.com/20261119/auto/storage/goog4_request",
    "X-Goog-Date": "20261119T060000Z",
    "X-Goog-Expires": "60",
    "X-Goog-SignedHeaders": "host",
    "X-Goog-Signature": "00ff",
}
V2 = {"GoogleAccessId": "ci@p-one.iam.gserviceaccount.com", "Expires": "1795068000", "Signature": "AAE="}


def request(query: dict[str, str], host: str = "h:1", **headers: str) -> SignableRequest:
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return SignableRequest(
        method="GET", host=host, bucket="b", name="a b/ü~", query=tuple(query.items()), headers=names
    )


def test_what_v4_signs() -> None:
    signed = signed_url(request(V4))
    assert (signed.email, signed.signature, len(signed.texts)) == (V2["GoogleAccessId"], b"\x00\xff", 2)
    assert signed.texts[1:] == signed_url(request(V4, host="h")).texts  # Node's library signs the host without its port
    assert signed.expires_us - signed.begins_us == 60_000_000
    head, date, scope, digest = signed.texts[0].decode().split("\n")
    assert (head, date, scope) == (
        "GOOG4-RSA-SHA256",
        "20261119T060000Z",
        "20261119/auto/storage/goog4_request",
    )
    assert len(digest) == 64


def test_what_v2_signs() -> None:
    signed = signed_url(request(V2 | {"generation": "5"}, content_type="text/plain", x_goog_meta_a="1"))
    text = "GET\n\ntext/plain\n1795068000\nx-goog-meta-a:1\n/b/a%20b/%C3%BC~"
    assert signed.texts == (text.encode(), f"{text}?generation=5".encode())
    assert (signed.signature, signed.expires_us) == (b"\x00\x01", 1_795_068_000_000_000)


@pytest.mark.parametrize(
    "change",
    [
        {"X-Goog-Algorithm": "GOOG4-HMAC-SHA256"},
        {"X-Goog-Credential": "ci"},
        {"X-Goog-Date": "today"},
        {"X-Goog-Date": "20261399T060000Z"},
        {"X-Goog-Expires": "604801"},
        {"X-Goog-Expires": "-1"},
        {"X-Goog-SignedHeaders": "content-type"},
        {"X-Goog-Signature": "zz"},
        {"X-Goog-Signature": "ü"},
    ],
    ids=str,
)
def test_other_forms_are_refused_without_the_signature(change: dict[str, str]) -> None:
    with pytest.raises(InvalidArgumentError) as raised:
        signed_url(request(V4 | change))
    assert "00ff" not in str(raised.value)


def test_a_digest_of_the_body_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="digest"):
        signed_url(request(V4, x_goog_content_sha256="0" * 64))


def digest_of(query: dict[str, str], *, host: str, bucket: str, name: str) -> bytes:
    pairs = tuple(query.items())
    return signed_url(
        SignableRequest(method="GET", host=host, bucket=bucket, name=name, query=pairs, headers={})
    ).texts[0]


def test_a_v4_url_covers_what_could_copy_other_objects() -> None:
    with pytest.raises(InvalidArgumentError, match="not x-goog-copy-source here"):
        signed_url(request(V4, x_goog_copy_source="/b/secret", x_goog_hash="crc32c=AAAAAA=="))
    covered = V4 | {"X-Goog-SignedHeaders": "host;x-goog-copy-source"}
    assert signed_url(request(covered, x_goog_copy_source="/b/secret")).texts


def test_a_v4_url_is_of_one_object() -> None:
    own, server = "bkt.storage.googleapis.com", "bkt.example.com:8000"
    nested = digest_of(V4, host=own, bucket="bkt", name="bkt/k")
    assert digest_of(V4, host=own, bucket="bkt", name="k") != nested
    of_other = digest_of(V4, host=server, bucket="other", name="k")
    assert digest_of(V4, host=server, bucket="bkt", name="other/k") != of_other
    at_a_port = request(V4, host=f"{own}:8000")  # the path is another object's there
    assert len(signed_url(at_a_port).texts) == 1
    with pytest.raises(InvalidArgumentError, match="of another bucket than its path"):
        digest_of(V4, host=own, bucket="other", name="k")


def test_a_v2_url_covers_the_parameters_of_uploads() -> None:
    text = b"GET\n\n\n1795068000\n/b/a%20b/%C3%BC~"
    assert signed_url(request(V2 | {"uploadId": "0"})).texts == (text + b"?uploadid=0",)


@given(
    st.dictionaries(st.sampled_from([*V4, *V2]), st.text(max_size=40)),
    st.sampled_from(["X-Goog-Signature", "Signature"]),
    st.text(max_size=20),
)
def test_nothing_else_is_raised(query: dict[str, str], mark: str, value: str) -> None:
    with suppress(InvalidArgumentError):
        signed_url(request(query | {mark: value}))


def test_addresses() -> None:
    assert account_of(email_of("ci", "p-one")) == ("ci", "p-one")
    for other in ("", "ci", "ci@p-one", "a@b@p.iam.gserviceaccount.com", "ci@P.iam.gserviceaccount.com"):
        assert account_of(other) is None
