"""Rewrites requests of TensorFlow into the form that strict HTTP servers accept.

TensorFlow sends `Content-Length: 0` with `Transfer-Encoding: identity`, and `Transfer-Encoding: chunked` with a
Content-Length. Every normalized request has exactly one framing, the one by which its body was read here. So the server
behind cannot see a request end anywhere else. All other ambiguous requests are rejected.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from trainshed.domain.storage.xml_paths import host_bucket
from trainshed.errors import InvalidArgumentError
from trainshed.node.connect import MAX_HEAD_BYTES, MAX_HEADERS
from trainshed.proxy.google_hosts import rewrite_path, served_name

_MAX_CHUNK_LINE_BYTES = 128  #: of a chunk-size line
_MAX_TRAILER_BYTES = 8192

_REQUEST_LINE = re.compile(rb"([A-Z]{1,20}) (/[\x21-\x7e]*) HTTP/1\.([01])")
_HEADER = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):([\t\x20-\x7e\x80-\xff]*)")
_LENGTH = re.compile(rb"\d{1,18}")
_CHUNK_SIZE = re.compile(rb"[0-9A-Fa-f]{1,15}")

#: hop-by-hop headers, and headers that are rewritten
_DROPPED_HEADERS = frozenset(
    {
        b"connection",
        b"content-length",
        b"host",
        b"http2-settings",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)


@dataclass(frozen=True, slots=True)
class RequestHead:
    """A normalized request line with headers. `length` is None if the body is chunked."""

    text: bytes
    length: int | None


def normalize_head(raw: bytes, name: str) -> RequestHead:
    """Rewrite a head, without the empty line at its end, for the intercepted host `name`.

    Raises `InvalidArgumentError` if it is ambiguous.
    """
    first, *lines = raw.split(b"\r\n")
    match = _REQUEST_LINE.fullmatch(first)
    if match is None:
        raise InvalidArgumentError("This is no HTTP/1.1 request: its first line is not like 'GET /path HTTP/1.1'.")
    if len(lines) > MAX_HEADERS:
        raise InvalidArgumentError(f"The request has more than {MAX_HEADERS} headers.")
    headers = [_header(line) for line in lines]

    def values_of(wanted: bytes) -> list[bytes]:
        return [value.lower() for key, value in headers if key == wanted]

    hosts = values_of(b"host")
    if len(hosts) != 1 or served_name(hosts[0].decode("latin-1").removesuffix(":443")) != name:
        raise InvalidArgumentError(f"The request's Host is not {name}, to which the connection was asked for.")
    length = _length(values_of(b"transfer-encoding"), values_of(b"content-length"), version=match[3])
    closing = any(b"close" in value for value in values_of(b"connection"))
    bucket = host_bucket(hosts[0].decode("latin-1"))
    host = f"{bucket}.{name}" if bucket else name
    path = rewrite_path(name, match[2].decode("ascii"), bucket=bucket).encode("ascii")
    out = [b"%s %s HTTP/1.%s" % (match[1], path, match[3]), b"host: " + host.encode("ascii")]
    out += [key + b": " + value for key, value in headers if key not in _DROPPED_HEADERS]
    out += [b"connection: close"] if closing else []
    if length is None:
        out.append(b"transfer-encoding: chunked")
    elif length or values_of(b"content-length"):
        out.append(b"content-length: %d" % length)
    return RequestHead(b"\r\n".join(out) + b"\r\n\r\n", length)


def _header(line: bytes) -> tuple[bytes, bytes]:
    match = _HEADER.fullmatch(line)
    if match is None:
        raise InvalidArgumentError("The request has a header that is not like 'Name: value'.")
    return match[1].lower(), match[2].strip(b" \t")


def _length(encodings: list[bytes], lengths: list[bytes], *, version: bytes) -> int | None:
    """Return the length of the body. Returns None if it is chunked, which overrides a length (RFC 9112)."""
    if len(encodings) > 1 or not {*encodings} <= {b"identity", b"chunked"}:
        raise InvalidArgumentError("The request has a Transfer-Encoding other than 'chunked'.")
    if len(lengths) > 1 or not all(_LENGTH.fullmatch(value) for value in lengths):
        raise InvalidArgumentError("The request's Content-Length is not one number.")
    if encodings == [b"chunked"]:
        if version == b"0":
            raise InvalidArgumentError("HTTP/1.0 knows no chunks.")
        return None
    return int(lengths[0]) if lengths else 0


class RequestNormalizer:
    """Normalizes the byte stream of one connection. Chunk boundaries of the input do not matter."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._buffer = bytearray()
        self._remaining = 0
        self._trailers = 0
        self._state: Callable[[bytearray], bool] = self._head

    def feed(self, data: bytes) -> bytes:
        """Consume input and return the normalized bytes so far.

        Raises `InvalidArgumentError` if the connection must be closed; callers must not call it again.
        """
        self._buffer += data
        out = bytearray()
        while self._state(out):
            pass
        return bytes(out)

    # Each state consumes the buffer and returns whether the next state may run.

    def _head(self, out: bytearray) -> bool:
        end = self._buffer.find(b"\r\n\r\n", 0, MAX_HEAD_BYTES)
        if end < 0:
            if len(self._buffer) >= MAX_HEAD_BYTES:
                raise InvalidArgumentError(f"The head of the request is longer than {MAX_HEAD_BYTES:,} bytes.")
            return False
        head = normalize_head(self._take(end), self._name)
        self._take(4)
        out += head.text
        self._remaining = head.length or 0
        self._state = self._chunk_size if head.length is None else self._body if head.length else self._head
        return True

    def _body(self, out: bytearray) -> bool:
        chunk = self._take(self._remaining)
        self._remaining -= len(chunk)
        out += chunk
        if self._remaining:
            return False
        self._state = self._head
        return True

    def _chunk_size(self, out: bytearray) -> bool:
        line = self._line(_MAX_CHUNK_LINE_BYTES)
        if line is None:
            return False
        if not _CHUNK_SIZE.fullmatch(line):
            raise InvalidArgumentError("A chunk of the request does not begin with its size.")
        self._remaining = int(line, 16)
        self._trailers = 0
        self._state = self._chunk if self._remaining else self._trailer
        return True

    def _chunk(self, out: bytearray) -> bool:
        chunk = self._take(self._remaining)
        if not chunk:
            return False
        self._remaining -= len(chunk)
        out += b"%x\r\n%s\r\n" % (len(chunk), chunk)
        if self._remaining == 0:
            self._state = self._chunk_end
        return True

    def _chunk_end(self, out: bytearray) -> bool:
        if len(self._buffer) < 2:
            return False
        if self._take(2) != b"\r\n":
            raise InvalidArgumentError("A chunk of the request is longer than it says.")
        self._state = self._chunk_size
        return True

    def _trailer(self, out: bytearray) -> bool:
        """Drop headers after the last chunk: the server needs none."""
        line = self._line(_MAX_TRAILER_BYTES)
        if line is None:
            return False
        if line:
            _header(line)
            self._trailers += 1
            if self._trailers > MAX_HEADERS:
                raise InvalidArgumentError(f"The request has more than {MAX_HEADERS} headers after its body.")
            return True
        out += b"0\r\n\r\n"
        self._state = self._head
        return True

    def _line(self, limit: int) -> bytes | None:
        end = self._buffer.find(b"\r\n", 0, limit)
        if end < 0:
            if len(self._buffer) >= limit:
                raise InvalidArgumentError("The request has a line in its body that is too long.")
            return None
        line = self._take(end)
        self._take(2)
        return line

    def _take(self, count: int) -> bytes:
        data = bytes(self._buffer[:count])
        del self._buffer[:count]
        return data
