"""Discovery over HTTP. Clients ask before they have a credential, so it is open."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from trainshed.api.discovery.document import APIS, ServedApi, directory, document
from trainshed.api.http.request import read_query
from trainshed.api.http.responses import json_response
from trainshed.api.http.routing import ProjectScope, Route
from trainshed.domain.iam import Access
from trainshed.errors import NotFoundError

_GOOGLE = ".googleapis.com"


async def describe(request: Request) -> Response:
    read_query(request)
    return _response(request, _served(request.path_params["api"], request.path_params["version"]))


async def describe_by_host(request: Request) -> Response:
    """The newer form, which names the API by its host. At this server's own host the version tells ml from logging."""
    version = read_query(request, "version", "labels").get("version", "v1")
    name = _host(request).removesuffix(_GOOGLE)
    if name not in APIS:
        name = "logging" if version == APIS["logging"].version else "ml"
    return _response(request, _served(name, version))


async def index(request: Request) -> Response:
    read_query(request, "name", "preferred")
    return json_response(directory(_root_url(request, "www")))


def _served(name: str, version: str) -> ServedApi:
    api = APIS.get(name)
    if api is None or api.version != version:
        known = ", ".join(f"{api.name} {api.version}" for api in APIS.values())
        raise NotFoundError(f"There is no API {name[:40]} {version[:40]} here. There are: {known}.")
    return api


def _response(request: Request, api: ServedApi) -> Response:
    return json_response(document(api, request.scope["trainshed.app"].routes, _root_url(request, api.name)))


def _root_url(request: Request, name: str) -> str:
    """Return the URL of the API as the client came: at Google's name if it asked one of those, or at this server's."""
    if _host(request).endswith(_GOOGLE):
        return f"https://{name}{_GOOGLE}/"
    return f"{request.scope['scheme']}://{request.headers['host']}/"


def _host(request: Request) -> str:
    return request.headers["host"].lower().removesuffix(":443")


ROUTES = tuple(
    Route(method="GET", path=path, access=Access.PUBLIC, scope=ProjectScope.SERVER, handler=handler)
    for path, handler in (
        ("/discovery/v1/apis", index),
        ("/discovery/v1/apis/{api}/{version}/rest", describe),
        ("/$discovery/rest", describe_by_host),
    )
)
