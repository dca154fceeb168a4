"""Buckets and objects as Cloud Storage writes them in JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import orjson
from starlette.requests import Request
from starlette.responses import Response

from trainshed.api.storage.requests import page_token
from trainshed.domain.objects import Bucket, ObjectInfo, ObjectPage
from trainshed.domain.storage import settings
from trainshed.domain.times import rfc3339

NO_ACLS = {"warning": '299 trainshed "ACLs are not kept: tokens decide who may read and write"'}


def storage_response(
    body: Mapping[str, Any], *, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    return Response(orjson.dumps(body), status, dict(headers or {}), media_type="application/json; charset=UTF-8")


def base_url(request: Request) -> str:
    """The base URL of this server, as the client knows it."""
    return f"{request.scope['scheme']}://{request.headers.get('host', '')}"


def bucket_body(bucket: Bucket, base: str, *, full: bool = False) -> dict[str, Any]:
    body: dict[str, Any] = {
        "kind": "storage#bucket",
        "id": bucket.name,
        "name": bucket.name,
        "selfLink": f"{base}/storage/v1/b/{bucket.name}",
        "location": bucket.location,
        "locationType": "region" if "-" in bucket.location else "multi-region",
        "storageClass": bucket.storage_class,
        "timeCreated": rfc3339(bucket.created_us, digits=3),
        "updated": rfc3339(bucket.updated_us, digits=3),
        "metageneration": str(bucket.metageneration),
        "etag": f"{bucket.updated_us:x}.{bucket.metageneration:x}",
        "iamConfiguration": {
            "uniformBucketLevelAccess": {"enabled": False},
            "publicAccessPrevention": "inherited",
        },
    }
    if bucket.labels:
        body["labels"] = dict(bucket.labels)
    body |= settings.shown(bucket.settings)
    if full:
        body |= {
            "acl": bucket_acl(bucket.name, bucket.project),
            "defaultObjectAcl": [],
            "owner": {"entity": f"project-owners-{bucket.project}"},
        }
    return body


def bucket_acl(bucket: str, project: str) -> list[dict[str, Any]]:
    """Return the access list that every bucket has."""
    return [{"kind": "storage#bucketAccessControl", "bucket": bucket, **_owners(project)}]


def object_acl(bucket: str, name: str, project: str) -> list[dict[str, Any]]:
    return [{"kind": "storage#objectAccessControl", "bucket": bucket, "object": name, **_owners(project)}]


def _owners(project: str) -> dict[str, Any]:
    return {
        "entity": f"project-owners-{project}",
        "role": "OWNER",
        "projectTeam": {"projectNumber": project, "team": "owners"},
    }


def object_body(info: ObjectInfo, base: str, *, full_for: str = "") -> dict[str, Any]:
    """Return the resource of an object.

    `full_for` names the project whose owners are in its access list, if it is included.
    """
    path = f"/b/{info.bucket}/o/{quote(info.name, safe='')}"
    generation = str(info.generation)
    body: dict[str, Any] = {
        "kind": "storage#object",
        "id": f"{info.bucket}/{info.name}/{generation}",
        "selfLink": f"{base}/storage/v1{path}",
        "mediaLink": f"{base}/download/storage/v1{path}?generation={generation}&alt=media",
        "name": info.name,
        "bucket": info.bucket,
        "generation": generation,
        "metageneration": str(info.metageneration),
        "contentType": info.traits.content_type,
        "storageClass": info.traits.storage_class,
        "size": str(info.size),
        "etag": info.etag,
        "timeCreated": rfc3339(info.created_us),
        "updated": rfc3339(info.updated_us),
        "timeStorageClassUpdated": rfc3339(info.created_us),
    }
    traits = info.traits
    optional = {
        "md5Hash": info.md5,
        "crc32c": info.crc32c,
        "contentEncoding": traits.content_encoding,
        "contentLanguage": traits.content_language,
        "contentDisposition": traits.content_disposition,
        "cacheControl": traits.cache_control,
        "customTime": traits.custom_time,
        "temporaryHold": traits.temporary_hold,
        "eventBasedHold": traits.event_based_hold,
        "retentionExpirationTime": rfc3339(info.retained_until_us) if info.retained_until_us else "",
        "timeDeleted": rfc3339(info.deleted_us) if info.deleted_us else "",
        "metadata": dict(traits.metadata),
    }
    body |= {key: value for key, value in optional.items() if value}
    if info.components:
        body["componentCount"] = info.components
    if full_for:
        body |= {
            "acl": object_acl(info.bucket, info.name, full_for),
            "owner": {"entity": f"project-owners-{full_for}"},
        }
    return body


def page_body(page: ObjectPage, base: str, *, full_for: str = "") -> dict[str, Any]:
    body: dict[str, Any] = {"kind": "storage#objects"}
    if page.items:
        body["items"] = [object_body(item, base, full_for=full_for) for item in page.items]
    if page.prefixes:
        body["prefixes"] = list(page.prefixes)
    if page.next:
        body["nextPageToken"] = page_token(page.next)
    return body
