"""What requests to Cloud Storage say, as values: query parameters, conditions, and the metadata in their bodies."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qsl

from starlette.requests import Request

from trainshed.domain.objects import MAX_PAGE, ListQuery, ObjectDraft, ObjectMetadata, Preconditions
from trainshed.domain.times import parse_rfc3339
from trainshed.errors import InvalidArgumentError, UnimplementedError
from trainshed.services.storage.objects import ObjectSource

#: parameters that ask for something else than what would be done without them
UNSERVED = {
    "matchGlob": "Listing by pattern is not offered; list with a prefix, and match what comes.",
    "softDeleted": "Deleted objects are not kept.",
    "restoreToken": "Deleted objects are not kept.",
    "kmsKeyName": "Objects are not encrypted by keys of a key service.",
    "destinationKmsKeyName": "Objects are not encrypted by keys of a key service.",
}
_LATER = "; leave it out"
_NUMBER = re.compile(r"\d{1,19}")

#: the API's name of each thing that a writer may say, and ours
TRAITS = {
    "contentType": "content_type",
    "contentEncoding": "content_encoding",
    "contentLanguage": "content_language",
    "contentDisposition": "content_disposition",
    "cacheControl": "cache_control",
    "customTime": "custom_time",
    "storageClass": "storage_class",
}
#: in the fields that a client wants of a listing: items as a whole, or what may take a look at each object
_LOOKED_UP = re.compile(rf"\*|\bitems\b(?![/(])|\b(?:md5Hash|crc32c|metadata|componentCount|{'|'.join(TRAITS)})\b")
#: what the server itself says of an object, and clients send back; access lists, which are not kept, are among them
OBJECT_ECHOES = frozenset(
    {
        "acl",
        "bucket",
        "componentCount",
        "contexts",
        "crc32c",
        "etag",
        "generation",
        "id",
        "kind",
        "md5Hash",
        "mediaLink",
        "metageneration",
        "name",
        "owner",
        "selfLink",
        "size",
        "timeCreated",
        "timeFinalized",
        "timeStorageClassUpdated",
        "updated",
    }
)
#: what would be promised and not kept, unless it says no
OBJECT_PROMISES = frozenset(
    {
        "eventBasedHold",
        "temporaryHold",
        "retention",
        "kmsKeyName",
        "customerEncryption",
    }
)


def parameters(request: Request) -> dict[str, str]:
    """The query.

    `InvalidArgumentError` if it is not UTF-8; `UnimplementedError` where it asks for what is not offered.
    """
    try:
        pairs = parse_qsl(
            request.scope["query_string"].decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=100
        )
    except (UnicodeDecodeError, ValueError):
        raise InvalidArgumentError(
            "The query of this request is not UTF-8 in percent encoding, or has too many parts."
        ) from None
    found = dict(pairs)
    for name, sentence in UNSERVED.items():
        if found.get(name, "").lower() not in ("", "false"):
            raise UnimplementedError(f"{sentence} The parameter {name} can't be used here{_LATER}.")
    if "x-goog-encryption-key" in request.headers:
        raise UnimplementedError(
            "Keys that come with requests are not used: objects would lie unencrypted. Leave the key out."
        )
    return found


def number(query: Mapping[str, str], name: str) -> int | None:
    """A whole number in the query; None if it isn't there."""
    if (text := query.get(name, "")) == "":
        return None
    if not _NUMBER.fullmatch(text):
        raise InvalidArgumentError(f"The parameter {name} is {text!r}, but must be a whole number.")
    return int(text)


def flag(query: Mapping[str, str], name: str) -> bool:
    return query.get(name, "").lower() == "true"


def conditions(query: Mapping[str, str], *, of: str = "if", headers: Mapping[str, str] | None = None) -> Preconditions:
    """The conditions of a request; `of` is `ifSource` for those on the object that is read."""
    headers = headers or {}
    return Preconditions(
        generation=number(query, f"{of}GenerationMatch"),
        generation_not=number(query, f"{of}GenerationNotMatch"),
        metageneration=number(query, f"{of}MetagenerationMatch"),
        metageneration_not=number(query, f"{of}MetagenerationNotMatch"),
        etags=_etags(headers.get("if-match", "")),
        etags_not=_etags(headers.get("if-none-match", "")),
    )


def _etags(header: str) -> tuple[str, ...]:
    return tuple(part.strip().removeprefix("W/").strip('"') for part in header.split(",") if part.strip())


