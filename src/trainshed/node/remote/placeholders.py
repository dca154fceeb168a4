"""Placeholders in a replica's environment, arguments and files, for values that only its node knows.

`@host:NAME@` and `@port:NAME@` are the address of replica NAME. A port that is a whole JSON string becomes a number.
The caller provides all other placeholders, such as `@node@`.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable


def substitution(values: dict[str, str], addresses: dict[str, list[str]]) -> Callable[[str], str]:
    """Returns a function that replaces placeholders. `addresses` has host and port of each replica by name."""
    table = [("@%s@" % placeholder, value) for placeholder, value in values.items()]
    for name, (host, port) in addresses.items():
        table += [('"@port:%s@"' % name, port), ("@port:%s@" % name, port), ("@host:%s@" % name, host)]

    def substitute(text: str) -> str:
        if "@" in text:
            for placeholder, value in table:
                text = text.replace(placeholder, value)
        return text

    return substitute
