"""Paths of Cloud Storage's XML API, which names buckets and objects alone, and the routes here that serve them.

`/BUCKET/OBJECT` at a host for all buckets, and `/OBJECT` at a bucket's own host, become `/xml/v1/b/BUCKET/o/OBJECT`. So
no bucket is taken for another API of the server.
"""

from __future__ import annotations

import re

HOST = "storage.googleapis.com"
BUCKET = "/xml/v1/b/{bucket}"  #: routes
OBJECT = "/xml/v1/b/{bucket}/o/{object}"
PREFIX = "/xml/v1/"
#: a bucket's own host. Names with dots have none: no certificate covers them, and neither does Google's
BUCKET_HOST = re.compile(r"([a-z0-9][a-z0-9_-]{1,61}[a-z0-9])\.storage\.googleapis\.com")
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{1,61}[a-z0-9]")


def host_bucket(host: str) -> str:
    """Return the bucket whose own host this is. Returns "" for any other host."""
    match = BUCKET_HOST.fullmatch(host.lower().removesuffix(":443").removesuffix(":80"))
    return match[1] if match else ""


def may_be_bucket(segment: str) -> bool:
    """Return whether the first segment of a path may be the name of a bucket."""
    return _NAME.fullmatch(segment) is not None


def route_path(path: str, bucket: str = "") -> str:
    """Return the path here for one of the XML API. `bucket` is given at a bucket's own host.

    The names stay in percent encoding. An empty path at a host for all buckets stays as it is.
    """
    name = path.removeprefix("/")
    if not bucket:
        bucket, _, name = name.partition("/")
    if not bucket:
        return path
    root = BUCKET.format(bucket=bucket)
    return f"{root}/o/{name.replace('/', '%2F')}" if name else root
