"""The three access policy methods that jobs and models share."""

from __future__ import annotations

from collections.abc import Callable

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from trainshed.api.http.bodies import read_json_object
from trainshed.api.http.request import number, principal, project, read_query, services
from trainshed.api.http.responses import json_response
from trainshed.api.http.routing import Handler, ProjectScope, Route
from trainshed.domain.iam import Access
from trainshed.services.access.policies import Policies
from trainshed.services.registry import Services


def policy_routes(path: str, parameter: str, choose: Callable[[Services], Policies]) -> tuple[Route, ...]:
    """Return the policy routes of the resources at `path`, whose id is the path parameter `parameter`."""

    async def get_policy(request: Request) -> Response:
        version = number(read_query(request, "options.requestedPolicyVersion"), "options.requestedPolicyVersion")
        policies, resource = choose(services(request)), request.path_params[parameter]
        return json_response(await run_in_threadpool(policies.get, project(request), resource, version=version))

    async def set_policy(request: Request) -> Response:
        read_query(request)
        body, resource = await read_json_object(request), request.path_params[parameter]
        return json_response(await run_in_threadpool(choose(services(request)).set, project(request), resource, body))

    async def test_permissions(request: Request) -> Response:
        read_query(request)
        body, resource, caller = await read_json_object(request), request.path_params[parameter], principal(request)
        policies = choose(services(request))
        return json_response(await run_in_threadpool(policies.test, project(request), resource, caller, body))

    def route(method: str, verb: str, access: Access, handler: Handler) -> Route:
        return Route(method=method, path=f"{path}:{verb}", access=access, scope=ProjectScope.PATH, handler=handler)

    return (
        route("GET", "getIamPolicy", Access.READ, get_policy),
        route("POST", "setIamPolicy", Access.ADMIN, set_policy),
        route("POST", "testIamPermissions", Access.READ, test_permissions),
    )
