"""projects.locations.studies, their trials and their operations, of the ml v1 API. Any location has studies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from trainshed.api.http.bodies import parse_json, read_body
from trainshed.api.http.request import project, read_query, services, trail
from trainshed.api.http.responses import json_response
from trainshed.api.http.routing import Handler, ProjectScope, Route
from trainshed.api.http.slow_work import SUGGESTIONS, slow_work
from trainshed.domain.iam import Access
from trainshed.domain.json_fields import message
from trainshed.domain.tuning.study import StudyKey
from trainshed.errors import InvalidArgumentError, NotFoundError
from trainshed.services.tuning.studies import Studies

_NO_FIELDS = message({})
_NOT_A_NUMBER = (b"NaN", b"Infinity")


async def create(request: Request) -> Response:
    study = read_query(request, "studyId").get("studyId", "")
    body = await _read_body(request)
    trail(request).name(study)
    location = request.path_params["location"]
    return json_response(
        await run_in_threadpool(services(request).studies.create, project(request), location, study, body)
    )


async def list_studies(request: Request) -> Response:
    read_query(request)
    location = request.path_params["location"]
    studies = await run_in_threadpool(services(request).studies.all, project(request), location)
    return json_response({"studies": studies} if studies else {})


async def suggest(request: Request) -> Response:
    read_query(request)
    body, suggestions = await _read_body(request), services(request).suggestions
    key = _key(request)
    return json_response(await slow_work(request, SUGGESTIONS).run(request, lambda _: suggestions.suggest(key, body)))


async def check_early_stopping(request: Request) -> Response:
    read_query(request)
    _NO_FIELDS(await _read_body(request), "")
    check = services(request).suggestions.check_early_stopping
    return json_response(await run_in_threadpool(check, _key(request), request.path_params["trial"]))


async def get_operation(request: Request) -> Response:
    read_query(request)
    return json_response(await run_in_threadpool(_operation, request))


async def cancel_operation(request: Request) -> Response:
    """Operations are done when they are answered, so there is nothing to cancel."""
    read_query(request)
    _NO_FIELDS(await _read_body(request), "")
    await run_in_threadpool(_operation, request)
    return json_response({})


def _operation(request: Request) -> dict[str, Any]:
    params = request.path_params
    return services(request).studies.operation(project(request), params["location"], params["operation"])


def _reads(call: Callable[[Studies, StudyKey, str], Any]) -> Handler:
    """A handler of a request without a body."""

    async def respond(request: Request) -> Response:
        read_query(request)
        _NO_FIELDS(await _read_body(request), "")
        number = request.path_params.get("trial", "")
        result = await run_in_threadpool(call, services(request).studies, _key(request), number)
        return json_response(result or {})

    return respond


def _writes(call: Callable[[Studies, StudyKey, str, dict[str, Any]], dict[str, Any]]) -> Handler:
    """A handler of a request with a body."""

    async def respond(request: Request) -> Response:
        read_query(request)
        body = await _read_body(request)
        number = request.path_params.get("trial", "")
        return json_response(await run_in_threadpool(call, services(request).studies, _key(request), number, body))

    return respond


async def _read_body(request: Request) -> dict[str, Any]:
    """Return the JSON object of a request; no body is an empty one. Raises `InvalidArgumentError` if it is none."""
    content = await read_body(request, limit=request.scope["trainshed.body_limit"])
    try:
        body = parse_json(content) if content.strip() else {}
    except InvalidArgumentError as exc:
        if any(word in content for word in _NOT_A_NUMBER):
            raise InvalidArgumentError(
                "NaN and infinity are no JSON. A trial without a value is completed with trialInfeasible."
            ) from exc
        raise
    if not isinstance(body, dict):
        raise InvalidArgumentError("The request body must be a JSON object.")
    return body


def _key(request: Request) -> StudyKey:
    params = request.path_params
    if not params["location"] or "/" in params["location"]:
        raise NotFoundError("There is no such location.")
    return StudyKey(project=project(request), location=params["location"], id=params["study"])


def _trials(studies: Studies, key: StudyKey, _: str) -> dict[str, Any]:
    trials = studies.trials(key)
    return {"trials": trials} if trials else {}


def _optimal_trials(studies: Studies, key: StudyKey, _: str) -> dict[str, Any]:
    trials = studies.optimal_trials(key)
    return {"trials": trials} if trials else {}


_LOCATION = "/v1/projects/{project}/locations/{location}"
_STUDIES = f"{_LOCATION}/studies"
_STUDY = f"{_STUDIES}/{{study}}"
_TRIALS = f"{_STUDY}/trials"
_TRIAL = f"{_TRIALS}/{{trial}}"
_OPERATION = f"{_LOCATION}/operations/{{operation}}"
_READ, _WRITE, _RUN = Access.READ_STUDIES, Access.WRITE_STUDIES, Access.RUN_TRIALS

_TABLE: tuple[tuple[str, str, Access, Handler], ...] = (
    ("GET", _OPERATION, _READ, get_operation),
    ("POST", f"{_OPERATION}:cancel", _RUN, cancel_operation),
    ("POST", _STUDIES, _WRITE, create),
    ("GET", _STUDIES, _READ, list_studies),
    ("GET", _STUDY, _READ, _reads(lambda studies, key, _: studies.get(key))),
    ("DELETE", _STUDY, Access.WRITE, _reads(lambda studies, key, _: studies.delete(key))),
    ("POST", _TRIALS, _WRITE, _writes(lambda studies, key, _, body: studies.create_trial(key, body))),
    ("GET", _TRIALS, _READ, _reads(_trials)),
    ("POST", f"{_TRIALS}:listOptimalTrials", _READ, _reads(_optimal_trials)),
    ("POST", f"{_TRIALS}:suggest", _RUN, suggest),
    ("GET", _TRIAL, _READ, _reads(Studies.trial)),
    ("DELETE", _TRIAL, Access.WRITE, _reads(Studies.delete_trial)),
    ("POST", f"{_TRIAL}:addMeasurement", _RUN, _writes(Studies.add_measurement)),
    ("POST", f"{_TRIAL}:checkEarlyStoppingState", _RUN, check_early_stopping),
    ("POST", f"{_TRIAL}:complete", _RUN, _writes(Studies.complete)),
    ("POST", f"{_TRIAL}:stop", _RUN, _reads(Studies.stop)),
)

ROUTES = tuple(
    Route(method=method, path=path, access=access, scope=ProjectScope.PATH, handler=handler)
    for method, path, access, handler in _TABLE
)
