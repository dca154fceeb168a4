"""The client of the HTTP API, for the command line and for scripts. `http.client` only: it must start at once."""

from trainshed.client.discovery import NotRunning, Running, connect, running
from trainshed.client.storage import Storage
from trainshed.client.transport import ApiError, Client, Lost

__all__ = ["ApiError", "Client", "Lost", "NotRunning", "Running", "Storage", "connect", "running"]
