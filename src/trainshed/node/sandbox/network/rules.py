"""What a new network namespace needs of the kernel: its loopback device, a route, and rules that redirect connections.

Everything is written to the kernel's own sockets, so no program has to be installed. It needs rights in the namespace
alone, which a process has that made it together with a user namespace.
"""

from __future__ import annotations

import fcntl
import os
import socket
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

PROXY, REDIRECTED, NAMES = "proxy", "redirected", "names"  #: sockets for a forwarder that are no port of the server
_SET_FLAGS, _UP_RUNNING = 0x8914, 1 | 64
_LOOPBACK_INDEX = 1
_ORIGINAL_DESTINATION = 80

_NETLINK_ROUTE, _NETLINK_NETFILTER = 0, 12
_REQUEST, _ACK, _CREATE, _APPEND = 1, 4, 0x400, 0x800
_ERROR_MESSAGE = 2
_NEW_ROUTE, _DESTINATION, _OUTGOING_DEVICE = 24, 1, 4
_LOCAL_TABLE, _STATIC, _HOST_SCOPE, _LOCAL = 255, 4, 254, 2

_BATCH_BEGIN, _BATCH_END = 16, 17
_TABLES = 10  #: the part of netfilter
_NEW_TABLE, _NEW_CHAIN, _NEW_RULE = (_TABLES << 8 | number for number in (0, 3, 6))
_NESTED = 0x8000
_LOCAL_OUT, _NAT_PRIORITY = 3, -100
_REGISTER = 1
_EQUAL, _NOT_EQUAL = 0, 1
_PROTOCOL_KEY = 16  #: of what the kernel knows about a packet: TCP or UDP
_NETWORK_HEADER, _TRANSPORT_HEADER = 1, 2
_DESTINATION_OFFSET, _PORT_OFFSET = 16, 2
_TABLE, _CHAIN = b"trainshed\0", b"out\0"
_LOOPBACK_NET = b"\x7f"
_DNS_PORT = 53


def raise_loopback() -> None:
    """Let this namespace reach itself."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, _SET_FLAGS, struct.pack("16sH22x", b"lo", _UP_RUNNING))


def redirect(tcp_port: int, dns_port: int) -> None:
    """Lead all TCP connections to other addresses, and questions for names, to ports of this namespace's loopback.

    Raises `OSError` if the kernel has no such rules.
    """
    _exchange(_NETLINK_ROUTE, [_route_to_here("0.0.0.0", 0)], 1)  # noqa: S104 - all addresses, which are led on
    messages = [
        _netfilter(_BATCH_BEGIN, b"", part=_TABLES, family=0, flags=_REQUEST),
        _netfilter(_NEW_TABLE, _text(1, _TABLE)),
        _netfilter(_NEW_CHAIN, _text(1, _TABLE) + _text(3, _CHAIN) + _hook() + _text(7, b"nat\0")),
        _rule([*_is_protocol(socket.IPPROTO_TCP), *_is_elsewhere(), *_to_port(tcp_port)]),
        _rule([*_is_protocol(socket.IPPROTO_UDP), *_is_port(_DNS_PORT), *_to_port(dns_port)]),
        _netfilter(_BATCH_END, b"", part=_TABLES, family=0, flags=_REQUEST),
    ]
    _exchange(_NETLINK_NETFILTER, messages, 4)


def add_address(address: str) -> None:
    """Make an address of IPv4 one of this namespace."""
    _exchange(_NETLINK_ROUTE, [_route_to_here(address, 32)], 1)


def _route_to_here(address: str, bits: int) -> bytes:
    """What is sent to such an address stays in this namespace."""
    head = struct.pack("BBBBBBBBI", socket.AF_INET, bits, 0, 0, _LOCAL_TABLE, _STATIC, _HOST_SCOPE, _LOCAL, 0)
    route = _attribute(_OUTGOING_DEVICE, struct.pack("I", _LOOPBACK_INDEX))
    route += _attribute(_DESTINATION, socket.inet_aton(address)) if bits else b""
    return _message(_NEW_ROUTE, _REQUEST | _ACK | _CREATE, head + route)


def _exchange(protocol: int, messages: list[bytes], answers: int) -> None:
    """Send messages at once. Raises `OSError` for the first one that is refused."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, protocol) as kernel:
        kernel.bind((0, 0))
        kernel.send(b"".join(messages))
        while answers > 0:
            data = kernel.recv(65536)
            while data:
                length, kind = struct.unpack_from("IH", data)
                if kind == _ERROR_MESSAGE:
                    number = -struct.unpack_from("i", data, 16)[0]
                    if number:
                        raise OSError(number, os.strerror(number))
                    answers -= 1
                data = data[(length + 3) & ~3 :]


