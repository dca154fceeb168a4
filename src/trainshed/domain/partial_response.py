"""The query parameter `fields` of Google's APIs: which parts of a response a client wants.

fields := part ("," part)*
part   := name ("/" name)* ["(" fields ")"]      a name may be *, which stands for every name
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from trainshed.errors import InvalidArgumentError

MAX_CHARACTERS = 10_000
MAX_DEPTH = 32

Selection = Mapping[str, "Selection"]  #: by name; empty: the whole value

_TOKEN = re.compile(r"[\w.$@*-]+|[,/()]")


def read_fields(text: str) -> Selection:
    """Parse the parameter. Raises `InvalidArgumentError` if it is malformed."""
    tokens = _TOKEN.findall(text) if len(text) <= MAX_CHARACTERS else []
    if "".join(tokens) != "".join(text.split()):
        raise _malformed(text)
    tokens.reverse()  # so that the next one is popped
    selection = _parts(tokens, text, 0)
    if tokens:
        raise _malformed(text)
    return selection


def _parts(tokens: list[str], text: str, depth: int) -> dict[str, Selection]:
    found: dict[str, Selection] = {}
    while True:
        _add(found, _part(tokens, text, depth))
        if not tokens or tokens[-1] != ",":
            return found
        tokens.pop()


def _part(tokens: list[str], text: str, depth: int) -> dict[str, Selection]:
    if depth > MAX_DEPTH or not tokens or tokens[-1] in ",/()":
        raise _malformed(text)
    name = tokens.pop()
    following = tokens[-1] if tokens else ""
    if following == "/":
        tokens.pop()
        return {name: _part(tokens, text, depth + 1)}
    if following != "(":
        return {name: {}}
    tokens.pop()
    inner = _parts(tokens, text, depth + 1)
    if not tokens or tokens.pop() != ")":
        raise _malformed(text)
    return {name: inner}


def _add(found: dict[str, Selection], part: Mapping[str, Selection]) -> None:
    """Add a selection to another one. The whole of a value includes its parts."""
    for name, inner in part.items():
        if name not in found:
            found[name] = inner
        elif not found[name] or not inner:
            found[name] = {}
        else:
            merged = dict(found[name])
            _add(merged, inner)
            found[name] = merged


def select(value: Any, selection: Selection) -> Any:
    """Return the selected parts of a JSON value. Of a list, those of each element."""
    if not selection or not isinstance(value, dict | list):
        return value
    if isinstance(value, list):
        return [select(item, selection) for item in value]
    every = selection.get("*")
    chosen = {}
    for name, item in value.items():
        inner = selection.get(name, every)
        if inner is not None:
            chosen[name] = select(item, inner)
    return chosen


def _malformed(text: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"Invalid field selection {text[:80]!r}. Example: fields=models(name,defaultVersion/name).", field="fields"
    )
