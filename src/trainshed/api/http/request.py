"""What the outer layer has settled before a handler runs, with its types."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from starlette.requests import Request

from trainshed.domain.iam import Principal

if TYPE_CHECKING:
    from trainshed.services.registry import Services


def services(request: Request) -> Services:
    return cast("Services", request.scope["trainshed.services"])


def principal(request: Request) -> Principal:
    """Whose token it is."""
    return cast(Principal, request.scope["trainshed.principal"])


def project(request: Request) -> str:
    """The project that this request is about and that the caller may use in the way the route declares."""
    return cast(str, request.scope["trainshed.project"])
