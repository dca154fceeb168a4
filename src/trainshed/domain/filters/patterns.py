"""Regular expressions that a user may send: RE2 syntax, matched in time linear in the text.

Python's own engine can take for ever on six characters such as `(a+)+$`, and stops every thread meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable

MAX_PATTERN = 1000

Search = Callable[[str], bool]


def compile_pattern(pattern: str) -> Search:
    """A function that says whether the pattern is somewhere in a text. `ValueError`, a sentence, if it is not one."""
    import re2  # type: ignore[import-untyped]  # only who searches pays for loading it

    if len(pattern) > MAX_PATTERN:
        raise ValueError(f"the regular expression has {len(pattern):,} characters; {MAX_PATTERN:,} are allowed")
    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    try:
        compiled = re2.compile(pattern, options)
    except re2.error as exc:
        reason = exc.args[0]
        said = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        raise ValueError(f"{pattern[:60]!r} is not a regular expression ({said})") from None
    return lambda text: compiled.search(text) is not None
