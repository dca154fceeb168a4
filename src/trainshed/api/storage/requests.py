"""Requests to Cloud Storage as values: query parameters, preconditions, and the metadata in their bodies."""

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
from trainshed.errors import InvalidArgumentError
from trainshed.services.storage.objects import ObjectSource

#: parameters that change the meaning of a request and are not supported
UNSUPPORTED_PARAMETERS = {
    "enableObjectRetention": "Single objects have no retention of their own.",
    "filter": "Objects have no contexts by which they could be found.",
    "softDeleted": "Deleted objects are not kept.",
    "restoreToken": "Deleted objects are not kept.",
    "kmsKeyName": "Objects are not encrypted by keys of a key service.",
    "destinationKmsKeyName": "Objects are not encrypted by keys of a key service.",
}
#: headers of the same kind
UNSUPPORTED_HEADERS = {
    "x-goog-encryption-key": "Keys that come with requests are not used: objects would lie unencrypted.",
    "x-goog-encryption-kms-key-name": "Objects are not encrypted by keys of a key service.",
    "x-goog-object-lock-mode": "Single objects have no retention of their own.",
}
_REMEDY = "; leave it out"
#: parameters that name an access list, and the lists that would open an object or bucket to everybody
_ACL_PARAMETERS = ("predefinedAcl", "predefinedDefaultObjectAcl", "destinationPredefinedAcl")
_PUBLIC_ACLS = frozenset({"publicread", "publicreadwrite", "authenticatedread"})
_PUBLIC_ENTITIES = frozenset({"allUsers", "allAuthenticatedUsers"})
_NUMBER = re.compile(r"\d{1,19}")

#: the API's name of a field that a writer may set -> the name in `ObjectMetadata`
METADATA_FIELDS = {
    "contentType": "content_type",
    "contentEncoding": "content_encoding",
    "contentLanguage": "content_language",
    "contentDisposition": "content_disposition",
    "cacheControl": "cache_control",
    "customTime": "custom_time",
    "storageClass": "storage_class",
}
#: fields of a listing that need a read of each object: whole items, or one of these
_PER_OBJECT_FIELDS = re.compile(
    rf"\*|\bitems\b(?![/(])|\b(?:md5Hash|crc32c|metadata|componentCount|{'|'.join(METADATA_FIELDS)})\b"
)
#: fields that the server sets and clients send back, and access lists, which are not stored
OBJECT_READ_ONLY_FIELDS = frozenset(
    {
        "acl",
        "bucket",
        "componentCount",
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
        "retentionExpirationTime",
        "selfLink",
        "size",
        "timeCreated",
        "timeDeleted",
        "timeFinalized",
        "timeStorageClassUpdated",
        "updated",
    }
)
#: fields that are true or false -> the name in `ObjectMetadata`
_HOLDS = {"temporaryHold": "temporary_hold", "eventBasedHold": "event_based_hold"}
#: features that are not supported: rejected unless they are off
OBJECT_UNSUPPORTED_FIELDS = frozenset(
    {
        "contexts",
        "retention",
        "kmsKeyName",
        "customerEncryption",
    }
)


def parameters(request: Request) -> dict[str, str]:
    """Return the query parameters.

    Raises `InvalidArgumentError` if the query is not UTF-8, or for an unsupported parameter or header: clients repeat
    a 501.
    """
    try:
        pairs = parse_qsl(
            request.scope["query_string"].decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=100
        )
    except (UnicodeDecodeError, ValueError):
        raise InvalidArgumentError(
            "The query of this request is not UTF-8 in percent encoding, or has too many parts."
        ) from None
    values = dict(pairs)
    for name, sentence in UNSUPPORTED_PARAMETERS.items():
        if values.get(name, "").lower() not in ("", "false"):
            raise InvalidArgumentError(f"{sentence} The parameter {name} can't be used here{_REMEDY}.")
    for name in _ACL_PARAMETERS:
        if values.get(name, "").lower() in _PUBLIC_ACLS:
            raise not_public(name)
    for name, sentence in UNSUPPORTED_HEADERS.items():
        if name in request.headers:
            raise InvalidArgumentError(f"{sentence} Leave {name} out.")
    return values


def not_public(field: str) -> InvalidArgumentError:
    """The refusal of an access list that is not kept and would be missed."""
    return InvalidArgumentError(
        f"Nothing here can be made public, so {field} is refused. Give out tokens: `trainshed auth tokens create`.",
        field=field,
    )


