"""Artifacts for remote nodes: the packages of a job and the files of a version."""

from __future__ import annotations

from trainshed.artifacts.manifest import ArtifactManifest
from trainshed.artifacts.staging import OpenFile, StagedPackage
from trainshed.config import Home
from trainshed.domain.iam import Principal, Role
from trainshed.errors import PermissionDeniedError
from trainshed.store.jobs import JobStore
from trainshed.store.models import ModelStore


class JobArtifacts:
    """The packages staged for the current attempt of each job."""

    def __init__(self, jobs: JobStore, home: Home) -> None:
        self._jobs = jobs
        self._home = home

    def open(self, holder: Principal, project: str, job: str, sha256: str) -> StagedPackage:
        """Open the package with this digest; the caller closes it. Raises `NotFoundError` if there is none.

        Raises `PermissionDeniedError` for the fetch token of another job.
        """
        if holder.role is Role.ARTIFACT_READER and holder.job != job:
            raise PermissionDeniedError("This token fetches the packages of one job, and this is another one.")
        stored = self._jobs.get(project, job)
        return StagedPackage(self._home.jobs / stored.project / stored.id / str(stored.attempt), sha256)


class VersionArtifacts:
    """The files and packages that remote hosts of a version need."""

    def __init__(self, models: ModelStore, home: Home) -> None:
        self._models = models
        self._home = home

    def open(self, holder: Principal, project: str, model: str, version: str, sha256: str) -> OpenFile:
        """Open the file or package with this digest; the caller closes it. Raises `NotFoundError` if there is none.

        Raises `PermissionDeniedError` for the fetch token of another version.
        """
        if holder.role is Role.ARTIFACT_READER and holder.version != (model, version):
            raise PermissionDeniedError("This token fetches the files of one version, and this is another one.")
        stored = self._models.version(project, model, version)
        folder = self._home.hosts / stored.project / stored.model / stored.id
        return ArtifactManifest.read(folder).open(folder, self._home.models / stored.project, sha256)
