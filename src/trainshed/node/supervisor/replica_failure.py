"""The failure of a replica that ends its job: cause, exit status, last output and what else was observed."""

from __future__ import annotations

import os
import re

from .. import failure
from ..process.exit_status import ExitStatus

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

_EXCERPT_MAX_BYTES = 2048
_EXCERPT_MAX_LINES = 20
_TRACEBACK = "Traceback (most recent call last):"
_CONNECTION_ERROR = re.compile(
    r"Unavailable|UNAVAILABLE|AbortedError|ABORTED:|Socket closed|[Cc]onnection (?:reset|refused|closed|aborted|lost)"
    r"|ConnectionError|Connection\w+Error|BrokenPipeError|Broken pipe|[Ff]ailed to connect|[Hh]eartbeat timeout"
)
#: The stack at which TensorFlow made the operation that failed. It follows the message or is in it, and may be long.
_ORIGIN = re.compile(
    r"Original stack trace for '|Caused by op |Detected at node .* defined at \(most recent call last\):|Node: '"
)
_MISSING_MODULE = re.compile(r"(?:ModuleNotFoundError|ImportError): No module named '?(\w+)'?\Z")


def is_peer_loss(tail: str) -> bool:
    """Whether the log tail of a replica ends in a broken connection, the effect of another replica's exit."""
    lines = [line for line in tail.split("\n") if line.strip()]
    starts = [index for index, line in enumerate(lines) if line.startswith(_TRACEBACK)]
    return (
        _CONNECTION_ERROR.search("\n".join(lines[starts[-1] :] if starts else lines[-_EXCERPT_MAX_LINES:])) is not None
    )


def describe(
    spec: dict[str, Any], replica: dict[str, Any], status: ExitStatus, tail: str, seen: dict[str, Any]
) -> dict[str, Any]:
    """The failure of a replica. `tail` is its log tail. `seen` is the part that is known already, such as a cause that
    its node observed."""
    return dict(
        seen,
        cause=seen.get("cause") or _cause(status, tail),
        replica=replica["name"],
        exit_code=status.code,
        signal=status.signal,
        output=excerpt(tail),
        facts=dict(_facts(spec, replica, tail), **seen.get("facts", {})),
    )


def _cause(status: ExitStatus, tail: str) -> str:
    if status.node_lost:
        return failure.NODE_LOST
    if status.signal is not None:
        return failure.REPLICA_KILLED
    lines = [line for line in tail.split("\n") if line.strip()]
    return failure.OUT_OF_MEMORY if lines and lines[-1].startswith("MemoryError") else failure.REPLICA_EXITED


def _facts(spec: dict[str, Any], replica: dict[str, Any], tail: str) -> dict[str, Any]:
    """What the replica ran, and which module of its own package it did not find."""
    container = replica.get("container")
    if not container:
        sibling = _sibling_module(spec, tail)
        return {"module": spec["module"], **({"sibling_module": sibling} if sibling else {})}
    command = container["command"][0] if container["command"] else ""
    return {"image": container["image"], "command": command, "memory_limit_bytes": container["memory_bytes"]}


def _sibling_module(spec: dict[str, Any], tail: str) -> str:
    """The module that was not found although it is in the package of the main module. Python 2 finds it there."""
    missing = _MISSING_MODULE.search(tail.rstrip())
    package = spec["module"].rpartition(".")[0]
    if not missing or not package or not spec.get("site"):
        return ""
    path = os.path.join(spec["site"], *package.split("."), missing.group(1))
    return missing.group(1) if os.path.isfile(path + ".py") or os.path.isdir(path) else ""


def excerpt(tail: str) -> str:
    """The last traceback, or else the last lines, in about 2 KiB. The oldest lines are dropped."""
    lines = list(_without_origins([line for line in tail.split("\n") if line.strip()]))
    starts = [index for index, line in enumerate(lines) if line.startswith(_TRACEBACK)]
    if starts:
        return "\n".join(_shorten(lines[starts[-1] + 1 :], [_TRACEBACK], "  [...]"))
    return "\n".join(_shorten(lines[-_EXCERPT_MAX_LINES:], [], "[...]"))


def _without_origins(lines: list[str]) -> Iterator[str]:
    in_origin = False
    for line in lines:
        in_origin = _ORIGIN.match(line) is not None or (in_origin and line.startswith(" "))
        if not in_origin:
            yield line


def _shorten(lines: list[str], head: list[str], mark: str) -> list[str]:
    newest: list[str] = []
    free = _EXCERPT_MAX_BYTES
    for line in reversed(lines):
        if len(line) + 1 > free:
            if not newest:
                newest.append(line[:free])
            return [*head, mark, *reversed(newest)]
        free -= len(line) + 1
        newest.append(line)
    return [*head, *reversed(newest)]
