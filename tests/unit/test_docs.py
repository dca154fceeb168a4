"""What can be typed or set is documented, or the build fails."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import click
import pytest

from trainshed.cli.commands import main
from trainshed.cli.reference import CLIENT_VARIABLES, PAGES, commands, options
from trainshed.cli.toolkit.lazy_group import LazyGroup
from trainshed.config import PREFIX, Settings

DOCS = Path(__file__).parents[2] / "docs"
COMMANDS = dict(commands())


@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_what_the_code_says(page: str) -> None:
    made = PAGES[page]()
    assert (DOCS / f"{page}.md").read_text() == made, f"run: python -m trainshed.cli.reference {page} > docs/{page}.md"


def test_every_command_has_a_section_and_each_option_a_text() -> None:
    page = (DOCS / "cli.md").read_text()
    sections = {words: page.partition(f"## {words}\n")[2].partition("\n## ")[0] for words in COMMANDS}
    assert [words for words, section in sections.items() if not section.strip()] == []
    known = [(words, *option) for words in COMMANDS for option in options(COMMANDS[words])]
    assert [(words, written) for words, written, what in known if not what] == []
    assert [words for words, written, _ in known if written.replace("|", "\\|") not in sections[words]] == []


def test_the_help_of_every_command_has_an_example_of_that_command() -> None:
    texts = {words: found.help or "" for words, found in COMMANDS.items() if not isinstance(found, click.Group)}
    assert [words for words, text in texts.items() if words not in text.partition("Example:\n")[2]] == []


def test_the_line_shown_for_a_command_agrees_with_its_own_help() -> None:
    bad: list[str] = []
    for group in (main, *(found for found in COMMANDS.values() if isinstance(found, LazyGroup))):
        context = click.Context(group)
        for name in group.list_commands(context):
            command = group.get_command(context, name)
            assert command is not None
            shown = group.table[name][1].rstrip(".")
            bad += [] if (command.help or "").replace("\n", " ").startswith(shown) else [f"{name}: {shown}"]
    assert bad == []


def test_every_setting_is_documented() -> None:
    page = (DOCS / "settings.md").read_text()
    assert [field.name for field in fields(Settings) if f"## {PREFIX}{field.name.upper()}\n" not in page] == []


def test_every_variable_of_the_command_line_is_documented() -> None:
    config = (Path(__file__).parents[2] / "src/trainshed/config.py").read_text()
    read = {
        word for word in ("TRAINSHED_HOME", "TRAINSHED_PROJECT", "TRAINSHED_URL", "TRAINSHED_TOKEN") if word in config
    }
    assert read == set(CLIENT_VARIABLES)
