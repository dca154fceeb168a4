"""Which of Google's names the server answers for, and where on the server each of their paths leads."""

from __future__ import annotations

import re

_STORAGE = "storage.googleapis.com"
_WWW = "www.googleapis.com"
_OAUTH = "oauth2.googleapis.com"
_ML = "ml.googleapis.com"

#: all names that a forwarded request may have as its Host; nobody but Google can make them lead elsewhere
NAMES = frozenset({_STORAGE, _WWW, _OAUTH, _ML, "logging.googleapis.com"})
CERTIFIED = ("*.googleapis.com", "googleapis.com")

_REGIONAL_ML = re.compile(r"[a-z]{2,20}-[a-z]{2,20}\d{1,2}-ml\.googleapis\.com")
#: all that `served_name` answers for, for those who can't call it
PATTERN = "|".join((*map(re.escape, sorted(NAMES)), _REGIONAL_ML.pattern))
_TOKEN_PATHS = {_WWW: ("/oauth2/v3/token", "/oauth2/v4/token"), _OAUTH: ("/token",)}
_STORAGE_API = (
    "/storage/v1/",
    "/upload/storage/v1/",
    "/download/storage/v1/",
    "/resumable/upload/storage/v1/",
    "/batch/storage/v1",
)


def served_name(host: str) -> str | None:
    """The name by which the server answers for this host; None if the host is someone else's."""
    name = host.lower()
    return _ML if _REGIONAL_ML.fullmatch(name) else name if name in NAMES else None


def rewrite_path(name: str, asked: str) -> str:
    """Where a request for `asked` (path and query) at a served name goes on the server.

    Objects may be read at `storage.googleapis.com/BUCKET/OBJECT`, as TensorFlow does; all else keeps its path.
    """
    path, mark, query = asked.partition("?")
    if path in _TOKEN_PATHS.get(name, ()):
        return f"/token{mark}{query}"
    if name == _STORAGE and not path.startswith(_STORAGE_API):
        bucket, _, object_name = path[1:].partition("/")
        if bucket and object_name:
            return f"/download/storage/v1/b/{bucket}/o/{object_name.replace('/', '%2F')}{mark}{query}"
    return asked
