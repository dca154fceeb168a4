"""datalab's command lines: a notebook on this machine in place of one on a machine of Google's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

#: datalab's commands as words of `trainshed`
MEANING: Mapping[str, tuple[str, ...]] = {
    "create": ("notebook",),
    "connect": ("notebook",),
    "list": ("status",),
    "stop": ("notebook", "--stop"),
    "delete": ("notebook", "--stop"),
}
_PASSED_ON = {"--no-launch-browser": "--no-browser", "--port": "--port"}
_VALUED = (
    "--zone",
    "--machine-type",
    "--disk-size-gb",
    "--network-name",
    "--image-name",
    "--idle-timeout",
    "--project",
)


def words(args: Sequence[str]) -> tuple[str, ...] | None:
    """A command line of datalab as words of `trainshed`; None if it is not served.

    The name of the instance, its zone and its machine mean nothing here.
    """
    command = next((word for word in args if not word.startswith("-")), "")
    if command not in MEANING:
        return None
    found = list(MEANING[command])
    rest = list(args)
    while rest:
        flag, equals, value = rest.pop(0).partition("=")
        if flag in _VALUED and not equals:
            del rest[:1]
        elif flag in _PASSED_ON:
            found.append(_PASSED_ON[flag])
            if flag == "--port":
                found.append(value if equals else rest.pop(0) if rest else "")
    return tuple(found)


def refusal(args: Sequence[str]) -> str:
    """A sentence about a command that is not served."""
    word = next((word for word in args if not word.startswith("-")), "")
    return f"Trainshed does not serve `datalab {word}`. `datalab create NAME` opens a notebook on this machine."
