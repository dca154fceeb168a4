"""The methods of the ml v1 API that this server does not serve. Each checks access and responds with 501."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from trainshed.api.http.routing import Handler, ProjectScope, Route
from trainshed.domain.iam import Access
from trainshed.errors import UnimplementedError

_PROJECT = "/v1/projects/{project}"
_LOCATION = f"{_PROJECT}/locations/{{location}}"
_STUDY = f"{_LOCATION}/studies/{{study}}"
_TRIAL = f"{_STUDY}/trials/{{trial}}"
_READ, _WRITE = Access.READ, Access.WRITE

#: the API's name of a method, HTTP method, path, access
METHODS: tuple[tuple[str, str, str, Access], ...] = (
    ("projects.locations.operations.get", "GET", f"{_LOCATION}/operations/{{operation}}", _READ),
    ("projects.locations.operations.cancel", "POST", f"{_LOCATION}/operations/{{operation}}:cancel", _WRITE),
    ("projects.locations.studies.create", "POST", f"{_LOCATION}/studies", _WRITE),
    ("projects.locations.studies.list", "GET", f"{_LOCATION}/studies", _READ),
    ("projects.locations.studies.get", "GET", _STUDY, _READ),
    ("projects.locations.studies.delete", "DELETE", _STUDY, _WRITE),
    ("projects.locations.studies.trials.create", "POST", f"{_STUDY}/trials", _WRITE),
    ("projects.locations.studies.trials.list", "GET", f"{_STUDY}/trials", _READ),
    ("projects.locations.studies.trials.listOptimalTrials", "POST", f"{_STUDY}/trials:listOptimalTrials", _READ),
    ("projects.locations.studies.trials.suggest", "POST", f"{_STUDY}/trials:suggest", _WRITE),
    ("projects.locations.studies.trials.get", "GET", _TRIAL, _READ),
    ("projects.locations.studies.trials.delete", "DELETE", _TRIAL, _WRITE),
    ("projects.locations.studies.trials.addMeasurement", "POST", f"{_TRIAL}:addMeasurement", _WRITE),
    ("projects.locations.studies.trials.checkEarlyStoppingState", "POST", f"{_TRIAL}:checkEarlyStoppingState", _WRITE),
    ("projects.locations.studies.trials.complete", "POST", f"{_TRIAL}:complete", _WRITE),
    ("projects.locations.studies.trials.stop", "POST", f"{_TRIAL}:stop", _WRITE),
)


def _handler(name: str) -> Handler:
    async def respond(request: Request) -> Response:
        raise UnimplementedError(
            f"The method ml.{name} is not served by this server version. "
            f"It serves projects.jobs, projects.models, projects.operations, projects.locations and projects.getConfig."
        )

    return respond


ROUTES = tuple(
    Route(method=method, path=path, access=access, scope=ProjectScope.PATH, handler=_handler(name))
    for name, method, path, access in METHODS
)
