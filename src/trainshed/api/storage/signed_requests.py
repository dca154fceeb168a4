"""Requests of the XML API: where their paths lead, and which of them bring a signature instead of a token."""

from __future__ import annotations

from collections.abc import Collection
from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.types import Scope

from trainshed.api.http.routing import Route
from trainshed.domain.access.signatures import MARKS, SignableRequest, signed_url
from trainshed.domain.iam import Principal
from trainshed.domain.storage import xml_paths
from trainshed.services.registry import Services


def rewrite_path(scope: Scope, host: str, taken: Collection[str]) -> bool:
    """Give a request that is for no route the path of the XML API's. Returns False if it can't be one.

    `taken` has the first segments of all other paths, which name no buckets at this server's own address.
    """
    path = scope["raw_path"].decode("latin-1")
    bucket = xml_paths.host_bucket(host)
    first = path.removeprefix("/").partition("/")[0]
    if not bucket and (first in taken or not xml_paths.may_be_bucket(first)):
        return False
    scope["raw_path"] = xml_paths.route_path(path, bucket).encode("latin-1")
    return True


def is_signed_request(request: Request, route: Route) -> bool:
    """Return whether a request of the XML API brings a signature and no other credential."""
    return (
        route.path in (xml_paths.BUCKET, xml_paths.OBJECT)
        and b"Signature=" in request.scope["query_string"]
        and any(name in MARKS for name, _ in _pairs(request.scope))
        and "authorization" not in request.headers
        and "cookie" not in request.headers
    )


def signer(request: Request, services: Services) -> Principal:
    """Return who signed a request. Raises `PermissionDeniedError` if nobody did who may now."""
    params = request.path_params
    signed = signed_url(
        SignableRequest(
            method=request.method,
            host=request.headers["host"],
            bucket=params["bucket"],
            name=params.get("object", ""),
            query=_pairs(request.scope),
            headers=dict(request.headers),
        )
    )
    return services.account_keys.signer(signed)


def _pairs(scope: Scope) -> list[tuple[str, str]]:
    return parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
