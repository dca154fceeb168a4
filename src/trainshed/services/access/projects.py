"""Projects: numbers, configuration and locations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trainshed.domain.iam import ALL_PROJECTS, Principal
from trainshed.domain.times import now_us
from trainshed.errors import NotFoundError
from trainshed.store.projects import Project, ProjectStore

LOCATION = "local"


class Projects:
    """The projects. Thread-safe. A project is created when it is first named."""

    def __init__(self, store: ProjectStore, *, default: str, clock: Callable[[], int] = now_us) -> None:
        self._store = store
        self._default = default
        self._clock = clock
        self._known: dict[str, Project] = {}  # a project's number never changes

    def number(self, project: str) -> int:
        if (stored := self._known.get(project)) is None:
            stored = self._known[project] = self._store.ensure(project, now_us=self._clock())
        return stored.number

    def id_of(self, number: int) -> str:
        """Return the id of the project with this number. Raises `NotFoundError` if there is none."""
        if (stored := self._store.find_number(number)) is None:
            raise NotFoundError(f"There is no project with the number {number}.")
        return stored.id

    def known_to(self, principal: Principal) -> list[str]:
        """Return the ids of the used projects that this principal may see, the default first."""
        if principal.project != ALL_PROJECTS:
            return [principal.project]
        return list(dict.fromkeys((self._default, *self._store.used())))

    def config(self, project: str) -> dict[str, Any]:
        """Return the response of getConfig.

        The service account does not exist: tutorials only pass its name to `gsutil acl`.
        """
        number = self.number(project)
        return {
            "serviceAccount": f"service-{number}@cloud-ml.google.com.iam.gserviceaccount.com",
            "serviceAccountProject": str(number),
            "config": {},
        }

    def locations(self, project: str) -> list[dict[str, Any]]:
        """Return the one location where jobs can run."""
        capability = {"type": "TRAINING", "availableAccelerators": []}
        return [{"name": f"projects/{project}/locations/{LOCATION}", "capabilities": [capability]}]

    def location(self, project: str, location: str) -> dict[str, Any]:
        if location != LOCATION:
            raise NotFoundError(f"There is no location {location}. This server has one: {LOCATION}.")
        return self.locations(project)[0]
