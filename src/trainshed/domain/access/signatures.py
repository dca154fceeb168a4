"""Signed URLs of Cloud Storage, V4 and V2: what was signed, by whom, and until when. Without any cryptography."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import quote, urlencode

from trainshed.domain.storage.xml_paths import host_bucket
from trainshed.errors import InvalidArgumentError

#: query parameters of which one is in every signed URL
MARKS = ("X-Goog-Signature", "Signature")
MAX_LIFETIME_S = 604_800  #: of a V4 URL
CLOCK_SKEW_S = 900  #: by which the clock of the signer may be ahead
_ALGORITHM = "GOOG4-RSA-SHA256"
_CREDENTIAL = re.compile(r"([^/\s]{3,300})/(\d{8}/[A-Za-z0-9-]{1,40}/storage/goog4_request)")
_DATE = re.compile(r"\d{8}T\d{6}Z")
_EMAIL = re.compile(r"([A-Za-z0-9._+-]{1,128})@([a-z0-9:.-]{1,128})\.iam\.gserviceaccount\.com")
_PORT = re.compile(r":\d+$")
_SECOND_US = 1_000_000
#: headers that a V4 URL need not cover: they change nothing. Of others, whoever has the URL could ask for a copy
_FREE_HEADERS = frozenset({"x-goog-api-client", "x-goog-content-sha256", "x-goog-hash"})
#: parameters that V2 leaves out of what is signed. Others name a part of the object, such as an upload
_FREE_PARAMETERS = frozenset({"generation", "response-content-disposition", "response-content-type", "userproject"})


@dataclass(frozen=True, slots=True, kw_only=True)
class SignableRequest:
    """What a signature may cover of a request for an object."""

    method: str
    host: str
    bucket: str
    name: str
    query: Sequence[tuple[str, str]]
    headers: Mapping[str, str]  #: names in lower case


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedUrl:
    """A signature, and the texts of which its signer must have signed one."""

    email: str  #: of the service account
    texts: tuple[bytes, ...]
    signature: bytes
    begins_us: int
    expires_us: int


def email_of(user: str, project: str) -> str:
    """The address of a service account, in Google's form."""
    return f"{user}@{project}.iam.gserviceaccount.com"


def account_of(email: str) -> tuple[str, str] | None:
    """The user and the project in an address. Returns None if it has another form."""
    match = _EMAIL.fullmatch(email)
    return (match[1], match[2]) if match else None


def signed_url(request: SignableRequest) -> SignedUrl:
    """Read a signed request. Raises `InvalidArgumentError`, without any part of it, if it is not well-formed."""
    query = dict(request.query)
    return _v4(request, query) if MARKS[0] in query else _v2(request, query)


def _v4(request: SignableRequest, query: Mapping[str, str]) -> SignedUrl:
    credential = _CREDENTIAL.fullmatch(query.get("X-Goog-Credential", ""))
    date, lifetime = query.get("X-Goog-Date", ""), query.get("X-Goog-Expires", "")
    if query.get("X-Goog-Algorithm") != _ALGORITHM or credential is None or not _DATE.fullmatch(date):
        raise InvalidArgumentError(f"The URL is not signed as V4 with {_ALGORITHM} says. Sign it again.")
    if not (lifetime.isascii() and lifetime.isdigit() and int(lifetime) <= MAX_LIFETIME_S):
        raise InvalidArgumentError(f"A signed URL is valid for at most {MAX_LIFETIME_S:,} seconds.")
    names = query.get("X-Goog-SignedHeaders", "").split(";")
    if "host" not in names:
        raise InvalidArgumentError("The signature of a URL covers the host header. Sign it again.")
    uncovered = sorted(name for name in request.headers if name.startswith("x-goog-") and name not in names)
    if uncovered := [name for name in uncovered if name not in _FREE_HEADERS]:
        raise InvalidArgumentError(
            f"The signature of a URL covers all x-goog- headers of its request, but not {uncovered[0][:60]} here. Sign "
            f"the URL with that header, or leave it out."
        )
    if request.headers.get("x-goog-content-sha256", "UNSIGNED-PAYLOAD") != "UNSIGNED-PAYLOAD":
        raise InvalidArgumentError("The digest of a body is not part of a signature here. Sign it without.")
    pairs = sorted((_quoted(name), _quoted(value)) for name, value in request.query if name != MARKS[0])
    canonical_query = "&".join(f"{name}={value}" for name, value in pairs)
    texts = []
    for host in _hosts(request.host):
        values = dict(request.headers) | {"host": host}
        headers = "".join(f"{name}:{' '.join(values.get(name, '').split())}\n" for name in names)
        parts = (request.method, _path_at_host(request), canonical_query, headers, ";".join(names), "UNSIGNED-PAYLOAD")
        digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()
        texts.append("\n".join((_ALGORITHM, date, credential[2], digest)).encode())
    begins_us = _date_us(date)
    return SignedUrl(
        email=credential[1],
        texts=tuple(texts),
        signature=_decoded(query[MARKS[0]], binascii.unhexlify),
        begins_us=begins_us,
        expires_us=begins_us + int(lifetime) * _SECOND_US,
    )


