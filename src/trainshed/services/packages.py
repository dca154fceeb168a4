"""The packages of a job, for the machines that run it."""

from __future__ import annotations

from trainshed.config import Home
from trainshed.domain.iam import Principal, Role
from trainshed.engines.parcels import Parcel
from trainshed.errors import Denied
from trainshed.store.jobs import JobStore


class Packages:
    """What was put aside for the current attempt of each job, and nothing else."""

    def __init__(self, jobs: JobStore, home: Home) -> None:
        self._jobs = jobs
        self._home = home

    def open(self, holder: Principal, project: str, job: str, sha256: str) -> Parcel:
        """The package with this content; the caller closes it. `NotFound` if there is none.

        `Denied` for the courier of another job.
        """
        if holder.role is Role.COURIER and holder.job != job:
            raise Denied("This token fetches the packages of one job, and this is another one.")
        found = self._jobs.get(project, job)
        return Parcel(self._home.jobs / found.project / found.id / str(found.attempt), sha256)
