"""Methods of the storage and logging APIs. Their parameters have names of their own, so they are a table."""

from __future__ import annotations

from trainshed.api.discovery.methods import ApiMethod

_META = ("ifMetagenerationMatch", "ifMetagenerationNotMatch")
_CONDITIONS = ("ifGenerationMatch", "ifGenerationNotMatch", *_META)
_SOURCE = tuple(f"ifSource{name.removeprefix('if')}" for name in _CONDITIONS)
_VIEW = ("projection", "userProject")
_OBJECT = "b/{bucket}/o/{object}"
_COPY = "b/{sourceBucket}/o/{sourceObject}"
_TO = "b/{destinationBucket}/o/{destinationObject}"


def _m(method_id: str, line: str, query: tuple[str, ...] = (), *, schemas: tuple[str, str] = ("", "")) -> ApiMethod:
    http, _, path = line.partition(" ")
    request, response = schemas
    return ApiMethod(
        id=method_id,
        http=http,
        path=path,
        query=query,
        required=tuple(name for name in query if name in ("permissions", "project")),
        request=request,
        response=response,
        upload=method_id == "objects.insert",
        download=method_id == "objects.get",
    )


_PAGED = ("maxResults", "pageToken", "prefix")
_BOTH_BUCKET, _BOTH_OBJECT = ("Bucket", "Bucket"), ("Object", "Object")

STORAGE_METHODS: tuple[ApiMethod, ...] = (
    _m("buckets.insert", "POST b", ("project", "predefinedAcl", *_VIEW), schemas=_BOTH_BUCKET),
    _m("buckets.list", "GET b", ("project", *_PAGED, *_VIEW), schemas=("", "Buckets")),
    _m("buckets.get", "GET b/{bucket}", (*_META, *_VIEW), schemas=("", "Bucket")),
    _m("buckets.patch", "PATCH b/{bucket}", (*_META, *_VIEW), schemas=_BOTH_BUCKET),
    _m("buckets.update", "PUT b/{bucket}", (*_META, *_VIEW), schemas=_BOTH_BUCKET),
    _m("buckets.delete", "DELETE b/{bucket}", (*_META, "userProject")),
    _m("buckets.getIamPolicy", "GET b/{bucket}/iam", ("userProject",), schemas=("", "Policy")),
    _m(
        "buckets.testIamPermissions",
        "GET b/{bucket}/iam/testPermissions",
        ("permissions", "userProject"),
        schemas=("", "TestIamPermissionsResponse"),
    ),
    _m("bucketAccessControls.list", "GET b/{bucket}/acl", ("userProject",), schemas=("", "BucketAccessControls")),
    _m(
        "defaultObjectAccessControls.list",
        "GET b/{bucket}/defaultObjectAcl",
        ("userProject",),
        schemas=("", "ObjectAccessControls"),
    ),
    _m("objectAccessControls.list", f"GET {_OBJECT}/acl", ("userProject",), schemas=("", "ObjectAccessControls")),
    _m(
        "objects.list",
        "GET b/{bucket}/o",
        (*_PAGED, "delimiter", "matchGlob", "startOffset", "endOffset", "includeTrailingDelimiter", "versions", *_VIEW),
        schemas=("", "Objects"),
    ),
    _m(
        "objects.insert",
        "POST b/{bucket}/o",
        ("name", "contentEncoding", "predefinedAcl", *_CONDITIONS, *_VIEW),
        schemas=_BOTH_OBJECT,
    ),
    _m("objects.get", f"GET {_OBJECT}", ("generation", *_CONDITIONS, *_VIEW), schemas=("", "Object")),
    _m("objects.patch", f"PATCH {_OBJECT}", ("generation", *_CONDITIONS, *_VIEW), schemas=_BOTH_OBJECT),
    _m("objects.update", f"PUT {_OBJECT}", ("generation", *_CONDITIONS, *_VIEW), schemas=_BOTH_OBJECT),
    _m("objects.delete", f"DELETE {_OBJECT}", ("generation", *_CONDITIONS, "userProject")),
    _m(
        "objects.copy",
        f"POST {_COPY}/copyTo/{_TO}",
        ("sourceGeneration", *_CONDITIONS, *_SOURCE, *_VIEW),
        schemas=_BOTH_OBJECT,
    ),
    _m(
        "objects.rewrite",
        f"POST {_COPY}/rewriteTo/{_TO}",
        ("sourceGeneration", "rewriteToken", "maxBytesRewrittenPerCall", *_CONDITIONS, *_SOURCE, *_VIEW),
        schemas=("Object", "RewriteResponse"),
    ),
    _m(
        "objects.move",
        "POST b/{bucket}/o/{sourceObject}/moveTo/o/{destinationObject}",
        (*_CONDITIONS, *_SOURCE, *_VIEW),
        schemas=("", "Object"),
    ),
    _m(
        "objects.compose",
        f"POST {_TO}/compose",
        ("ifGenerationMatch", "ifMetagenerationMatch", "userProject"),
        schemas=("ComposeRequest", "Object"),
    ),
)

LOGGING_METHODS: tuple[ApiMethod, ...] = (
    ApiMethod(
        id="projects.logs.list",
        http="GET",
        path="v2/{+parent}/logs",
        flat_path="v2/projects/{projectsId}/logs",
        pattern="^projects/[^/]+$",
        query=("pageSize", "pageToken", "resourceNames"),
        response="ListLogsResponse",
    ),
    _m("entries.write", "POST v2/entries:write", schemas=("WriteLogEntriesRequest", "WriteLogEntriesResponse")),
    _m("entries.list", "POST v2/entries:list", schemas=("ListLogEntriesRequest", "ListLogEntriesResponse")),
)
