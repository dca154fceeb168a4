"""Which pages of other sites may use a bucket: its CORS rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trainshed.errors import InvalidArgumentError

MAX_RULES = 100
DEFAULT_MAX_AGE_S = 3600  #: for which a browser may keep the answer
_METHODS = frozenset({"GET", "HEAD", "PUT", "POST", "DELETE", "PATCH", "OPTIONS", "*"})
_FIELDS = frozenset({"origin", "method", "responseHeader", "maxAgeSeconds"})


def checked_cors(value: object) -> list[dict[str, Any]] | None:
    """The rules as they are kept; None if there are none. Raises `InvalidArgumentError` for another form."""
    if not value:
        return None
    if not isinstance(value, list) or len(value) > MAX_RULES:
        raise _wrong(f"is a list of at most {MAX_RULES} rules")
    for rule in value:
        if not isinstance(rule, dict) or set(rule) - _FIELDS:
            raise _wrong(f"has rules with the fields {', '.join(sorted(_FIELDS))}")
        for name in ("origin", "method", "responseHeader"):
            _check_texts(name, rule.get(name, []))
        if set(map(str.upper, rule.get("method", []))) - _METHODS:
            raise _wrong(f"has one of the methods {', '.join(sorted(_METHODS))}")
        age = rule.get("maxAgeSeconds", 0)
        if type(age) is not int or not 0 <= age < 1 << 31:
            raise _wrong("has a maxAgeSeconds that is a number of seconds")
    return list(value)


def _check_texts(name: str, value: object) -> None:
    printable = isinstance(value, list) and all(
        isinstance(each, str) and each.isascii() and each.isprintable() for each in value
    )
    if not printable:
        raise _wrong(f"has a list of strings as {name}")


def preflight_headers(
    rules: Sequence[Mapping[str, Any]], *, origin: str, method: str, headers: Sequence[str]
) -> dict[str, str] | None:
    """The headers of an answer to a preflight request. Returns None if no rule allows the request.

    A header is allowed if it is simple or a rule lists it.
    """
    for rule in rules:
        allowed = _names(rule)
        if not _allows(rule, origin, method) or not ("*" in allowed or {each.lower() for each in headers} <= allowed):
            continue
        return _origin_headers(rule, origin) | {
            "access-control-allow-methods": ",".join(rule.get("method", [])),
            "access-control-allow-headers": ",".join(headers),
            "access-control-max-age": str(rule.get("maxAgeSeconds", DEFAULT_MAX_AGE_S)),
        }
    return None


def response_headers(rules: Sequence[Mapping[str, Any]], *, origin: str, method: str) -> dict[str, str] | None:
    """The headers that let a page of `origin` read an answer. Returns None if no rule allows the request."""
    for rule in rules:
        if _allows(rule, origin, method):
            exposed = ",".join(rule.get("responseHeader", []))
            return _origin_headers(rule, origin) | ({"access-control-expose-headers": exposed} if exposed else {})
    return None


def _allows(rule: Mapping[str, Any], origin: str, method: str) -> bool:
    methods = {each.upper() for each in rule.get("method", [])}
    return any(_is_origin(each, origin) for each in rule.get("origin", [])) and bool({method, "*"} & methods)


def _is_origin(pattern: str, origin: str) -> bool:
    """Whether an origin is the one that a rule names; `*` is any, and stands for any part of a name."""
    if "*" not in pattern:
        return pattern.lower() == origin.lower()
    first, _, last = pattern.lower().partition("*")
    text = origin.lower()
    return len(text) >= len(first) + len(last) and text.startswith(first) and text.endswith(last)


def _names(rule: Mapping[str, Any]) -> set[str]:
    return {each.lower() for each in rule.get("responseHeader", [])}


def _origin_headers(rule: Mapping[str, Any], origin: str) -> dict[str, str]:
    any_origin = "*" in rule.get("origin", [])
    return {"access-control-allow-origin": "*" if any_origin else origin, "vary": "Origin"}


def _wrong(what: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"The cors of a bucket {what}.", field="cors")
