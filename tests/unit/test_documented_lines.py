"""Command lines in the documents name commands and options that there are."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from trainshed.cli.reference import commands

ROOT = Path(__file__).resolve().parents[2]
WRITTEN = [
    path for path in sorted((ROOT / "docs").glob("*.md")) if path.name != "cli.md"
]  # which is made from the commands
PAGES = [ROOT / "README.md", *WRITTEN, *sorted((ROOT / "samples").glob("*/README.md"))]
COMMANDS = dict(commands())
CODE = re.compile(r"^ *```\w*\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
TYPED = re.compile(r"^(?:\$ )?(?:\w+=\S* )*(?:\w+=)?(?:\"?\$\()?(trainshed (?!--version).*)$")


def typed(text: str) -> Iterator[str]:
    """The lines of a page's code that call `trainshed`, with those that they go on in, without what follows a pipe."""
    for block in CODE.findall(text):
        for line in re.sub(r"\\\n\s*", "", block).splitlines():
            found = TYPED.match(line.strip())
            if found:
                yield re.split(r" (?:\||>|<|&&|#) ?|\)\"?$", found.group(1))[0]


def wrong(line: str) -> str:
    """What a command line names that there is not; nothing if all is there."""
    words = shlex.split(line, comments=True)
    words = words[: words.index("--")] if "--" in words else words
    if len(words) > 2 and words[1] == "--project":
        words[1:3] = []
    known = [" ".join(words[:count]) for count in range(len(words), 0, -1) if " ".join(words[:count]) in COMMANDS]
    if not known or isinstance(command := COMMANDS[known[0]], click.Group):
        return f"no command: {line}"
    there = {name for each in command.params for name in (*each.opts, *each.secondary_opts)} | {"--help", "-h", "-q"}
    asked = {word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)}
    return f"{known[0]} has no {', '.join(sorted(asked - there))}" if asked - there else ""


def test_what_a_page_types_is_there() -> None:
    found = ((page, wrong(line)) for page in PAGES for line in typed(page.read_text()))
    assert [f"{page.relative_to(ROOT)}: {reason}" for page, reason in found if reason] == []


def test_enough_lines_are_found_to_mean_something() -> None:
    assert sum(1 for page in PAGES for _ in typed(page.read_text())) >= 100


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("trainshed jobs list --limit 3", ""),
        ("trainshed --project vision jobs list", ""),
        ("trainshed jobs lst", "no command: trainshed jobs lst"),
        ("trainshed jobs list --lmit 3", "trainshed jobs list has no --lmit"),
        ("trainshed jobs submit training a --package-path t -- --no_such_option 3", ""),
    ],
)
def test_what_is_wrong_with_a_line_is_found(line: str, reason: str) -> None:
    assert wrong(line) == reason


def test_lines_are_taken_out_of_blocks_of_code() -> None:
    text = "trainshed no\n```\n$ trainshed jobs list \\\n    --limit 3 | head\nA=$(trainshed status)\nINFO\n```\n"
    assert list(typed(text)) == ["trainshed jobs list --limit 3", "trainshed status"]
