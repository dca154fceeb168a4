"""Documents of Cloud Storage's XML API: what is sent, what is read, and errors."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from xml.etree import ElementTree
from xml.sax.saxutils import escape

import orjson
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from trainshed.errors import InvalidArgumentError, PayloadTooLargeError

_NAMESPACE = "http://doc.s3.amazonaws.com/2006-03-01"
_PARTS_NAMESPACE = "http://s3.amazonaws.com/doc/2006-03-01/"  #: of documents about uploads in parts
_UNWRITABLE = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
#: what a browser may do with a document: nothing, since names in it are anybody's
_HEADERS = {"content-disposition": "attachment", "content-security-policy": "sandbox; default-src 'none'"}
_MAX_BODY_BYTES = 2 << 20
#: status -> code of an error that its reason does not tell
_CODES: Mapping[int, str] = {
    400: "InvalidArgument",
    401: "AuthenticationRequired",
    403: "AccessDenied",
    404: "NoSuchKey",
    405: "MethodNotAllowed",
    409: "OperationAborted",
    412: "PreconditionFailed",
    413: "EntityTooLarge",
    416: "InvalidRange",
    429: "SlowDown",
    503: "ServiceUnavailable",
}
#: how a message begins -> code
_MESSAGE_CODES: Mapping[str, str] = {
    "The specified bucket does not exist": "NoSuchBucket",
    "There is no such upload": "NoSuchUpload",
    "The bucket you tried to delete is not empty": "BucketNotEmpty",
    "This signed URL has expired": "ExpiredToken",
    "The signature of this URL": "SignatureDoesNotMatch",
    "A bucket named": "BucketAlreadyExists",
}

Node = tuple[str, "str | int | Sequence[Node]"]  #: an element: its name, and its text or its children


def document(root: str, content: str | Sequence[Node], *, headers: Mapping[str, str] | None = None) -> Response:
    """Return a document as a response."""
    of_parts = "Multipart" in root or "Parts" in root
    namespace = _PARTS_NAMESPACE if of_parts else _NAMESPACE
    media_type = "text/xml" if of_parts else "application/xml"  # Google's library for Node reads the first as text only
    text = f"<?xml version='1.0' encoding='UTF-8'?><{root} xmlns='{namespace}'>{_content(content)}</{root}>"
    return Response(text, 200, {**_HEADERS, **(headers or {})}, media_type=f"{media_type}; charset=UTF-8")


def _text(children: Sequence[Node]) -> str:
    return "".join(f"<{name}>{_content(value)}</{name}>" for name, value in children)


def _content(value: str | int | Sequence[Node]) -> str:
    if isinstance(value, str | int):
        return escape(_UNWRITABLE.sub("\ufffd", str(value)))
    return _text(value)


def error(response: Response) -> Response:
    """Return an error response in the form of the XML API. Its other headers stay."""
    message = _message(bytes(response.body))
    by_message = (code for start, code in _MESSAGE_CODES.items() if message.startswith(start))
    code = next(by_message, _CODES.get(response.status_code, "InternalError"))
    kept = {name: value for name, value in response.headers.items() if name not in ("content-length", "content-type")}
    text = f"<?xml version='1.0' encoding='UTF-8'?><Error>{_text([('Code', code), ('Message', message)])}</Error>"
    return Response(text, response.status_code, {**_HEADERS, **kept}, media_type="application/xml; charset=UTF-8")


def _message(body: bytes) -> str:
    problem: Any = orjson.loads(body)["error"]
    return str(problem["message"])


async def read_elements(request: Request, root: str) -> list[ElementTree.Element]:
    """Return the children of a body's root. Raises `InvalidArgumentError` if it is another document."""
    body = await _read_whole(request)
    try:
        text = body.decode()
        if "<!" in text:
            raise InvalidArgumentError("The document of this request has a declaration or a comment; send it without.")
        parsed = ElementTree.fromstring(text)  # noqa: S314
    except (UnicodeDecodeError, ElementTree.ParseError):
        raise InvalidArgumentError("The body of this request is not XML in UTF-8.") from None
    if bare(parsed.tag) != root:
        raise InvalidArgumentError(f"The body of this request is <{bare(parsed.tag)[:40]}> instead of <{root}>.")
    return list(parsed)


async def _read_whole(request: Request) -> bytes:
    """Read the body as it is. A Content-Encoding here is that of the object, which clients send with each request."""
    body = bytearray()
    try:
        async for piece in request.stream():
            body += piece
            if len(body) > _MAX_BODY_BYTES:
                raise PayloadTooLargeError(f"The request body is larger than {_MAX_BODY_BYTES:,} bytes.")
    except ClientDisconnect:
        raise InvalidArgumentError("The request ended before its body was complete.") from None
    return bytes(body)


def fields(element: ElementTree.Element) -> dict[str, str]:
    """Return the texts of an element's children by name."""
    return {bare(child.tag): child.text or "" for child in element}


def bare(tag: str) -> str:
    return tag.rpartition("}")[2]


def named(nodes: Iterable[Node]) -> list[Node]:
    """Return the elements that have a text."""
    return [(name, value) for name, value in nodes if value != ""]
