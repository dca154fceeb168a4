"""Users' packages in buckets: found, and named by their contents together with the runtime they are installed for."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

from trainshed.buckets.names import object_path, split_uri
from trainshed.engines.base import Package
from trainshed.errors import FailedPrecondition, Invalid, NotFound


def paths_for(project: str, buckets: Path, owner: Callable[[str], str]) -> Callable[[str], Path | None]:
    """Turns a gs:// address into a path, if its bucket belongs to the project. `owner` may raise `NotFound`."""

    def path_of(uri: str) -> Path | None:
        try:
            bucket, name = split_uri(uri)
            if owner(bucket) != project:
                return None
            return object_path(buckets, bucket, name.rstrip("/"))
        except (Invalid, NotFound):
            return None

    return path_of


def node_paths_for(
    project: str, folder: str, owner: Callable[[str], str], *, leads: bool
) -> Callable[[str], Path | None]:
    """As `paths_for`, for trainers on other machines, which see the buckets at `folder`.

    If that is empty, they don't, and an address stays as it is: their code reads it from this server, if it `leads`
    there. `FailedPrecondition` for an address of ours that code would not find.
    """
    path_of = paths_for(project, Path(folder), owner)
    if folder:
        return path_of

    def stays(uri: str) -> Path | None:
        if not leads and path_of(uri) is not None:
            raise FailedPrecondition(
                f"{uri} is in a bucket of this server, and `gs://` in the code of this job would not lead here from "
                f"other machines. Set node_buckets to a folder at which they see the buckets; or use a runtime with "
                f"TensorFlow 2, and set gs_in_trainers to trainshed."
            )
        return None

    return stays


def package(uri: str, path_of: Callable[[str], Path | None], *, remedy: str) -> Package:
    """The package at an address. `FailedPrecondition`, ending in `remedy`, if it is not there."""
    path = path_of(uri)
    if path is None or not path.is_file():
        raise FailedPrecondition(f"The package {uri} is no longer there. {remedy}")
    with path.open("rb") as file:
        return Package(uri=uri, path=path, sha256=hashlib.file_digest(file, "sha256").hexdigest())


def site_name(python: Path, packages: tuple[Package, ...]) -> str:
    """Names an environment by its runtime and the contents of its packages, in their order."""
    total = hashlib.sha256(str(python).encode())
    for each in packages:
        total.update(f"\n{each.path.name} {each.sha256}".encode())
    return total.hexdigest()[:32]
