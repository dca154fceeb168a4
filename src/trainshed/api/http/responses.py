"""Headers of every response, JSON responses of the ml API, also those that a client may have, and error responses."""

from __future__ import annotations

import errno
import hashlib
import logging
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response

from trainshed import errors as e
from trainshed.domain.partial_response import Selection, select
from trainshed.gateway.protocols.wire_forms import ErrorForm, error_body

#: browsers use the declared type, and give the response to no page of another origin
SECURITY_HEADERS: Mapping[str, str] = {
    "x-content-type-options": "nosniff",
    "cross-origin-resource-policy": "same-origin",
}
LOG = logging.getLogger("trainshed.api")
#: error -> (HTTP status, google.rpc status, the reason that Cloud Storage clients read)
STATUS: Mapping[type[e.TrainshedError], tuple[int, str, str]] = {
    e.InvalidArgumentError: (400, "INVALID_ARGUMENT", "invalid"),
    e.UnauthenticatedError: (401, "UNAUTHENTICATED", "required"),
    e.PermissionDeniedError: (403, "PERMISSION_DENIED", "forbidden"),
    e.NotFoundError: (404, "NOT_FOUND", "notFound"),
    e.AlreadyExistsError: (409, "ALREADY_EXISTS", "conflict"),
    e.AbortedError: (409, "ABORTED", "conflict"),
    e.ConflictError: (409, "ABORTED", "conflict"),
    e.FailedPreconditionError: (400, "FAILED_PRECONDITION", "failedPrecondition"),
    e.ConditionNotMetError: (412, "FAILED_PRECONDITION", "conditionNotMet"),
    e.NotModified: (304, "OK", "notModified"),
    e.OutOfRangeError: (416, "OUT_OF_RANGE", "requestedRangeNotSatisfiable"),
    e.PayloadTooLargeError: (413, "INVALID_ARGUMENT", "uploadTooLarge"),
    e.UnimplementedError: (501, "UNIMPLEMENTED", "notImplemented"),
    e.UnavailableError: (503, "UNAVAILABLE", "backendError"),
    e.ResourceExhaustedError: (429, "RESOURCE_EXHAUSTED", "rateLimitExceeded"),
    e.QuotaExceededError: (429, "RESOURCE_EXHAUSTED", "quotaExceeded"),
    e.StorageQuotaExceededError: (403, "PERMISSION_DENIED", "quotaExceeded"),
    e.DeadlineExceededError: (504, "DEADLINE_EXCEEDED", "backendError"),
    e.RequestCancelledError: (499, "CANCELLED", "backendError"),
    e.DiskFullError: (507, "RESOURCE_EXHAUSTED", "quotaExceeded"),
    e.TrainshedError: (500, "INTERNAL", "internalError"),
}


_TAG_BYTES = 16  #: of an entity tag


def json_response(body: Mapping[str, Any]) -> Response:
    return Response(orjson.dumps(body), media_type="application/json; charset=UTF-8")


def tag_of(content: bytes) -> str:
    """Return the entity tag of a content."""
    return f'"{hashlib.blake2b(content, digest_size=_TAG_BYTES).hexdigest()}"'


def unless_known(request: Request, tag: str, body: Callable[[], Mapping[str, Any]]) -> Response:
    """Return the JSON of `body()` with its tag. Returns 304, and calls nothing, if the client has it."""
    if _knows(request, tag):
        return _not_modified(tag)
    response = json_response(body())
    response.headers["etag"] = tag
    return response


def json_unless_known(request: Request, body: Mapping[str, Any]) -> Response:
    """Return JSON with the tag of its content, or 304 if the client has it."""
    tag = tag_of(orjson.dumps(body))
    return unless_known(request, tag, lambda: body)


def _knows(request: Request, tag: str) -> bool:
    known = request.headers.get("if-none-match", "")
    return tag in (each.strip().removeprefix("W/") for each in known.split(","))


def _not_modified(tag: str) -> Response:
    return Response(status_code=304, headers={"etag": tag})


