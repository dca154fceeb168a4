"""The packages of a job and the files of a version, for the machines that run them."""

from __future__ import annotations

from trainshed.artifacts.manifest import ArtifactManifest
from trainshed.artifacts.staging import OpenFile, StagedPackage
from trainshed.config import Home
from trainshed.domain.iam import Principal, Role
from trainshed.errors import PermissionDeniedError
from trainshed.store.jobs import JobStore
from trainshed.store.models import ModelStore


class JobArtifacts:
    """What was put aside for the current attempt of each job, and nothing else."""

    def __init__(self, jobs: JobStore, home: Home) -> None:
        self._jobs = jobs
        self._home = home

    def open(self, holder: Principal, project: str, job: str, sha256: str) -> StagedPackage:
        """The package with this content; the caller closes it. `NotFoundError` if there is none.

        `PermissionDeniedError` for the courier of another job.
        """
        if holder.role is Role.COURIER and holder.job != job:
            raise PermissionDeniedError("This token fetches the packages of one job, and this is another one.")
        found = self._jobs.get(project, job)
        return StagedPackage(self._home.jobs / found.project / found.id / str(found.attempt), sha256)


class VersionArtifacts:
    """What hosts of a version on other machines need to have, and nothing else."""

    def __init__(self, models: ModelStore, home: Home) -> None:
        self._models = models
        self._home = home

    def open(self, holder: Principal, project: str, model: str, version: str, sha256: str) -> OpenFile:
        """The file or the package with this content; the caller closes it. `NotFoundError` if there is none.

        `PermissionDeniedError` for the courier of another version.
        """
        if holder.role is Role.COURIER and holder.version != (model, version):
            raise PermissionDeniedError("This token fetches the files of one version, and this is another one.")
        found = self._models.version(project, model, version)
        folder = self._home.hosts / found.project / found.model / found.id
        return ArtifactManifest.read(folder).open(folder, self._home.models / found.project, sha256)
