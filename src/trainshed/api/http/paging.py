"""Pages of a list: size and token in, items and the next token out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainshed.api.http.request import number
from trainshed.domain.page_tokens import bad_page_token, decode_page_token, encode_page_token
from trainshed.errors import InvalidArgumentError
from trainshed.services.paging import PageRequest, ResourcePage, RowCursor

DEFAULT_SIZE = 20
MAX_SIZE = 100


def page_request(query: Mapping[str, str]) -> PageRequest:
    """Read the page request from pageSize, pageToken and filter."""
    return PageRequest(size=_size(query), after=_cursor(query), query=query.get("filter", ""))


def _size(query: Mapping[str, str]) -> int:
    """Return the page size: 20 by default, at most 100. Raises `InvalidArgumentError` if it is negative."""
    size = number(query, "pageSize")
    if size < 0:
        raise InvalidArgumentError(f"A page can't have {size} items. Use 1 to {MAX_SIZE}.", field="page_size")
    return min(size or DEFAULT_SIZE, MAX_SIZE)


def _cursor(query: Mapping[str, str]) -> RowCursor | None:
    """Return where the page begins; None is the start.

    Raises `InvalidArgumentError` for a token this server did not issue.
    """
    token = query.get("pageToken", "")
    if not token:
        return None
    match decode_page_token(token):
        case [int(created_us), str(item)] if 0 <= created_us < 2**63:
            return created_us, item
    raise bad_page_token()


def page_body(name: str, page: ResourcePage) -> dict[str, Any]:
    """Return the body of a list response. An empty list is an empty object, as in Google's API."""
    body: dict[str, Any] = {name: page.items} if page.items else {}
    if page.next is not None:
        body["nextPageToken"] = encode_page_token(page.next)
    return body
