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
_FORWARDED_FLAGS = {"--no-launch-browser": "--no-browser", "--port": "--port"}
_IGNORED_FLAGS = (
    "--zone",
    "--machine-type",
    "--disk-size-gb",
    "--network-name",
    "--image-name",
    "--idle-timeout",
    "--project",
)


def words(args: Sequence[str]) -> tuple[str, ...] | None:
    """Translate a command line of datalab to words of `trainshed`. Returns None if it is not supported.

    The name, zone and machine of the instance are ignored.
    """
    command = next((word for word in args if not word.startswith("-")), "")
    if command not in MEANING:
        return None
    translated = list(MEANING[command])
    rest = list(args)
    while rest:
        flag, equals, value = rest.pop(0).partition("=")
        if flag in _IGNORED_FLAGS and not equals:
            del rest[:1]
        elif flag in _FORWARDED_FLAGS:
            translated.append(_FORWARDED_FLAGS[flag])
            if flag == "--port":
                translated.append(value if equals else rest.pop(0) if rest else "")
    return tuple(translated)


def refusal(args: Sequence[str]) -> str:
    """Return a sentence about an unsupported command."""
    word = next((word for word in args if not word.startswith("-")), "")
    return f"Trainshed does not serve `datalab {word}`. `datalab create NAME` opens a notebook on this machine."
