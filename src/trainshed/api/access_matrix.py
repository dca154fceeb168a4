"""The matrix of every route and every identity, computed from the route table and the access table.

`python -m trainshed.api.access_matrix` prints the page `docs/access.md`. A test compares the page with the routes, and
another one compares the matrix with what a server answers.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from trainshed.api.app import ROUTES
from trainshed.api.http.open_routes import OPEN_ROUTES, is_open
from trainshed.api.http.routing import ProjectScope, Route
from trainshed.domain.iam import GRANTS, OWN_ONLY, Access, Role


class Place(StrEnum):
    """Where an identity's token is valid, seen from the project that a request names."""

    HERE = "here"  #: in the project
    OTHER = "other"  #: in another project
    ALL = "all"  #: in all projects


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """A column of the matrix."""

    name: str
    role: Role | None = None  #: None: there is no valid token
    place: Place = Place.HERE


IDENTITIES = (
    Identity(name="none"),
    Identity(name="expired"),
    Identity(name="other project", role=Role.OWNER, place=Place.OTHER),
    Identity(name="fetch token", role=Role.ARTIFACT_READER),
    Identity(name="job", role=Role.JOB),
    Identity(name="viewer", role=Role.VIEWER),
    Identity(name="editor", role=Role.EDITOR),
    Identity(name="service account", role=Role.EDITOR),
    Identity(name="OpenID group", role=Role.VIEWER),
    Identity(name="owner", role=Role.OWNER),
    Identity(name="viewer of all", role=Role.VIEWER, place=Place.ALL),
    Identity(name="owner of all", role=Role.OWNER, place=Place.ALL),
)


class AccessOutcome(StrEnum):
    """What a request meets before its route handles it."""

    OPEN = "open"  #: no token is needed
    YES = "yes"
    OWN = "own"  #: for the token's own job or version; 403 for any other
    UNAUTHENTICATED = "401"
    DENIED = "403"
    HIDDEN = "404"  #: as if there were no such bucket


def outcome(route: Route, identity: Identity) -> AccessOutcome:
    """Return what an identity meets on a route."""
    if is_open(route):
        return AccessOutcome.OPEN
    if identity.role is None:
        return AccessOutcome.UNAUTHENTICATED
    if identity.place is Place.OTHER and route.scope is ProjectScope.BUCKET:
        return AccessOutcome.HIDDEN
    if identity.place is Place.OTHER and route.scope in (ProjectScope.PATH, ProjectScope.QUERY):
        return AccessOutcome.DENIED
    if identity.place is not Place.ALL and route.scope is ProjectScope.SERVER:
        return AccessOutcome.DENIED
    if route.access not in GRANTS[identity.role]:
        return AccessOutcome.DENIED
    bound = identity.role in (Role.JOB, Role.ARTIFACT_READER)
    return AccessOutcome.OWN if bound and route.access in OWN_ONLY else AccessOutcome.YES


_HEADER = """# Who may do what

This page is made from the route table and the access table (`python -m trainshed.api.access_matrix`). A test compares
it with the routes, so a new route is a new row here. Another one sends every request of it to a server.

| cell | meaning |
|---|---|
| open | needs no token |
| yes | the request is handled; it may still be wrong in itself |
| own | for the job or version that the token belongs to, and 403 for any other |
| 401 | the token is missing, unknown, expired or revoked |
| 403 | the token does not allow it |
| 404 | the same answer as for a bucket that does not exist |

## The access table

What each role has. Owners, editors and viewers are people, of one project or of all. A job's token belongs to the code
of one job and is valid while the job runs. A fetch token belongs to one job or version on a node of a cluster.
"""

_OPEN_HEADER = """
## Open without a token

Every other path needs a token, also one that does not exist.
"""

_MATRIX_HEADER = """
## Every request

Requests with the scope `body` name their projects in the body, and the answer holds only what the token may see of
them. The scope `caller` is about the token itself, or about what all projects share. Requests to `server` need a token
of all projects.
"""


def page(routes: Iterable[Route] = ROUTES) -> str:
    """Return the page with the access table, the open routes and the matrix."""
    roles = (Role.ARTIFACT_READER, Role.JOB, Role.VIEWER, Role.EDITOR, Role.OWNER)
    needed = [access for access in Access if access is not Access.PUBLIC]
    grants = _table(
        ("access", *("fetch token" if role is Role.ARTIFACT_READER else role for role in roles)),
        ((access, *("yes" if access in GRANTS[role] else "" for role in roles)) for access in needed),
    )
    is_listed = {(route.method, route.path) for route in routes}
    opened = _table(
        ("request", "why"),
        ((f"`{method} {path}`", why) for (method, path), why in OPEN_ROUTES.items() if (method, path) in is_listed),
    )
    matrix = _table(
        ("request", "needs", "scope", *(identity.name for identity in IDENTITIES)), (_row(route) for route in routes)
    )
    return "\n".join((_HEADER, grants, _OPEN_HEADER, opened, _MATRIX_HEADER, matrix, ""))


def _row(route: Route) -> Iterator[str]:
    yield f"`{route.method} {route.path}`"
    yield route.access
    yield "" if is_open(route) else route.scope
    for identity in IDENTITIES:
        yield outcome(route, identity)


def _table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    cells = list(header)
    lines = [cells, ["---"] * len(cells), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


if __name__ == "__main__":
    sys.stdout.write(page())
