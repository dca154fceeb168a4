"""The public object with the discovery document of the ml API, which programs for AI Platform Optimizer read first.

They get the bucket, then the object, then its content, as Google's client for storage does. The content is made for
the caller: its root is the host that was asked.
"""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response

from trainshed.api.http.responses import json_response
from trainshed.api.storage.resources import base_url

_BUCKET = "caip-optimizer-public"
_OBJECT = "api/ml_public_google_rest_v1.json"
_DISCOVERY = "/discovery/v1/apis/{api}/{version}/rest"


def is_asked(bucket: str, name: str | None) -> bool:
    """Return whether this bucket or this object is the one. A listing of the bucket is not answered here."""
    return bucket == _BUCKET and name in (None, _OBJECT)


async def respond(request: Request, *, download: bool) -> Response:
    """Return the bucket, the object, or with `download` its content."""
    base = base_url(request)
    if "object" not in request.path_params:
        return json_response(_bucket(base))
    content = await _document(request)
    if download:
        return Response(content, media_type="application/json", headers={"x-goog-hash": f"md5={_md5(content)}"})
    return json_response(_resource(base, content))


async def _document(request: Request) -> bytes:
    """Return what this server's own route says to the caller."""
    route = next(each for each in request.scope["trainshed.app"].routes if each.path == _DISCOVERY)
    own = {**request.scope, "path_params": {"api": "ml", "version": "v1"}, "query_string": b""}
    return bytes((await route.handler(Request(own))).body)


def _bucket(base: str) -> Mapping[str, Any]:
    link = f"{base}/storage/v1/b/{_BUCKET}"
    return {"kind": "storage#bucket", "id": _BUCKET, "name": _BUCKET, "selfLink": link, "location": "US"}


def _resource(base: str, content: bytes) -> Mapping[str, Any]:
    path = f"storage/v1/b/{_BUCKET}/o/{quote(_OBJECT, safe='')}"
    return {
        "kind": "storage#object",
        "id": f"{_BUCKET}/{_OBJECT}",
        "name": _OBJECT,
        "bucket": _BUCKET,
        "selfLink": f"{base}/{path}",
        "mediaLink": f"{base}/download/{path}?alt=media",
        "contentType": "application/json",
        "size": str(len(content)),
        "md5Hash": _md5(content),
    }


def _md5(content: bytes) -> str:
    return b64encode(hashlib.md5(content, usedforsecurity=False).digest()).decode()
