"""What the XML API says of access, and what it refuses: access lists and settings are changed by the JSON API."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from trainshed.api.http.request import principal, services
from trainshed.api.storage.resources import NO_ACLS
from trainshed.api.storage.xml_documents import Node, document
from trainshed.domain.iam import Access
from trainshed.domain.objects import bucket_not_found
from trainshed.errors import InvalidArgumentError, PermissionDeniedError

#: parameters that name a part of a bucket or object, and are not served here
_SUBRESOURCES = (
    *("accelerate", "acl", "analytics", "attributes", "billing", "compose", "cors", "defaultObjectAcl", "encryption"),
    *("encryptionConfig", "inventory", "lifecycle", "logging", "metrics", "notification", "object-lock", "policy"),
    *("replication", "requestPayment", "restore", "retention", "select", "tagging", "torrent", "website"),
)


def access_list(project: str) -> Response:
    """Return the access list that everything of a project has."""
    scope: list[Node] = [("ID", f"project-owners-{project}")]
    entry: list[Node] = [("Scope", scope), ("Permission", "FULL_CONTROL")]
    body: list[Node] = [("Owner", scope), ("Entries", [("Entry", entry)])]
    return document("AccessControlList", body, headers=NO_ACLS)


def refuse_others(query: Mapping[str, str]) -> None:
    """Raises `InvalidArgumentError` for what would be taken for a read of the object or bucket itself."""
    for name in _SUBRESOURCES:
        if name in query:
            raise InvalidArgumentError(f"?{name} is not served here. Use the JSON API.", field=name)


def refuse_writes(query: Mapping[str, str]) -> None:
    """Raises `InvalidArgumentError` for a change of something else than the object or bucket itself."""
    if "acl" in query:
        raise InvalidArgumentError(
            "Access lists can't be changed here: tokens decide who may read and write. "
            "Owners make them with `trainshed auth tokens create`.",
            field="acl",
        )
    refuse_others(query)


async def check_readable(request: Request, bucket: str) -> None:
    """Raises `PermissionDeniedError` or `NotFoundError` unless the caller may read a bucket named in a header."""
    project = await run_in_threadpool(services(request).buckets.owner, bucket)
    caller = principal(request)
    if not caller.sees(project):
        raise bucket_not_found(bucket)
    if not caller.may(Access.READ_OBJECTS, project):
        raise PermissionDeniedError(f"This token may not read {bucket}.")
