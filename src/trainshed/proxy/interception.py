"""Google's names on the server's own TLS port. A client that asks for one of them, as the relays of other machines lead
trainers to do, sees the certificate for it, and its requests are rewritten as those that come by the proxy are.

This leads nowhere else: what comes in is a request to this server, with a token or refused.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable

from trainshed.proxy.front import InterceptedConnection
from trainshed.proxy.google_hosts import NAMES, served_name


class SniContexts:
    """One context for each name, so that a connection's own context tells by which name it was opened."""

    def __init__(self, context: Callable[[], ssl.SSLContext]) -> None:
        self._contexts = {name: context() for name in NAMES}
        self._names = {context: name for name, context in self._contexts.items()}

    def choose(self, connection: ssl.SSLObject, asked: str | None, _: ssl.SSLContext) -> None:
        """To be told the name (SNI) that a client asks for; any name but Google's is left to the port's own context."""
        name = served_name(asked or "")
        if name is not None:
            connection.context = self._contexts[name]

    def name(self, transport: asyncio.Transport) -> str | None:
        """Google's name by which a connection was opened; None if it was another one, or none."""
        return self._names.get(transport.get_extra_info("ssl_object").context)


def intercept(transport: asyncio.Transport, inner: asyncio.Protocol, name: str) -> None:
    """From now on the connection is Google's, at this end; `inner` answers what was asked of it."""
    front = InterceptedConnection(inner, name)
    transport.set_protocol(front)
    front.begin(transport)
