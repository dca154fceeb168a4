"""Where a training writes in the buckets of its project."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from trainshed.buckets.names import components, split_uri
from trainshed.domain.jobs.job import Job
from trainshed.domain.jobs.training import Training
from trainshed.errors import InvalidArgumentError, NotFoundError

#: options whose values are read from, and not written to
_INPUTS = re.compile(r"data|input|file|train|eval|test|vocab|record|package")

Owner = Callable[[str], str]  #: the project of a bucket; raises `NotFoundError` if there is no such bucket


def folders(job: Job, owner: Owner) -> Iterator[tuple[str, ...]]:
    """The job's folder, then those that its arguments name: each a bucket and the folders in it."""
    training = training_of(job)
    for uri in dict.fromkeys((training.job_dir, *addresses(training.args))):
        if (found := folder(job, uri, owner)) is not None:
            yield found


def folder(job: Job, uri: str, owner: Owner) -> tuple[str, ...] | None:
    """The bucket and the folders of a gs:// address; None for what is none, or in a bucket of another project."""
    try:
        bucket, name = split_uri(uri)
        within = components(name) if name.rstrip("/") else ()
        return (bucket, *within) if owner(bucket) == job.project else None
    except (InvalidArgumentError, NotFoundError):
        return None


def addresses(args: Sequence[str]) -> Iterator[str]:
    """The gs:// addresses in a trainer's arguments that it may write to."""
    option = ""
    for arg in args:
        name, _, value = arg.partition("=") if arg.startswith("--") else (option, "", arg)
        option = name
        if value.startswith("gs://") and not _INPUTS.search(name.lower()):
            yield value


def training_of(job: Job) -> Training:
    """What it was asked to train: nothing, for a job of another kind."""
    return Training.parse(job.body.get(Training.key, {}))
