"""Uploading local files that have to be in a bucket first: an exported model, a package."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

from trainshed.client.context import ClientContext
from trainshed.client.copy_plan import Transfer
from trainshed.client.submission import no_bucket
from trainshed.client.transport import ApiError
from trainshed.client.urls import CopySource, Url, expand
from trainshed.domain.uris import bucket_of
from trainshed.errors import CannotProceedError, InvalidArgumentError, NotFoundError

RunTransfers = Callable[[list[Transfer]], None]  #: runs transfers
Notify = Callable[[str], None]


def stage_upload(
    context: ClientContext, path: Path, staging: str | None, *, run_transfers: RunTransfers, notify: Notify
) -> str:
    """Upload a local folder or file below a checksum of it. Returns its gs:// URI.

    `staging` None means gs://PROJECT-staging, which is created if it is missing.
    """
    sources = _files(context, path)
    bucket = staging_bucket(context, staging, notify=notify)
    prefix = _digest(sources)
    run_transfers([Transfer(source, Url(bucket, f"{prefix}/{source.name_in_folder}")) for source in sources])
    return f"gs://{bucket}/{prefix}/" + ("" if path.is_dir() else path.name)


def staging_bucket(context: ClientContext, name: str | None, *, notify: Notify) -> str:
    """Return the bucket for uploads, which exists: the named one, else the project's own, without its domain."""
    bucket = bucket_of(name or f"{context.project.rpartition(':')[2]}-staging")
    try:
        context.storage.bucket(bucket)
    except ApiError as exc:
        if exc.code != 404:
            raise
        if name is not None:
            raise no_bucket(bucket) from exc
        _create_bucket(context, bucket)
        notify(f"Created gs://{bucket} for uploads.")
    return bucket


def _create_bucket(context: ClientContext, bucket: str) -> None:
    try:
        context.storage.create_bucket(context.project, {"name": bucket})
    except ApiError as exc:
        raise CannotProceedError(
            f"The bucket gs://{bucket} for uploads can't be made: {exc} Choose another one as the staging bucket."
        ) from exc


def _files(context: ClientContext, path: Path) -> list[CopySource]:
    if not path.expanduser().exists():
        raise InvalidArgumentError(
            f"There is no folder or file [{path}] on this machine. What is in a bucket begins with gs://."
        )
    try:
        return list(expand(context.storage, context.project, Url(None, str(path.expanduser())), recursive=True))
    except NotFoundError as exc:
        raise InvalidArgumentError(
            f"The folder [{path}] is empty. Name the folder that holds the exported model."
        ) from exc


def _digest(sources: list[CopySource]) -> str:
    """Return a digest of names and contents: a renamed file gets another folder, not a second name in the same."""
    total = hashlib.sha256()
    for source in sources:
        with open(source.url.name, "rb") as file:
            content = hashlib.file_digest(file, "sha256").hexdigest()
        total.update(f"{content} {source.name_in_folder}\n".encode())
    return total.hexdigest()
