"""Where a list goes on, as a text that clients send back. Its inside is nobody's business but the list's own."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence

import orjson

from trainshed.errors import InvalidArgumentError


def encode_page_token(place: Sequence[int | str]) -> str:
    return base64.urlsafe_b64encode(orjson.dumps(list(place))).decode()


def decode_page_token(token: str, *, field: str = "page_token") -> list[object]:
    """The place that a token stands for.

    `InvalidArgumentError` if it can't be one of ours; the list has to check the rest.
    """
    try:
        place = orjson.loads(base64.b64decode(token, altchars=b"-_", validate=True))
    except (binascii.Error, ValueError):
        raise bad_page_token(field) from None
    if not isinstance(place, list):
        raise bad_page_token(field)
    return place


def bad_page_token(field: str = "page_token") -> InvalidArgumentError:
    return InvalidArgumentError("The page token is not one that this server gave. Start without one.", field=field)
