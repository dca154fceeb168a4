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


@pytest.mark.parametrize("words", COMMANDS)
def test_every_command_has_a_section_and_each_option_a_text(words: str) -> None:
    section = (DOCS / "cli.md").read_text().partition(f"## {words}\n")[2].partition("\n## ")[0]
    assert section.strip(), f"`{words}` has no section"
    for written, what in options(COMMANDS[words]):
        assert what, f"{written} of `{words}` has no help"
        assert written.replace("|", "\\|") in section


@pytest.mark.parametrize("words", [words for words, found in COMMANDS.items() if not isinstance(found, click.Group)])
def test_the_help_of_every_command_has_an_example_of_that_command(words: str) -> None:
    help_text = COMMANDS[words].help or ""
    assert "Example:\n" in help_text
    assert words in help_text.partition("Example:\n")[2]


@pytest.mark.parametrize("group", [main, *(found for found in COMMANDS.values() if isinstance(found, LazyGroup))])
def test_the_line_shown_for_a_command_agrees_with_its_own_help(group: LazyGroup) -> None:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        shown = group.table[name][1].rstrip(".")
        assert (command.help or "").replace("\n", " ").startswith(shown), f"{name}: {shown}"


@pytest.mark.parametrize("name", [field.name for field in fields(Settings)])
def test_every_setting_is_documented(name: str) -> None:
    assert f"## {PREFIX}{name.upper()}\n" in (DOCS / "settings.md").read_text()


def test_every_variable_of_the_command_line_is_documented() -> None:
    config = (Path(__file__).parents[2] / "src/trainshed/config.py").read_text()
    read = {
        word for word in ("TRAINSHED_HOME", "TRAINSHED_PROJECT", "TRAINSHED_URL", "TRAINSHED_TOKEN") if word in config
    }
    assert read == set(CLIENT_VARIABLES)
