"""Trainshed: the ML Engine you own.

`connect()` leads to the Python client: jobs, models and buckets of a server. See docs/client.md.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing this package costs nothing until the client is asked for
    from trainshed.sdk.session import Trainshed

__version__ = "0.1.0"


def connect(url: str | None = None, *, token: str | None = None, project: str | None = None) -> Trainshed:
    """The Python client of a server: the one that the command line would talk to, unless `url` names another.

    What is not given comes from TRAINSHED_URL, TRAINSHED_TOKEN, TRAINSHED_PROJECT and the state folder
    (TRAINSHED_HOME). `trainshed.errors.Refused` if no server is running.
    """
    from trainshed.sdk.session import connect as connected

    return connected(url, token=token, project=project)
