"""What every answer has, and JSON answers of the ml API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson
from starlette.responses import Response

#: a browser takes an answer for what it says it is, and gives it to no page of another origin
SECURITY_HEADERS: Mapping[str, str] = {
    "x-content-type-options": "nosniff",
    "cross-origin-resource-policy": "same-origin",
}


def json_response(body: Mapping[str, Any]) -> Response:
    return Response(orjson.dumps(body), media_type="application/json; charset=UTF-8")
