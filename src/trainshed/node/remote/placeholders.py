"""Words in a replica's environment, arguments and files that stand for what only its node knows.

`@host:NAME@` and `@port:NAME@` are where the replica NAME listens. A port that is all of a string in JSON becomes a
number. Any other word, such as `@node@`, is given by the caller.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable


def substitution(words: dict[str, str], addresses: dict[str, list[str]]) -> Callable[[str], str]:
    """A function that puts in what the words stand for. `addresses`: host and port of each replica, by name."""
    table = [("@%s@" % word, value) for word, value in words.items()]
    for name, (host, port) in addresses.items():
        table += [('"@port:%s@"' % name, port), ("@port:%s@" % name, port), ("@host:%s@" % name, host)]

    def fill(text: str) -> str:
        if "@" in text:
            for word, value in table:
                text = text.replace(word, value)
        return text

    return fill
