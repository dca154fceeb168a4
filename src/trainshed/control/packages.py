"""Users' packages in buckets: resolves their URIs, and names installations by runtime and package contents."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from trainshed.artifacts.staging import Package
from trainshed.control.uri_resolver import UriResolver
from trainshed.errors import FailedPreconditionError, NotFoundError

FETCHED_FOLDER = "fetched"  #: in an attempt's folder: copies of packages from cloud buckets


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageRequest:
    """Whose packages to resolve, where copies go, and the remedy to show for a missing one."""

    project: str
    copies: Path
    remedy: str


def resolve_packages(uris: Sequence[str], uri_resolver: UriResolver, request: PackageRequest) -> tuple[Package, ...]:
    """Return the packages at these URIs, in order. Raises `FailedPreconditionError` if one is missing."""
    return tuple(_package(uri, uri_resolver, request) for uri in uris)


def _package(uri: str, uri_resolver: UriResolver, request: PackageRequest) -> Package:
    try:
        path = uri_resolver.local_file(request.project, uri, copies=request.copies)
    except NotFoundError:
        raise FailedPreconditionError(f"The package {uri} is no longer there. {request.remedy}") from None
    with path.open("rb") as file:
        return Package(uri=uri, path=path, sha256=hashlib.file_digest(file, "sha256").hexdigest())


def site_name(python: Path, packages: tuple[Package, ...]) -> str:
    """Return the name of an installation, derived from its runtime and the contents of its packages in order."""
    digest = hashlib.sha256(str(python).encode())
    for each in packages:
        digest.update(f"\n{each.path.name} {each.sha256}".encode())
    return digest.hexdigest()[:32]
