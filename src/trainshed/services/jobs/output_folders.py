"""The output folders of a training job in its project's buckets."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from trainshed.buckets.names import components, split_uri
from trainshed.domain.jobs.job import Job
from trainshed.domain.uris import is_uri
from trainshed.errors import InvalidArgumentError, NotFoundError

#: options that name inputs
_INPUTS = re.compile(r"data|input|file|train|eval|test|vocab|record|package")

Owner = Callable[[str], str]  #: returns the project of a bucket; raises `NotFoundError` if there is no such bucket


def folders(job: Job, owner: Owner) -> Iterator[tuple[str, ...]]:
    """Yield the job's folder, then those in its arguments: each as bucket and path components."""
    for uri in dict.fromkeys((job.workload.job_dir, *output_uris(job.workload.args))):
        if (parts := folder(job, uri, owner)) is not None:
            yield parts


def folder(job: Job, uri: str, owner: Owner) -> tuple[str, ...] | None:
    """Return bucket and path components of a gs:// URI.

    Returns None if it is no URI or its bucket is another project's.
    """
    try:
        bucket, name = split_uri(uri)
        path = components(name) if name.rstrip("/") else ()
        return (bucket, *path) if owner(bucket) == job.project else None
    except (InvalidArgumentError, NotFoundError):
        return None


def output_uris(args: Sequence[str]) -> Iterator[str]:
    """Yield the gs:// URIs in a trainer's arguments that it may write to."""
    option = ""
    for arg in args:
        name, _, value = arg.partition("=") if arg.startswith("--") else (option, "", arg)
        option = name
        if is_uri(value) and not _INPUTS.search(name.lower()):
            yield value
