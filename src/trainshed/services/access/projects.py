"""Projects: what a client asks about them before it does anything else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trainshed.domain.iam import ALL_PROJECTS, Principal
from trainshed.domain.times import now_us
from trainshed.errors import NotFoundError
from trainshed.store.projects import Project, ProjectStore

LOCATION = "local"


class Projects:
    """Threads may share it. A project comes into being when it is first asked about."""

    def __init__(self, store: ProjectStore, *, default: str, clock: Callable[[], int] = now_us) -> None:
        self._store = store
        self._default = default
        self._clock = clock
        self._known: dict[str, Project] = {}  # a project's number never changes

    def number(self, project: str) -> int:
        if (known := self._known.get(project)) is None:
            known = self._known[project] = self._store.ensure(project, now_us=self._clock())
        return known.number

    def known_to(self, principal: Principal) -> list[str]:
        """The ids of the projects that there is something of, as far as this principal may know, the default first."""
        if principal.project != ALL_PROJECTS:
            return [principal.project]
        return list(dict.fromkeys((self._default, *self._store.used())))

    def config(self, project: str) -> dict[str, Any]:
        """The answer to getConfig. No such account exists: documents only pass its name on to `gsutil acl`."""
        number = self.number(project)
        return {
            "serviceAccount": f"service-{number}@cloud-ml.google.com.iam.gserviceaccount.com",
            "serviceAccountProject": str(number),
            "config": {},
        }

    def locations(self, project: str) -> list[dict[str, Any]]:
        """Where jobs can run: here."""
        capability = {"type": "TRAINING", "availableAccelerators": []}
        return [{"name": f"projects/{project}/locations/{LOCATION}", "capabilities": [capability]}]

    def location(self, project: str, location: str) -> dict[str, Any]:
        if location != LOCATION:
            raise NotFoundError(f"There is no location {location}. This server has one: {LOCATION}.")
        return self.locations(project)[0]
