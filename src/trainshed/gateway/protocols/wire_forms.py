"""Wire forms: what the requests, responses and errors of each protocol are over HTTP, beside the same frames."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import orjson

from trainshed.serving.frames import FrameKind

ErrorForm = Callable[[int, str], Mapping[str, Any]]  #: HTTP status and message of an error -> its body

_MLFLOW_CODES: Mapping[int, str] = {
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "RESOURCE_DOES_NOT_EXIST",
    409: "RESOURCE_CONFLICT",
    429: "REQUEST_LIMIT_EXCEEDED",
    501: "NOT_IMPLEMENTED",
    503: "TEMPORARILY_UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
_MAX_MESSAGE_BYTES = 4096  #: of an error body that is not JSON


def error_message(body: bytes) -> str:
    """The message of an error body: of a host, of the API, or of a container, whose errors may have any form."""
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError:
        return body[:_MAX_MESSAGE_BYTES].decode(errors="replace")
    error = document.get("error", document) if isinstance(document, dict) else document
    message = error.get("message", error) if isinstance(error, dict) else error
    return message if isinstance(message, str) else orjson.dumps(message).decode()


def error_body(form: ErrorForm, status: int, body: bytes) -> bytes:
    """The error body of another protocol, with the message of this one."""
    return orjson.dumps(form(status, error_message(body)))


def plain_error(status: int, message: str) -> Mapping[str, Any]:
    """An error of TensorFlow Serving, and of the Open Inference Protocol."""
    return {"error": message}


def mlflow_error(status: int, message: str) -> Mapping[str, Any]:
    """An error of MLflow's servers."""
    code = _MLFLOW_CODES.get(status, "BAD_REQUEST" if status < 500 else "INTERNAL_ERROR")
    return {"error_code": code, "message": message}


#: kinds of frames whose HTTP requests come from clients of another protocol
ERROR_FORMS: Mapping[int, ErrorForm] = {
    FrameKind.TF_SERVING: plain_error,
    FrameKind.INFER: plain_error,
    FrameKind.MLFLOW: mlflow_error,
}

#: kinds of frames that are logged, with their protocol in the log; empty for ml v1
LOGGED_PROTOCOLS: Mapping[int, str] = {
    FrameKind.PREDICT: "",
    FrameKind.TF_SERVING: "tensorflow-serving",
    FrameKind.INFER: "open-inference",
    FrameKind.MLFLOW: "mlflow",
}
