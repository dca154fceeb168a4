"""Users' packages in buckets: found, and named by their contents together with the runtime they are installed for."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from trainshed.artifacts.staging import Package
from trainshed.control.uri_resolver import UriResolver
from trainshed.errors import FailedPreconditionError, NotFoundError

FOLDER = "fetched"  #: in an attempt's own: copies of packages that are kept in a cloud


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageRequest:
    """Whose packages, where copies may go, and what to do about one that is missing."""

    project: str
    copies: Path
    remedy: str


def resolve_packages(uris: Sequence[str], addresses: UriResolver, wanted: PackageRequest) -> tuple[Package, ...]:
    """Those at the addresses, in their order. `FailedPreconditionError`, with the remedy, if one is not there."""
    return tuple(_package(uri, addresses, wanted) for uri in uris)


def _package(uri: str, addresses: UriResolver, wanted: PackageRequest) -> Package:
    try:
        path = addresses.local_file(wanted.project, uri, copies=wanted.copies)
    except NotFoundError:
        raise FailedPreconditionError(f"The package {uri} is no longer there. {wanted.remedy}") from None
    with path.open("rb") as file:
        return Package(uri=uri, path=path, sha256=hashlib.file_digest(file, "sha256").hexdigest())


def site_name(python: Path, packages: tuple[Package, ...]) -> str:
    """Names an environment by its runtime and the contents of its packages, in their order."""
    total = hashlib.sha256(str(python).encode())
    for each in packages:
        total.update(f"\n{each.path.name} {each.sha256}".encode())
    return total.hexdigest()[:32]