def check_acls(body: Mapping[str, Any]) -> None:
    """Raises `InvalidArgumentError` if a body would open something to everybody."""
    for field in ("acl", "defaultObjectAcl"):
        entries = body.get(field)
        for entry in entries if isinstance(entries, list) else ():
            if isinstance(entry, dict) and str(entry.get("entity")) in _PUBLIC_ENTITIES:
                raise not_public(field)


def number(query: Mapping[str, str], name: str) -> int | None:
    """Return an integer of the query. Returns None if it is missing."""
    if (text := query.get(name, "")) == "":
        return None
    if not _NUMBER.fullmatch(text):
        raise InvalidArgumentError(f"The parameter {name} is {text!r}, but must be a whole number.")
    return int(text)


def flag(query: Mapping[str, str], name: str) -> bool:
    return query.get(name, "").lower() == "true"


def preconditions(
    query: Mapping[str, str], *, of: str = "if", headers: Mapping[str, str] | None = None
) -> Preconditions:
    """Return the preconditions of a request; `of` is `ifSource` for those of the object that is read."""
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
    """Return the object that the path names."""
    params = request.path_params
    return ObjectSource(
        bucket=params["bucket"],
        name=params["object"],
        generation=number(query, "generation"),
        conditions=preconditions(query, headers=request.headers),
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
        glob=query.get("matchGlob", ""),
        versions=flag(query, "versions"),
        checksums=not fields or _PER_OBJECT_FIELDS.search(fields) is not None,
    )


def page_start(query: Mapping[str, str]) -> str:
    """Return the object name in a page token."""
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
    """Describe an object to write: its name from the query or the body, its metadata, and its expected checksums."""
    name = body.get("name") or query.get("name", "")
    if not isinstance(name, str):
        raise InvalidArgumentError("The name of an object is a string.")
    hashes = dict(part.strip().partition("=")[::2] for part in headers.get("x-goog-hash", "").split(","))
    return ObjectDraft(
        bucket=bucket,
        name=name,
        traits=object_metadata(ObjectMetadata(), body, merge=False),
        conditions=preconditions(query),
        md5=_text(body, "md5Hash") or hashes.get("md5", "") or headers.get("content-md5", ""),
        crc32c=_text(body, "crc32c") or hashes.get("crc32c", ""),
    )


def object_metadata(old: ObjectMetadata, body: Mapping[str, Any], *, merge: bool) -> ObjectMetadata:
    """Apply a body to the metadata: merge it into the old one, or replace it.

    Raises `InvalidArgumentError` for an unknown field.
    """
    check_acls(body)
    new = old if merge else ObjectMetadata()
    for key, value in body.items():
        if key in METADATA_FIELDS:
            change: dict[str, Any] = {
                METADATA_FIELDS[key]: _metadata_value(body, key) or getattr(ObjectMetadata(), METADATA_FIELDS[key])
            }
            new = replace(new, **change)
        elif key in _HOLDS:
            hold: dict[str, Any] = {_HOLDS[key]: _hold(key, value)}
            new = replace(new, **hold)
        elif key == "metadata":
            new = replace(new, metadata=_metadata(dict(new.metadata) if merge else {}, value))
        elif key in OBJECT_UNSUPPORTED_FIELDS and value:
            raise InvalidArgumentError(f"Objects can't have {key} here. Leave it out.", field=key)
        elif key not in OBJECT_READ_ONLY_FIELDS and key not in OBJECT_UNSUPPORTED_FIELDS:
            raise InvalidArgumentError(f"Unknown field {key!r} of an object.", field=key)
    return new


def _hold(key: str, value: object) -> bool:
    if value is not None and not isinstance(value, bool):
        raise InvalidArgumentError(f"The {key} of an object is true or false.", field=key)
    return bool(value)


def _metadata_value(body: Mapping[str, Any], key: str) -> str:
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


def _metadata(old: dict[str, str], changes: object) -> dict[str, str]:
    if changes is None:
        return {}
    if not isinstance(changes, dict) or not all(value is None or isinstance(value, str) for value in changes.values()):
        raise InvalidArgumentError("The field metadata is a map from strings to strings.", field="metadata")
    return {key: value for key, value in (old | changes).items() if value is not None}


def known_only(body: Mapping[str, Any], known: Iterable[str], *, what: str) -> None:
    """Raises `InvalidArgumentError` for an unknown field."""
    if unknown := sorted(set(body) - set(known)):
        raise InvalidArgumentError(f"Unknown field {unknown[0]!r} of {what}.", field=unknown[0])
