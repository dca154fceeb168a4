"""Typed access to what the app sets on a request before its handler runs, and to the query."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, cast

from starlette.requests import Request

from trainshed.api.http import audit
from trainshed.api.http.bodies import read_json_object
from trainshed.api.http.routing import Parameter, RouteSchema
from trainshed.domain.iam import Principal
from trainshed.domain.json_fields import double, int32, snake, unknown_names
from trainshed.errors import InvalidArgumentError

if TYPE_CHECKING:
    from trainshed.services.access.audit import Trail
    from trainshed.services.registry import Services

#: parameters of every method of Google's APIs; none of them changes a response here, but `alt` is checked
_STANDARD = frozenset(
    (
        "$.xgafv",
        "access_token",
        "alt",
        "fields",
        "key",
        "oauth_token",
        "prettyPrint",
        "quotaUser",
        "uploadType",
        "upload_protocol",
        "$alt",
        "$prettyPrint",
    )
)


def services(request: Request) -> Services:
    return cast("Services", request.scope["trainshed.services"])


def principal(request: Request) -> Principal:
    """The owner of the request's token."""
    return cast(Principal, request.scope["trainshed.principal"])


def project(request: Request) -> str:
    """The project of the request. The caller has the access to it that the route declares."""
    return cast(str, request.scope["trainshed.project"])


def trail(request: Request) -> Trail:
    """What the audit record will say of the request. A handler adds the name of what it creates."""
    return cast("Trail", request.scope["trainshed.trail"])


def sign_in(request: Request, holder: Principal) -> None:
    """Note who signed in, for the audit record."""
    audit.identify(trail(request), holder)


def read_query(request: Request, *names: str, repeated: Collection[str] = ()) -> Mapping[str, str]:
    """Return the named query parameters.

    Raises `InvalidArgumentError` for an unknown parameter, a duplicate, and an `alt` that is not JSON. Parameters in
    `repeated` may occur more than once; their values are joined with commas.
    """
    known = {name: name for name in names} | {snake(name): name for name in names}
    values: dict[str, str] = {}
    for key, value in request.query_params.multi_items():
        if key in ("alt", "$alt") and value not in ("json", ""):
            raise InvalidArgumentError(
                f"This server answers in JSON only; alt={value[:80]} is not offered.", field="alt"
            )
        if key in _STANDARD:
            continue
        if key not in known:
            raise _unknown_parameter(key)
        if known[key] in values and known[key] in repeated:
            value = f"{values[known[key]]},{value}"
        elif known[key] in values:
            raise InvalidArgumentError(f"The query parameter {key} is given twice.", field=snake(known[key]))
        values[known[key]] = value
    return values


def query(request: Request) -> Mapping[str, Any]:
    """The query parameters that the route declares, with their defaults."""
    return cast("Mapping[str, Any]", request.scope["trainshed.query"])


def declared_query(request: Request, schema: RouteSchema) -> Mapping[str, Any]:
    """Read the query by what the route declares.

    Raises `InvalidArgumentError` for an unknown parameter, a duplicate, and a number that is none.
    """
    declared = {parameter.name: parameter for parameter in schema.query}
    texts: dict[str, str] = {}
    for name, text in request.query_params.multi_items():
        if name not in declared:
            if schema.ignores_unknown_query:
                continue
            raise _unknown_parameter(name)
        if name in texts and not declared[name].repeated:
            raise InvalidArgumentError(f"The query parameter {name} is given twice.", field=name)
        texts[name] = f"{texts[name]},{text}" if name in texts else text
    return {name: _value(parameter, texts.get(name, "")) for name, parameter in declared.items()}


async def body(request: Request, *, limit: int | None = None) -> dict[str, Any]:
    """Return the body, a JSON object. Raises `InvalidArgumentError` for a field that the route does not declare."""
    fields = await read_json_object(request, limit=limit)
    declared = request.scope["trainshed.route"].schema.body
    if unknown := [name for name in fields if declared is None or name not in declared.__annotations__]:
        raise unknown_names(unknown, "")
    return fields


def _value(parameter: Parameter, text: str) -> str | int | float:
    if not text:
        return parameter.default
    if parameter.type is str:
        return text
    return int32(text, parameter.name) if parameter.type is int else double(text, parameter.name)


def _unknown_parameter(name: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f'Invalid JSON payload received. Unknown name "{name[:80]}": Cannot bind query parameter. '
        f"Field '{name[:80]}' could not be found in request message."
    )


def number(query: Mapping[str, str], name: str, *, default: int = 0) -> int:
    """Return an integer of the query. Raises `InvalidArgumentError` if it is none."""
    return int32(query[name], snake(name)) if query.get(name) else default
