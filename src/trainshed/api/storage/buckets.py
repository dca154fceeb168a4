"""Routes of the Cloud Storage JSON API for buckets."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from trainshed.api.http.bodies import read_json_object
from trainshed.api.http.request import principal, project, services, trail
from trainshed.api.http.routing import Handler, ProjectScope, Route
from trainshed.api.http.slow_work import BUCKET_DELETES, slow_work
from trainshed.api.storage.requests import (
    check_acls,
    known_only,
    number,
    page_start,
    page_token,
    parameters,
    preconditions,
)
from trainshed.api.storage.resources import NO_ACLS, base_url, bucket_acl, bucket_body, object_acl, storage_response
from trainshed.domain.iam import Access
from trainshed.domain.objects import MAX_PAGE, Bucket
from trainshed.domain.storage import settings
from trainshed.errors import InvalidArgumentError, NotFoundError
from trainshed.services.storage.buckets import BucketChange

LOG = logging.getLogger("trainshed.api")

STORED_FIELDS = frozenset({"name", "location", "storageClass", "labels", *settings.FIELDS})
#: fields that the server sets, or that change nothing here, such as access lists
READ_ONLY_FIELDS = frozenset(
    {
        "acl",
        "defaultObjectAcl",
        "etag",
        "generation",
        "hardDeleteTime",
        "iamConfiguration",
        "id",
        "kind",
        "locationType",
        "metageneration",
        "owner",
        "projectNumber",
        "rpo",
        "satisfiesPZS",
        "selfLink",
        "timeCreated",
        "updated",
    }
)
#: features that are not supported: rejected unless they are off
UNSUPPORTED_FIELDS = frozenset(
    {
        "autoclass",
        "billing",
        "customPlacementConfig",
        "encryption",
        "hierarchicalNamespace",
        "ipFilter",
        "logging",
        "objectRetention",
        "softDeletePolicy",
        "website",
    }
)


def acls_ignored(body: Mapping[str, Any]) -> dict[str, str]:
    """Return a warning header, and log, if a request sets access lists."""
    if not {"acl", "defaultObjectAcl"} & set(body):
        return {}
    LOG.info("acl.ignored reason=tokens-decide-who-may-read-and-write")
    return NO_ACLS


def _check(body: Mapping[str, Any]) -> None:
    known_only(body, STORED_FIELDS | READ_ONLY_FIELDS | UNSUPPORTED_FIELDS, what="a bucket")
    for key in ("name", "location", "storageClass"):
        if not isinstance(body.get(key, ""), str | None):
            raise InvalidArgumentError(f"The field {key} must be a string.", field=key)
    for key in sorted(UNSUPPORTED_FIELDS & set(body)):
        if not _is_off(body[key]):
            raise InvalidArgumentError(f"Buckets can't have {key} here. Leave it out.", field=key)
    if body.get("rpo") not in (None, "", "DEFAULT"):
        raise InvalidArgumentError("Buckets are kept in one place, and rpo is not kept. Leave it out.", field="rpo")
    check_acls(body)
    _check_iam_configuration(body.get("iamConfiguration"))


def _check_iam_configuration(value: object) -> None:
    """Raises `InvalidArgumentError` for a setting that would be read back as another one."""
    settings = value if isinstance(value, dict) else {}
    uniform = [settings.get(name) for name in ("uniformBucketLevelAccess", "bucketPolicyOnly")]
    if any(isinstance(each, dict) and each.get("enabled") for each in uniform):
        raise InvalidArgumentError(
            "Tokens control access here, to all objects of a bucket alike, and uniformBucketLevelAccess is not kept. "
            "Leave it out.",
            field="iamConfiguration",
        )
    if settings.get("publicAccessPrevention", "inherited") not in ("inherited", "unspecified"):
        raise InvalidArgumentError(
            "Nothing here is public, and publicAccessPrevention is not kept. Leave it out.", field="iamConfiguration"
        )


def _settings(body: Mapping[str, Any]) -> dict[str, Any]:
    return {name: body[name] for name in settings.FIELDS if name in body}


def _is_off(value: object) -> bool:
    """Return whether a setting is empty or false, or has only such parts."""
    if isinstance(value, dict):
        return all(_is_off(part) for part in value.values())
    return not value


async def insert(request: Request) -> Response:
    query = parameters(request)
    body = await read_json_object(request)
    _check(body)
    trail(request).name(body.get("name") or "")
    bucket = await run_in_threadpool(
        services(request).buckets.make,
        project(request),
        body.get("name") or "",
        location=body.get("location") or "",
        storage_class=body.get("storageClass") or "",
        labels=body.get("labels"),
        given=_settings(body),
    )
    return _bucket_response(request, query, bucket)


async def show(request: Request) -> Response:
    query = parameters(request)
    bucket = await run_in_threadpool(
        services(request).buckets.get, request.path_params["bucket"], preconditions(query, headers=request.headers)
    )
    return _bucket_response(request, query, bucket)


async def index(request: Request) -> Response:
    query = parameters(request)
    buckets, after = await run_in_threadpool(
        services(request).buckets.list,
        project(request),
        prefix=query.get("prefix", ""),
        after=page_start(query),
        limit=number(query, "maxResults") or MAX_PAGE,
    )
    full = query.get("projection") == "full"
    body: dict[str, Any] = {"kind": "storage#buckets"}
    if buckets:
        body["items"] = [bucket_body(bucket, base_url(request), full=full) for bucket in buckets]
    if after:
        body["nextPageToken"] = page_token(after)
    return storage_response(body)


def _change_handler(*, replace: bool) -> Handler:
    async def change(request: Request) -> Response:
        query = parameters(request)
        body = await read_json_object(request)
        _check(body)
        labels = body.get("labels", {} if replace else None)
        if labels is None and "labels" in body:
            labels, replace_labels = {}, True
        else:
            replace_labels = replace
        if labels is not None and not isinstance(labels, dict):
            raise InvalidArgumentError("Labels are a map from strings to strings.", field="labels")
        given = dict.fromkeys(settings.FIELDS) if replace else {}
        bucket_change = BucketChange(
            labels=labels,
            storage_class=body.get("storageClass") or None,
            settings=given | _settings(body),
            replace=replace_labels,
        )
        bucket = await run_in_threadpool(
            services(request).buckets.patch, request.path_params["bucket"], bucket_change, preconditions(query)
        )
        return _bucket_response(request, query, bucket, headers=acls_ignored(body))

    return change


async def delete(request: Request) -> Response:
    required = preconditions(parameters(request))
    delete_bucket = partial(services(request).buckets.delete, request.path_params["bucket"], required)
    await slow_work(request, BUCKET_DELETES).run(request, delete_bucket)
    return Response(status_code=204)


async def lock_retention(request: Request) -> Response:
    query = parameters(request)
    bucket = await run_in_threadpool(
        services(request).buckets.lock_retention, request.path_params["bucket"], preconditions(query)
    )
    return _bucket_response(request, query, bucket)


async def layout(request: Request) -> Response:
    bucket = await run_in_threadpool(services(request).buckets.get, request.path_params["bucket"])
    body = {
        "kind": "storage#storageLayout",
        "bucket": bucket.name,
        "location": bucket.location,
        "locationType": "region" if "-" in bucket.location else "multi-region",
        "hierarchicalNamespace": {"enabled": False},
    }
    return storage_response(body)


async def policy(request: Request) -> Response:
    owners = f"projectOwner:{project(request)}"
    bindings = [{"role": "roles/storage.legacyBucketOwner", "members": [owners]}]
    body = {
        "kind": "storage#policy",
        "resourceId": f"projects/_/buckets/{request.path_params['bucket']}",
        "version": 1,
        "etag": "CAE=",
        "bindings": bindings,
    }
    return storage_response(body)


async def test_permissions(request: Request) -> Response:
    permissions = request.query_params.getlist("permissions")
    caller, owner = principal(request), project(request)
    granted = [name for name in permissions if caller.may(_access_of(name), owner)]
    return storage_response({"kind": "storage#testIamPermissionsResponse", "permissions": granted})


def _access_of(permission: str) -> Access:
    """Return the access that a permission of Cloud Storage stands for."""
    if permission.endswith(".getIamPolicy"):
        return Access.READ
    if permission.endswith((".get", ".list")):
        return Access.READ_OBJECTS
    return Access.WRITE_OBJECTS if permission.startswith("storage.objects.") else Access.WRITE


def _bucket_entries(request: Request) -> list[dict[str, Any]]:
    return bucket_acl(request.path_params["bucket"], project(request))


def _object_entries(request: Request) -> list[dict[str, Any]]:
    return object_acl(request.path_params["bucket"], request.path_params["object"], project(request))


async def acl(request: Request) -> Response:
    body = {"kind": "storage#bucketAccessControls", "items": _bucket_entries(request)}
    return storage_response(body, headers=NO_ACLS)


async def default_object_acl(request: Request) -> Response:
    return storage_response({"kind": "storage#objectAccessControls", "items": []}, headers=NO_ACLS)


async def object_acls(request: Request) -> Response:
    body = {"kind": "storage#objectAccessControls", "items": _object_entries(request)}
    return storage_response(body, headers=NO_ACLS)


def _entry_handler(entries: Callable[[Request], list[dict[str, Any]]]) -> Handler:
    async def entry(request: Request) -> Response:
        wanted = request.path_params["entity"]
        for item in entries(request):
            if item["entity"] == wanted:
                return storage_response(item, headers=NO_ACLS)
        raise NotFoundError(f"There is no entry of {wanted[:200]} in this access list.")

    return entry


async def refuse_policy(request: Request) -> Response:
    raise InvalidArgumentError(
        "Access lists and policies can't be changed here: tokens decide who may read and write. "
        "Owners make them with `trainshed auth tokens create`."
    )


def _bucket_response(
    request: Request, query: Mapping[str, str], bucket: Bucket, *, headers: Mapping[str, str] | None = None
) -> Response:
    full = query.get("projection") == "full"
    return storage_response(bucket_body(bucket, base_url(request), full=full), headers=headers)


_BUCKETS = "/storage/v1/b"
_BUCKET = "/storage/v1/b/{bucket}"

_BUCKET_ACL, _DEFAULT_ACL, _OBJECT_ACL = (f"{_BUCKET}/{end}" for end in ("acl", "defaultObjectAcl", "o/{object}/acl"))


def _read_routes() -> Iterator[Route]:
    """The access lists and policies that are in force."""
    handlers = {
        f"{_BUCKET}/iam": policy,
        _BUCKET_ACL: acl,
        f"{_BUCKET_ACL}/{{entity}}": _entry_handler(_bucket_entries),
        _DEFAULT_ACL: default_object_acl,
        f"{_DEFAULT_ACL}/{{entity}}": _entry_handler(lambda request: []),
        _OBJECT_ACL: object_acls,
        f"{_OBJECT_ACL}/{{entity}}": _entry_handler(_object_entries),
    }
    for path, handler in handlers.items():
        yield Route(method="GET", path=path, access=Access.READ, scope=ProjectScope.BUCKET, handler=handler)


def _refusing_routes() -> Iterator[Route]:
    """What would change an access list or a policy, none of which is kept."""
    lists = (_BUCKET_ACL, _DEFAULT_ACL, _OBJECT_ACL)
    lines = [("PUT", f"{_BUCKET}/iam"), ("PUT", f"{_BUCKET}/o/{{object}}/iam")]
    lines += [("POST", path) for path in lists]
    lines += [(method, f"{path}/{{entity}}") for path in lists for method in ("PUT", "PATCH", "DELETE")]
    for method, path in lines:
        yield Route(method=method, path=path, access=Access.WRITE, scope=ProjectScope.BUCKET, handler=refuse_policy)


ROUTES = (
    Route(method="POST", path=_BUCKETS, access=Access.WRITE, scope=ProjectScope.QUERY, handler=insert),
    Route(method="GET", path=_BUCKETS, access=Access.READ_OBJECTS, scope=ProjectScope.QUERY, handler=index),
    Route(method="GET", path=_BUCKET, access=Access.READ_OBJECTS, scope=ProjectScope.BUCKET, handler=show),
    Route(
        method="PATCH",
        path=_BUCKET,
        access=Access.WRITE,
        scope=ProjectScope.BUCKET,
        handler=_change_handler(replace=False),
    ),
    Route(
        method="PUT",
        path=_BUCKET,
        access=Access.WRITE,
        scope=ProjectScope.BUCKET,
        handler=_change_handler(replace=True),
    ),
    Route(
        method="POST",
        path=f"{_BUCKET}/lockRetentionPolicy",
        access=Access.WRITE,
        scope=ProjectScope.BUCKET,
        handler=lock_retention,
    ),
    Route(method="DELETE", path=_BUCKET, access=Access.WRITE, scope=ProjectScope.BUCKET, handler=delete),
    Route(
        method="GET",
        path=f"{_BUCKET}/storageLayout",
        access=Access.READ_OBJECTS,
        scope=ProjectScope.BUCKET,
        handler=layout,
    ),
    Route(
        method="GET",
        path=f"{_BUCKET}/iam/testPermissions",
        access=Access.READ_OBJECTS,
        scope=ProjectScope.BUCKET,
        handler=test_permissions,
    ),
    *_read_routes(),
    *_refusing_routes(),
)
