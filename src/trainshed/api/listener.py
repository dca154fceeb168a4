"""The configuration of a listener: uvicorn with the fast path, or by its documented options alone."""

from __future__ import annotations

from functools import partial
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from trainshed.api.ml.fast_path import FastPath
from trainshed.api.unread_responses import UnreadResponses
from trainshed.api.uvicorn_adapter import IDLE_SHUTDOWN_TIMEOUT_S, ConnectionTaker, TimedProtocol
from trainshed.connections import DEFAULT_MAX, Connections

HEADERS_TIMEOUT_S = 15  #: from the start of a connection, or the last response on it, to the end of the next headers


def listener_config(
    app: ASGIApp,
    *,
    fast_path: FastPath | None,
    connections: Connections,
    unread: UnreadResponses | None = None,
    idle_shutdown_s: float = IDLE_SHUTDOWN_TIMEOUT_S,
    gateways: ConnectionTaker | None = None,
) -> uvicorn.Config:
    """The configuration of a listener.

    Without `fast_path`, uvicorn serves with what it documents. Its other protocol is used then: it limits the size of
    headers by itself, and the number of connections alone. A shutdown aborts idle connections after `idle_shutdown_s`.
    With `gateways`, connections go there after a prediction.
    """
    protocol: Any = "h11"
    if fast_path is not None:
        protocol = partial(
            TimedProtocol,
            fast_path=fast_path,
            connections=connections,
            unread=unread or UnreadResponses(),
            idle_shutdown_s=idle_shutdown_s,
            gateways=gateways,
        )
    return uvicorn.Config(
        app,
        http=protocol,
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=HEADERS_TIMEOUT_S,
        timeout_graceful_shutdown=10,
        # uvicorn's own limit counts connections, idle ones too, and lets nobody in when it is reached
        limit_concurrency=DEFAULT_MAX if fast_path is None else None,
        h11_max_incomplete_event_size=65_536,
    )
