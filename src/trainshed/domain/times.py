"""Times: integer microseconds since 1970 in UTC internally, RFC 3339 for people and clients."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_RFC3339 = re.compile(r"(\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?([Zz]|[+-]\d\d:\d\d)")


def now_us() -> int:
    return time.time_ns() // 1000


def rfc3339(us: int, *, digits: int = 6) -> str:
    """`2026-11-15T21:17:35.000000Z`. The width is fixed because clients compare these as strings."""
    text = (_EPOCH + timedelta(microseconds=us)).isoformat(timespec="microseconds")
    return f"{text[:19]}Z" if digits == 0 else f"{text[: min(20 + digits, 26)].ljust(20 + digits, '0')}Z"


def clock_time(us: int) -> str:
    """`21:17:35 UTC`, for messages about something in progress."""
    return f"{rfc3339(us, digits=0)[11:19]} UTC"


def parse_rfc3339(text: str) -> int:
    """Microseconds of an RFC 3339 time. Further digits are truncated. Raises `ValueError` if the text is not one."""
    match = _RFC3339.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a time like 2026-11-15T21:17:35Z")
    whole, fraction, zone = match.groups()
    moment = datetime.fromisoformat(whole.upper() + ("+00:00" if zone in "Zz" else zone))
    return (moment - _EPOCH) // timedelta(microseconds=1) + int((fraction or "0").ljust(6, "0")[:6])