def partial_response(response: Response, selection: Selection) -> Response:
    """Return the selected parts of a JSON object. Other responses, such as the content of an object, stay whole."""
    body: bytes = getattr(response, "body", b"")  # what is streamed has none
    is_json = response.headers.get("content-type", "").startswith("application/json") and body.startswith(b"{")
    if response.status_code != 200 or not is_json:
        return response
    headers = {name: value for name, value in response.headers.items() if name != "content-length"}
    return Response(orjson.dumps(select(orjson.loads(body), selection)), headers=headers)


def error_response(exc: Exception) -> Response:
    """Return the response for an error. An unforeseen error is logged under an id, and only the id is sent."""
    if isinstance(exc, OSError) and exc.errno in (errno.ENOSPC, errno.EDQUOT):
        exc = e.DiskFullError("A disk of the server is full. Free some space and try again.")
    if not isinstance(exc, e.TrainshedError):
        incident = secrets.token_hex(4)
        LOG.error("request.failed incident=%s", incident, exc_info=exc)
        exc = e.TrainshedError(f"Something went wrong inside the server; its log says what, under the id {incident}.")
    code, status, reason = next(STATUS[kind] for kind in type(exc).__mro__ if kind in STATUS)
    if code == 304:
        return Response(status_code=304)
    if isinstance(exc, e.QuotaExceededError):
        headers = {"retry-after": str(exc.retry_after_s)} if exc.retry_after_s else None
        return problem_response(code, status, reason, str(exc), headers=headers, details=_quota_details(exc))
    return problem_response(code, status, reason, str(exc), field=getattr(exc, "field", ""), headers=_headers(exc))


def _quota_details(exc: e.QuotaExceededError) -> list[dict[str, Any]]:
    """Return the limit as Google's APIs do: for people in QuotaFailure, for programs in ErrorInfo and RetryInfo."""
    facts = {"quota": exc.quota, "subject": exc.subject, "limit": str(exc.limit), "used": str(exc.used)}
    retry = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": f"{exc.retry_after_s}s"}
    return [
        {
            "@type": "type.googleapis.com/google.rpc.QuotaFailure",
            "violations": [{"subject": exc.subject, "description": str(exc)}],
        },
        {
            "@type": "type.googleapis.com/google.rpc.ErrorInfo",
            "reason": "QUOTA_EXCEEDED",
            "domain": "trainshed",
            "metadata": facts,
        },
        *([retry] if exc.retry_after_s else []),
    ]


def error_in_form(response: Response, form: ErrorForm) -> Response:
    """Return an error response in the form of another protocol. Its other headers stay."""
    headers = {name: value for name, value in response.headers.items() if name != "content-length"}
    return Response(error_body(form, response.status_code, bytes(response.body)), response.status_code, headers)


def problem_response(
    code: int,
    status: str,
    reason: str,
    message: str,
    *,
    field: str = "",
    headers: Mapping[str, str] | None = None,
    details: Sequence[Mapping[str, Any]] = (),
) -> Response:
    """Return Google's error body. Cloud Storage clients read `errors`; other clients read `status` and `details`."""
    body: dict[str, Any] = {"code": code, "message": message, "status": status}
    if field:
        if f"'{field}'" not in message:  # a parse error names the field in its message, as Google's parser does
            body["message"] = f"Field: {field} Error: {message}"
        violation = {"field": field, "description": message}
        body["details"] = [{"@type": "type.googleapis.com/google.rpc.BadRequest", "fieldViolations": [violation]}]
    if details:
        body["details"] = list(details)
    body["errors"] = [{"domain": "global", "reason": reason, "message": body["message"]}]
    return Response(orjson.dumps({"error": body}), code, dict(headers or {}), media_type="application/json")


def _headers(exc: e.TrainshedError) -> dict[str, str]:
    if isinstance(exc, e.UnavailableError):
        return {"retry-after": str(exc.retry_after_s)}
    if isinstance(exc, e.UnauthenticatedError):
        return {"www-authenticate": 'Bearer realm="trainshed"'}
    if isinstance(exc, e.OutOfRangeError):
        return {"content-range": f"bytes */{exc.size}"}
    return {}