def source(request: Request, query: Mapping[str, str]) -> ObjectSource:
    """The object in the path of a request."""
    params = request.path_params
    return ObjectSource(
        bucket=params["bucket"],
        name=params["object"],
        generation=number(query, "generation"),
        conditions=conditions(query, headers=request.headers),
    )


def list_query(query: Mapping[str, str]) -> ListQuery:
    fields = query.get("fields", "")
    limit = number(query, "maxResults")
    return ListQuery(
        prefix=query.get("prefix", ""),
        delimiter=query.get("delimiter", ""),
        start=query.get("startOffset", ""),
        end=query.get("endOffset", ""),
        after=page_start(query),
        limit=min(limit or MAX_PAGE, MAX_PAGE),
        delimiter_objects=flag(query, "includeTrailingDelimiter"),
        checksums=not fields or _LOOKED_UP.search(fields) is not None,
    )


def page_start(query: Mapping[str, str]) -> str:
    """The name that a page token stands for."""
    token = query.get("pageToken", "")
    try:
        return base64.urlsafe_b64decode(token).decode()
    except (binascii.Error, ValueError):
        raise InvalidArgumentError(
            "The pageToken is not one that this server gave out. List again from the beginning."
        ) from None


def page_token(name: str) -> str:
    return base64.urlsafe_b64encode(name.encode()).decode()


def draft(bucket: str, query: Mapping[str, str], body: Mapping[str, Any], headers: Mapping[str, str]) -> ObjectDraft:
    """An object to be written: its name from the query or the metadata, and what its bytes must amount to."""
    name = body.get("name") or query.get("name", "")
    if not isinstance(name, str):
        raise InvalidArgumentError("The name of an object is a string.")
    hashes = dict(part.strip().partition("=")[::2] for part in headers.get("x-goog-hash", "").split(","))
    return ObjectDraft(
        bucket=bucket,
        name=name,
        traits=traits(ObjectMetadata(), body, merge=False),
        conditions=conditions(query),
        md5=_text(body, "md5Hash") or hashes.get("md5", "") or headers.get("content-md5", ""),
        crc32c=_text(body, "crc32c") or hashes.get("crc32c", ""),
    )


def traits(old: ObjectMetadata, body: Mapping[str, Any], *, merge: bool) -> ObjectMetadata:
    """The traits after a body was applied: over the old ones, or in their place.

    `InvalidArgumentError` names what isn't known.
    """
    new = old if merge else ObjectMetadata()
    for key, value in body.items():
        if key in TRAITS:
            said: dict[str, Any] = {TRAITS[key]: _trait(body, key) or getattr(ObjectMetadata(), TRAITS[key])}
            new = replace(new, **said)
        elif key == "metadata":
            new = replace(new, metadata=_metadata(dict(new.metadata) if merge else {}, value))
        elif key in OBJECT_PROMISES and value:
            raise UnimplementedError(f"Objects can't have {key} here. Leave it out.")
        elif key not in OBJECT_ECHOES and key not in OBJECT_PROMISES:
            raise InvalidArgumentError(f"Unknown field {key!r} of an object.", field=key)
    return new


def _trait(body: Mapping[str, Any], key: str) -> str:
    text = _text(body, key)
    if len(text) > 1024 or any(ord(char) < 32 or ord(char) == 127 for char in text):
        raise InvalidArgumentError(f"The {key} is too long, or holds a control character.", field=key)
    if key != "contentDisposition" and not text.isascii():
        raise InvalidArgumentError(f"The {key} may hold ASCII characters only; {text!r} doesn't.", field=key)
    if key == "customTime" and text:
        try:
            parse_rfc3339(text)
        except ValueError as exc:
            raise InvalidArgumentError(f"The customTime is wrong: {exc}.", field=key) from None
    return text


def _text(body: Mapping[str, Any], key: str) -> str:
    value = body.get(key)
    if value is not None and not isinstance(value, str):
        raise InvalidArgumentError(f"The field {key} must be a string.", field=key)
    return value or ""


def _metadata(old: dict[str, str], given: object) -> dict[str, str]:
    if given is None:
        return {}
    if not isinstance(given, dict) or not all(value is None or isinstance(value, str) for value in given.values()):
        raise InvalidArgumentError("The field metadata is a map from strings to strings.", field="metadata")
    return {key: value for key, value in (old | given).items() if value is not None}


def known_only(body: Mapping[str, Any], known: Iterable[str], *, what: str) -> None:
    """`InvalidArgumentError` for a field that this kind of thing doesn't have."""
    if unknown := sorted(set(body) - set(known)):
        raise InvalidArgumentError(f"Unknown field {unknown[0]!r} of {what}.", field=unknown[0])
