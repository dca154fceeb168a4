"""The listeners of the server: uvicorn, with the adapter if it knows this version, otherwise by its options alone."""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any, cast

import uvicorn
from starlette.types import ASGIApp

from trainshed.api.ml.fast_path import FastPath

ProtocolFactory = Callable[..., asyncio.Protocol]

HEADERS_TIMEOUT_S = 15  #: from the start of a connection, or the last response on it, to the end of the next headers

#: The first version that the adapter knows, and the first that it does not. `pyproject.toml` pins the same.
KNOWN_VERSIONS = {"uvicorn": ("0.54", "0.55"), "httptools": ("0.6.4", "0.10")}


def installed_versions() -> dict[str, str]:
    return {name: metadata.version(name) for name in KNOWN_VERSIONS}


def unknown_versions(installed: Mapping[str, str]) -> str:
    """Return a sentence that says that the fast path is off. Returns "" if the adapter knows these versions."""
    if all(_numbers(low) <= _numbers(installed[name]) < _numbers(end) for name, (low, end) in KNOWN_VERSIONS.items()):
        return ""
    found = " and ".join(f"{name} {version}" for name, version in installed.items())
    known = " and ".join(f"{name}>={low},<{end}" for name, (low, end) in KNOWN_VERSIONS.items())
    return (
        f"The fast path of predictions is off, and clients that stall within a request are kept: that is known to work "
        f"with {known}, and here are {found}."
    )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:3])


class Listener(uvicorn.Server):
    """One listener of the server. The process handles signals for all."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    def protocol(self, config: uvicorn.Config) -> asyncio.Protocol:
        """Create a protocol for a connection that others accepted. It ends with the connections of this listener."""
        if not config.loaded:
            config.load()
        create = cast("ProtocolFactory", config.http_protocol_class)
        return create(config=config, server_state=self.server_state, app_state={})

    def choose_by_sni(
        self,
        callback: Callable[[ssl.SSLObject, str | None, ssl.SSLContext], None],
        choose: Callable[[Callable[[], asyncio.Protocol]], asyncio.Protocol],
    ) -> None:
        """Set the SNI callback of a TLS listener. `choose` creates its protocols, and gets the factory of its own."""
        self.config.load()
        create_own = cast("ProtocolFactory", self.config.http_protocol_class)

        def create(**options: Any) -> asyncio.Protocol:
            return choose(partial(create_own, **options))

        self.config.http_protocol_class = cast("type[asyncio.Protocol]", create)
        assert self.config.ssl is not None
        self.config.ssl.sni_callback = callback


def listener_config(
    app: ASGIApp,
    *,
    fast_path: FastPath | None,
    certificate: tuple[Path, Path] | None = None,
    idle_shutdown_s: float | None = None,
) -> uvicorn.Config:
    """The configuration of a listener. With a certificate and its key, it serves TLS.

    Without `fast_path`, uvicorn serves with what it documents. Its other protocol is used then: it limits the size of
    headers by itself. With `idle_shutdown_s`, idle connections are aborted so long after the start of a shutdown.
    """
    protocol: Any = "h11"
    if fast_path is not None:
        from trainshed.api.uvicorn_adapter import TimedProtocol  # late: another version may lack what it imports

        protocol = partial(TimedProtocol, fast_path=fast_path, idle_shutdown_s=idle_shutdown_s)
    return uvicorn.Config(
        app,
        http=protocol,
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=HEADERS_TIMEOUT_S,
        timeout_graceful_shutdown=10,
        limit_concurrency=1000,
        h11_max_incomplete_event_size=65_536,
        ssl_certfile=certificate[0] if certificate else None,
        ssl_keyfile=str(certificate[1]) if certificate else None,
    )