def _v2(request: SignableRequest, query: Mapping[str, str]) -> SignedUrl:
    expires = query.get("Expires", "")
    if not (expires.isascii() and expires.isdigit() and len(expires) <= 12):
        raise InvalidArgumentError("A URL that is signed as V2 says when it expires, in seconds since 1970.")
    extensions = sorted((name, value) for name, value in request.headers.items() if name.startswith("x-goog-"))
    head = [request.method, request.headers.get("content-md5", ""), request.headers.get("content-type", ""), expires]
    head += [f"{name}:{' '.join(value.split())}" for name, value in extensions]
    own = {"GoogleAccessId", "Expires", "Signature"}
    others = sorted((name.lower(), value.strip()) for name, value in request.query if name not in own)
    path = _path(request)
    resources = [path] if {name for name, _ in others} <= _FREE_PARAMETERS else []
    resources += [f"{path}?{urlencode(others)}"] if others else []
    return SignedUrl(
        email=query.get("GoogleAccessId", ""),
        texts=tuple("\n".join([*head, resource]).encode() for resource in resources),
        signature=_decoded(query["Signature"], base64.b64decode),
        begins_us=0,
        expires_us=int(expires) * _SECOND_US,
    )


def _path(request: SignableRequest) -> str:
    """The path of the object at a host for all buckets."""
    name = quote(request.name, safe="/~")
    return f"/{request.bucket}/{name}" if name else f"/{request.bucket}"


def _path_at_host(request: SignableRequest) -> str:
    """The path of the object at the host of the request: without the bucket at one of its own.

    There is one such path, or else what is signed for an object would be good for another one too.
    """
    bucket = host_bucket(request.host)
    if bucket and bucket != request.bucket:
        raise InvalidArgumentError("The host of this request is of another bucket than its path.")
    return f"/{quote(request.name, safe='/~')}" if bucket else _path(request)


def _hosts(header: str) -> list[str]:
    """What may be signed of a host header: Google's library for Node leaves the port out, and its requests have it.

    Never the host of a bucket's own for another one: the same path is another object there.
    """
    name = _PORT.sub("", header)
    return [header] if name == header or host_bucket(name) != host_bucket(header) else [header, name]


def _quoted(text: str) -> str:
    return quote(text, safe="~")


def _decoded(text: str, decode: object) -> bytes:
    try:
        data = decode(text.encode("ascii"))  # type: ignore[operator]
    except (ValueError, UnicodeEncodeError):
        raise InvalidArgumentError("The signature of this URL is not in its form. Sign it again.") from None
    return bytes(data)


def _date_us(date: str) -> int:
    try:
        moment = datetime.strptime(date, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    except ValueError:
        raise InvalidArgumentError("The X-Goog-Date of this URL is no time.") from None
    return int(moment.timestamp()) * _SECOND_US
