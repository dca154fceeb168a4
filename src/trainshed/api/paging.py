"""Pages of a list: size and token in, items and the next token out."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any

import orjson

from trainshed.api.queries import number
from trainshed.errors import Invalid
from trainshed.services.pages import Cursor, Page, PageRequest

DEFAULT_SIZE = 20
MAX_SIZE = 100


def page_request(query: Mapping[str, str]) -> PageRequest:
    """The page that pageSize, pageToken and filter ask for."""
    return PageRequest(size=_size(query), after=_cursor(query), query=query.get("filter", ""))


def _size(query: Mapping[str, str]) -> int:
    """How many items a page has: 20 unless said, 100 at most. `Invalid` for a negative number."""
    size = number(query, "pageSize")
    if size < 0:
        raise Invalid(f"A page can't have {size} items. Use 1 to {MAX_SIZE}.", field="page_size")
    return min(size or DEFAULT_SIZE, MAX_SIZE)


def _cursor(query: Mapping[str, str]) -> Cursor | None:
    """Where the page begins: None at the start. `Invalid` for a token that this server never gave."""
    token = query.get("pageToken", "")
    if not token:
        return None
    try:
        created_us, item = orjson.loads(base64.b64decode(token, altchars=b"-_", validate=True))
    except (binascii.Error, ValueError, TypeError):
        raise _not_ours() from None
    if type(created_us) is not int or not isinstance(item, str) or not 0 <= created_us < 2**63:
        raise _not_ours()
    return created_us, item


def _not_ours() -> Invalid:
    return Invalid("The page token is not one that this server gave. Start without one.", field="page_token")


def page_token(cursor: Cursor) -> str:
    """What clients send back as pageToken. Its inside is nobody's business but this module's."""
    return base64.urlsafe_b64encode(orjson.dumps(cursor)).decode()


def page_body(name: str, page: Page) -> dict[str, Any]:
    """The answer of a list method; an empty list is an empty object, as Google has it."""
    body: dict[str, Any] = {name: page.items} if page.items else {}
    if page.next is not None:
        body["nextPageToken"] = page_token(page.next)
    return body
