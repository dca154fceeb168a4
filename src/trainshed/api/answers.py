"""JSON answers of the ml API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson
from starlette.responses import Response


def answer(body: Mapping[str, Any]) -> Response:
    return Response(orjson.dumps(body), media_type="application/json; charset=UTF-8")
