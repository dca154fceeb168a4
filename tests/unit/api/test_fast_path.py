"""What the fast path of predictions keeps of a request."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from trainshed.api.ml.fast_path import FastPath
from trainshed.gateway.routes import PredictTarget
from trainshed.services.access.request_rates import RequestRates
from trainshed.services.registry import Services
from trainshed.serving.frames import FrameKind

PATH = b"/v1/projects/p/models/m:predict"
HEADERS = [(b"host", b"127.0.0.1"), (b"content-length", b"2")]


@pytest.mark.parametrize(("query", "kept"), [(b"", True), (b"alt=json", True), (b"access_token=secret", False)])
def test_a_url_with_a_token_is_not_kept(query: bytes, kept: bool) -> None:
    services = SimpleNamespace(rates=RequestRates(lambda: ()))
    path = FastPath(cast(Services, services), authentication=False, body_limit=10)
    target = PredictTarget(project="p", model="m", version="", kind=FrameKind.PREDICT)
    path.remember({"raw_path": PATH, "query_string": query, "headers": HEADERS}, target)
    assert path.target(b"POST", PATH + (b"?" + query if query else b""), HEADERS) == (target if kept else None)
