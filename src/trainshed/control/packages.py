"""Users' packages in buckets: copies them, and names installations by runtime and package contents."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from trainshed.artifacts.staging import Package
from trainshed.control.uri_resolver import UriResolver
from trainshed.errors import FailedPreconditionError, NotFoundError

#: in an attempt's folder: copies of packages. The supervisor removes its parent when they are installed.
FETCHED_FOLDER = Path("packages/fetched")


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageRequest:
    """Whose packages to copy, where copies go, and the remedy to show for a missing one."""

    project: str
    copies: Path
    remedy: str


def resolve_packages(uris: Sequence[str], uri_resolver: UriResolver, request: PackageRequest) -> tuple[Package, ...]:
    """Copy the packages at these URIs and return them, in order.

    What is installed is the copy: a job can put a link to another project's object in place of a bucket's file at any
    time. Raises `FailedPreconditionError` if a package is missing or a link.
    """
    return tuple(_package(uri, uri_resolver, request) for uri in uris)


def _package(uri: str, uri_resolver: UriResolver, request: PackageRequest) -> Package:
    try:
        path = uri_resolver.copy(request.project, uri, copies=request.copies)
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
