"""The client of the HTTP API, for the command line and for scripts. It uses only `http.client`, so it imports fast."""

from trainshed.client.discovery import ServerNotRunningError, ServerProcess, connect, running
from trainshed.client.storage import Storage
from trainshed.client.transport import ApiError, Client, ConnectionLostError

__all__ = [
    "ApiError",
    "Client",
    "ConnectionLostError",
    "ServerNotRunningError",
    "ServerProcess",
    "Storage",
    "connect",
    "running",
]
