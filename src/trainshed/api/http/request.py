"""What the outer layer has settled before a handler runs, with its types."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, cast

from starlette.requests import Request

from trainshed.domain.iam import Principal
from trainshed.domain.json_fields import int32, snake
from trainshed.errors import InvalidArgumentError

if TYPE_CHECKING:
    from trainshed.services.registry import Services

#: what every method of Google's APIs takes. None of it changes an answer here; `alt` is checked.
_STANDARD = frozenset(
    (
        "$.xgafv",
        "alt",
        "fields",
        "key",
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
    """Whose token it is."""
    return cast(Principal, request.scope["trainshed.principal"])


def project(request: Request) -> str:
    """The project that this request is about and that the caller may use in the way the route declares."""
    return cast(str, request.scope["trainshed.project"])


def read_query(request: Request, *names: str, repeated: Collection[str] = ()) -> Mapping[str, str]:
    """The parameters of these names. `InvalidArgumentError` for any other, one given twice, and an `alt` that is not
    JSON.

    Those in `repeated` may be given more than once: they come with commas between them.
    """
    known = {name: name for name in names} | {snake(name): name for name in names}
    found: dict[str, str] = {}
    for key, value in request.query_params.multi_items():
        if key in ("alt", "$alt") and value not in ("json", ""):
            raise InvalidArgumentError(
                f"This server answers in JSON only; alt={value[:80]} is not offered.", field="alt"
            )
        if key in _STANDARD:
            continue
        if key not in known:
            raise InvalidArgumentError(
                f'Invalid JSON payload received. Unknown name "{key[:80]}": Cannot bind query parameter. '
                f"Field '{key[:80]}' could not be found in request message."
            )
        if known[key] in found and known[key] in repeated:
            value = f"{found[known[key]]},{value}"
        elif known[key] in found:
            raise InvalidArgumentError(f"The query parameter {key} is given twice.", field=snake(known[key]))
        found[known[key]] = value
    return found


def number(query: Mapping[str, str], name: str, *, default: int = 0) -> int:
    """A whole number of the query. `InvalidArgumentError` if it is none."""
    return int32(query[name], snake(name)) if query.get(name) else default
