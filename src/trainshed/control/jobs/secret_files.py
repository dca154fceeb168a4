"""Gives a job its secrets: files and variables that its supervisor hands to the replicas."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from trainshed.domain.access.secrets import Delivery, requested, variable_of
from trainshed.domain.jobs.job import Job
from trainshed.engines.base import AttemptSpec, Mount
from trainshed.engines.secret_files import (
    FOLDER_VARIABLE,
    SECRETS_FILE,
    SECRETS_FOLDER,
    Values,
    remove_secrets,
    write_secrets,
)
from trainshed.errors import FailedPreconditionError

LOG = logging.getLogger("trainshed.secrets")

CONTAINER_SECRETS_FOLDER = Path("/trainshed-secrets")  #: where a container sees the files


class SecretFiles:
    """Writes the secrets of attempts on this machine. `values` returns secrets of a project by their names."""

    def __init__(self, values: Values) -> None:
        self._values = values
        self._given: dict[tuple[str, str], tuple[str, ...]] = {}  # to jobs that this server started

    def give(self, job: Job, spec: AttemptSpec) -> AttemptSpec:
        """Write what the job's labels ask for into the attempt's folder. The spec has no value, only a path.

        Raises `FailedPreconditionError` if a secret is not there any more.
        """
        wanted = requested(job.labels)
        if not wanted:
            return spec
        values = self._values(job.project, wanted)
        self._given[job.project, job.id] = tuple(values.values())
        if spec.containers is None:
            folder = write_secrets(spec.folder, wanted, values)
            return replace(spec, env={FOLDER_VARIABLE: str(folder), **spec.env}, writable=(*spec.writable, folder))
        folder = write_secrets(spec.folder, wanted, values, mode=0o644)  # the image's user may be any
        folder.chmod(0o755)
        mount = Mount(source=folder, target=CONTAINER_SECRETS_FOLDER, read_only=True)
        variables = tuple(variable_of(name) for name, how in wanted.items() if how is Delivery.VARIABLE)
        containers = replace(spec.containers, mounts=(*spec.containers.mounts, mount), secret_variables=variables)
        return replace(spec, env={FOLDER_VARIABLE: str(CONTAINER_SECRETS_FOLDER), **spec.env}, containers=containers)

    def values_of(self, job: Job) -> Sequence[str]:
        """Return the values that a job was given: nothing that it writes through the server may show them.

        After a restart of the server these are the present ones, of those secrets that are still there.
        """
        if not (wanted := requested(job.labels)):
            return ()
        if (given := self._given.get((job.project, job.id))) is not None:
            return given
        values: list[str] = []
        for name in wanted:
            try:
                values += self._values(job.project, [name]).values()
            except FailedPreconditionError:
                LOG.warning("secrets.not_masked project=%s job=%s secret=%s", job.project, job.id, name)
        return values

    def remove(self, job: Job, attempt: Path) -> None:
        """Remove the secrets of a job that has ended from the folder of its attempt. Idempotent.

        Its supervisor does the same, unless it was killed or never started.
        """
        if not requested(job.labels):
            return
        self._given.pop((job.project, job.id), None)
        try:
            remove_secrets(attempt)
        except OSError as exc:  # the next start of the server tries again
            LOG.warning("secrets.not_removed folder=%s reason=%s", attempt, exc)


def remove_left_secrets(jobs: Path, is_active: Callable[[str, str], bool]) -> None:
    """Remove the secrets of jobs that have ended, which a server was killed before it could remove."""
    for path in (*jobs.glob(f"*/*/*/{SECRETS_FOLDER}"), *jobs.glob(f"*/*/*/{SECRETS_FILE}")):
        project, job = path.parts[-4:-2]
        if not is_active(project, job):
            remove_secrets(path.parent)
