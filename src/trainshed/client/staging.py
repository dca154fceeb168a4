"""What is on the user's machine and has to be in a bucket first: an exported model, a package."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

from trainshed.client.context import ClientContext
from trainshed.client.copy_plan import Transfer
from trainshed.client.submission import no_bucket
from trainshed.client.transport import ApiError
from trainshed.client.urls import CopySource, Url, expand
from trainshed.errors import CannotProceedError, InvalidArgumentError, NotFoundError

Carry = Callable[[list[Transfer]], None]  #: carries transfers out
Say = Callable[[str], None]


def staged(here: ClientContext, path: Path, staging: str | None, *, carry: Carry, say: Say) -> str:
    """Upload a local folder or file below a checksum of it; the gs:// name that it has then.

    `staging` None means gs://PROJECT-staging, which is made if need be.
    """
    sources = _files(here, path)
    bucket = staging_bucket(here, staging, say=say)
    prefix = _digest(sources)
    carry([Transfer(source, Url(bucket, f"{prefix}/{source.stripped}")) for source in sources])
    return f"gs://{bucket}/{prefix}/" + ("" if path.is_dir() else path.name)


def staging_bucket(here: ClientContext, given: str | None, *, say: Say) -> str:
    """The name of the bucket for uploads, which is there: the given one, else the project's own."""
    bucket = (given or f"gs://{here.project}-staging").removeprefix("gs://").rstrip("/")
    try:
        here.storage.bucket(bucket)
    except ApiError as exc:
        if exc.code != 404:
            raise
        if given is not None:
            raise no_bucket(bucket) from exc
        _make(here, bucket)
        say(f"Created gs://{bucket} for uploads.")
    return bucket


def _make(here: ClientContext, bucket: str) -> None:
    try:
        here.storage.create_bucket(here.project, {"name": bucket})
    except ApiError as exc:
        raise CannotProceedError(
            f"The bucket gs://{bucket} for uploads can't be made: {exc} Choose another one as the staging bucket."
        ) from exc


def _files(here: ClientContext, path: Path) -> list[CopySource]:
    if not path.expanduser().exists():
        raise InvalidArgumentError(
            f"There is no folder or file [{path}] on this machine. What is in a bucket begins with gs://."
        )
    try:
        return list(expand(here.storage, here.project, Url(None, str(path.expanduser())), recursive=True))
    except NotFoundError as exc:
        raise InvalidArgumentError(
            f"The folder [{path}] is empty. Name the folder that holds the exported model."
        ) from exc


def _digest(sources: list[CopySource]) -> str:
    """Of names and contents: a file that is renamed makes another folder, and never a second file in the same one."""
    total = hashlib.sha256()
    for source in sources:
        with open(source.url.name, "rb") as file:
            content = hashlib.file_digest(file, "sha256").hexdigest()
        total.update(f"{content} {source.stripped}\n".encode())
    return total.hexdigest()
