"""Page tokens: the position of the next page as a string that is opaque to clients."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence

import orjson

from trainshed.errors import InvalidArgumentError


def encode_page_token(position: Sequence[int | str]) -> str:
    return base64.urlsafe_b64encode(orjson.dumps(list(position))).decode()


def decode_page_token(token: str) -> list[object]:
    """The position in a page token. Raises `InvalidArgumentError` if it is malformed; the list checks the values."""
    try:
        position = orjson.loads(base64.b64decode(token, altchars=b"-_", validate=True))
    except (binascii.Error, ValueError):
        raise bad_page_token() from None
    if not isinstance(position, list):
        raise bad_page_token()
    return position


def bad_page_token() -> InvalidArgumentError:
    return InvalidArgumentError(
        "The page token is not one that this server gave. Start without one.", field="page_token"
    )
