"""Predictions over HTTP: a route like all others, and a short way to the same answers.

The short way makes no request object. It takes only what the route has let through before, as far as path and Host
go, with a token that is known and good at this moment, and leaves everything else to the route, errors of the request
included: so there is one set of rules.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Send
from starlette.types import Scope as AsgiScope

from trainshed.api.access import project, services
from trainshed.api.bodies import read_body
from trainshed.api.routing import Handler, Route, Scope
from trainshed.domain.iam import Access
from trainshed.errors import Invalid
from trainshed.gateway.connections import Answer
from trainshed.gateway.predictions import Client, Kind, pack_raw, unpack_raw
from trainshed.gateway.routes import Target
from trainshed.services.registry import Services

ACCESS = Access.READ  #: what a prediction needs
REMEMBERED = 10_000  #: paths, and Hosts

_KINDS: Mapping[str, Kind] = {"predict": Kind.PREDICT, "explain": Kind.EXPLAIN, "rawPredict": Kind.RAW}
_PROJECT = "/v1/projects/{project}"
_MODEL = f"{_PROJECT}/models/{{model}}"
_VERSION = f"{_MODEL}/versions/{{version}}"
#: headers that have a say in whether a request may go on, and that most requests for predictions don't have
_LEFT_TO_THE_ROUTE = frozenset({b"origin", b"sec-fetch-site", b"content-encoding", b"transfer-encoding"})
_JSON = (b"content-type", b"application/json")
_NO_SNIFFING = (b"x-content-type-options", b"nosniff")


def _asking(kind: Kind) -> Handler:
    async def ask(request: Request) -> Response:
        params = request.path_params
        target = Target(project=project(request), model=params["model"], version=params.get("version", ""), kind=kind)
        _check_encoding(request)
        body = await read_body(request, limit=request.scope["trainshed.body_limit"])
        if kind is Kind.RAW:
            body = pack_raw(request.headers.get("content-type", ""), body)
        request.scope["trainshed.quiet"] = True  # its model's settings say whether there is a line for it
        client = cast("Client | None", request.scope.get("trainshed.client"))
        answer = await services(request).predictions.ask(target, body, client)
        if kind is not Kind.RAW:
            request.scope["trainshed.app"].short_way.learn(request.scope, target)
        return _response(answer, kind)

    return ask


def _check_encoding(request: Request) -> None:
    encoding = request.headers.get("content-encoding", "identity")
    if encoding.lower() not in ("", "identity"):
        raise Invalid(f"A body with Content-Encoding {encoding[:40]!r} is not read here. Send it as it is.")


def _response(answer: Answer | None, kind: Kind) -> Response:
    if answer is None:
        return Response(status_code=499)  # nobody reads it
    status, body = answer
    content_type = "application/json"
    if kind is Kind.RAW and status == 200:
        content_type, body = unpack_raw(body)
    return Response(body, status, _retry(status), media_type=content_type)


def _retry(status: int) -> dict[str, str]:
    return {"retry-after": "1"} if status in (429, 503) else {}


async def without_a_model(request: Request) -> Response:
    raise Invalid("Name the model, and a version if you like: projects/PROJECT/models/MODEL[/versions/VERSION].")


ROUTES = tuple(
    Route(
        method="POST",
        path=f"{path}:{verb}",
        access=ACCESS,
        scope=Scope.PATH,
        handler=without_a_model if path == _PROJECT else _asking(kind),
    )
    for verb, kind in _KINDS.items()
    for path in (_PROJECT, _MODEL, _VERSION)
)


class ShortWay:
    """Takes requests for predictions that are like earlier ones, and hands back None for all others."""

    def __init__(self, services: Services, *, authentication: bool, body_limit: int) -> None:
        self._services = services
        self._authentication = authentication
        self._body_limit = body_limit
        self._targets: dict[bytes, Target] = {}
        self._hosts: set[bytes] = set()

    def learn(self, scope: AsgiScope, target: Target) -> None:
        """The route has let this request through: its path means this target, and its Host is one of ours."""
        for known in (self._targets, self._hosts):
            if len(known) >= REMEMBERED:
                known.clear()
        self._targets[scope["raw_path"]] = target
        self._hosts.add(dict(scope["headers"])[b"host"])

    def target(self, scope: AsgiScope) -> Target | None:
        """What the request asks for, if the route would let it through and read its body; else None: ask the route."""
        target = self._targets.get(scope["raw_path"])
        if target is None or scope["method"] != "POST":
            return None
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        head = dict(headers)
        length = head.get(b"content-length", b"")
        if (
            len(head) != len(headers)
            or not _LEFT_TO_THE_ROUTE.isdisjoint(head)
            or head.get(b"host") not in self._hosts
            or not 0 < len(length) < 16
            or not length.isdigit()
            or int(length) > self._body_limit
        ):
            return None
        if not self._authentication:
            return target
        scheme, secret = (value := head.get(b"authorization", b""))[:7], value[7:]
        principal = self._services.tokens.known(secret.decode("latin-1")) if scheme == b"Bearer " else None
        return target if principal is not None and principal.may(ACCESS, target.project) else None

    async def answer(self, target: Target, scope: AsgiScope, receive: Receive, send: Send) -> None:
        """Ask, and answer. Errors are the caller's to answer; nothing is sent before."""
        message = await receive()
        body: bytes = message.get("body", b"")
        if message.get("more_body"):
            parts = [body]
            while message.get("more_body"):
                message = await receive()
                parts.append(message.get("body", b""))
            body = b"".join(parts)
        if message["type"] == "http.disconnect":
            return
        answer = await self._services.predictions.ask(target, body, scope.get("trainshed.client"))
        if answer is None:
            return
        status, text = answer
        headers = [_JSON, (b"content-length", b"%d" % len(text)), _NO_SNIFFING]
        if status != 200:
            headers.extend((name.encode(), value.encode()) for name, value in _retry(status).items())
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": text})