def _message(kind: int, flags: int, content: bytes) -> bytes:
    return struct.pack("IHHII", 16 + len(content), kind, flags, 1, 0) + content


def _netfilter(
    kind: int, content: bytes, *, part: int = 0, family: int = socket.AF_INET, flags: int = _REQUEST | _ACK | _CREATE
) -> bytes:
    flags |= _APPEND if kind == _NEW_RULE else 0
    return _message(kind, flags, struct.pack(">BBH", family, 0, part) + content)


def _attribute(kind: int, content: bytes) -> bytes:
    return struct.pack("HH", 4 + len(content), kind) + content + bytes(-len(content) % 4)


def _text(kind: int, text: bytes) -> bytes:
    return _attribute(kind, text)


def _number(kind: int, number: int) -> bytes:
    return _attribute(kind, struct.pack(">I", number & 0xFFFFFFFF))


def _group(kind: int, *parts: bytes) -> bytes:
    return _attribute(_NESTED | kind, b"".join(parts))


def _hook() -> bytes:
    return _group(4, _number(1, _LOCAL_OUT), _number(2, _NAT_PRIORITY))


def _rule(expressions: Iterable[bytes]) -> bytes:
    return _netfilter(_NEW_RULE, _text(1, _TABLE) + _text(2, _CHAIN) + _group(4, *expressions))


def _expression(name: bytes, *parts: bytes) -> bytes:
    return _group(1, _text(1, name + b"\0"), _group(2, *parts))


def _compare(operation: int, value: bytes) -> bytes:
    return _expression(b"cmp", _number(1, _REGISTER), _number(2, operation), _group(3, _attribute(1, value)))


def _load(header: int, offset: int, length: int) -> bytes:
    parts = [_number(1, _REGISTER), _number(2, header), _number(3, offset), _number(4, length)]
    return _expression(b"payload", *parts)


def _is_protocol(number: int) -> list[bytes]:
    load = _expression(b"meta", _number(1, _REGISTER), _number(2, _PROTOCOL_KEY))
    return [load, _compare(_EQUAL, bytes([number]))]


def _is_elsewhere() -> list[bytes]:
    return [_load(_NETWORK_HEADER, _DESTINATION_OFFSET, 1), _compare(_NOT_EQUAL, _LOOPBACK_NET)]


def _is_port(port: int) -> list[bytes]:
    return [_load(_TRANSPORT_HEADER, _PORT_OFFSET, 2), _compare(_EQUAL, struct.pack(">H", port))]


def _to_port(port: int) -> list[bytes]:
    value = _group(2, _attribute(1, struct.pack(">H", port)))
    return [
        _expression(b"immediate", _number(1, _REGISTER), value),
        _expression(b"redir", _number(1, _REGISTER)),
    ]


def original_destination(connection: socket.socket) -> tuple[str, int]:
    """Where a redirected connection was meant for. Raises `OSError` if it was not redirected."""
    port, address = struct.unpack("!2xH4s8x", connection.getsockopt(socket.IPPROTO_IP, _ORIGINAL_DESTINATION, 16))
    return socket.inet_ntoa(address), port
