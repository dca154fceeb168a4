"""The hosts of Google that the server intercepts, and the server paths that their paths map to."""

from __future__ import annotations

import re

from trainshed.domain.storage import xml_paths

_STORAGE = xml_paths.HOST
_WWW = "www.googleapis.com"
_OAUTH = "oauth2.googleapis.com"
_ML = "ml.googleapis.com"

#: all names that a forwarded request may have as its Host; only Google controls their DNS
NAMES = frozenset({_STORAGE, _WWW, _OAUTH, _ML, "logging.googleapis.com"})
#: the hosts of buckets
BUCKET_NAMES = f"*.{_STORAGE}"
CERTIFIED = ("*.googleapis.com", "googleapis.com", BUCKET_NAMES)

_REGIONAL_ML = re.compile(r"[a-z]{2,20}-[a-z]{2,20}\d{1,2}-ml\.googleapis\.com")
#: a regular expression for all hosts of `served_name`, for processes that cannot call it
PATTERN = "|".join((*map(re.escape, sorted(NAMES)), _REGIONAL_ML.pattern, xml_paths.BUCKET_HOST.pattern))
_TOKEN_PATHS = {_WWW: ("/oauth2/v3/token", "/oauth2/v4/token"), _OAUTH: ("/token",)}
_STORAGE_API = (
    "/$discovery/",
    "/storage/v1/",
    "/upload/storage/v1/",
    "/download/storage/v1/",
    "/resumable/upload/storage/v1/",
    "/batch/storage/v1",
)
_ML_DISCOVERY = "/discovery/v1/apis/ml/v1/rest"
#: public objects that are the discovery document of the ml API, which older clients and samples read
_DISCOVERY_OBJECTS = frozenset(
    {"/cloud-ml/discovery/ml_v1_discovery.json", "/caip-optimizer-public/api/ml_public_google_rest_v1.json"}
)


def served_name(host: str) -> str | None:
    """Return the name under which the server intercepts this host. Returns None if it does not."""
    name = host.lower()
    if _REGIONAL_ML.fullmatch(name):
        return _ML
    return _STORAGE if xml_paths.host_bucket(name) else name if name in NAMES else None


def rewrite_path(name: str, target: str, *, bucket: str = "") -> str:
    """Return the server path for a request to `target` (path and query) at an intercepted host.

    Paths of the XML API, at which TensorFlow reads objects, become those of its routes here. Other paths stay. `bucket`
    is given at a bucket's own host.
    """
    path, separator, query = target.partition("?")
    if path in _TOKEN_PATHS.get(name, ()):
        return f"/token{separator}{query}"
    if name == _STORAGE and path in _DISCOVERY_OBJECTS:
        return f"{_ML_DISCOVERY}{separator}{query}"
    if name == _STORAGE and not path.startswith(_STORAGE_API):
        return f"{xml_paths.route_path(path, bucket)}{separator}{query}"
    return target
