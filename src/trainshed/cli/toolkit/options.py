"""Options that many commands share, and the session they lead to."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import click

from trainshed.cli.toolkit.lazy_group import PROJECT
from trainshed.client import Client, Storage, connect
from trainshed.config import ClientSettings, environment
from trainshed.domain import names

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class CommandContext:
    """What a command needs to do its work. The server is looked for when it is first spoken to."""

    settings: ClientSettings
    project: str

    @cached_property
    def client(self) -> Client:
        """Closed when the command ends."""
        client = connect(self.settings)
        click.get_current_context().call_on_close(client.close)
        return client

    @cached_property
    def storage(self) -> Storage:
        return Storage(self.client)

    def ml(self, rest: str) -> str:
        """A path of the ml API in this project."""
        return f"/v1/projects/{self.project}/{rest}"


def session(project: str | None = None) -> CommandContext:
    """The session of the command that runs: its `--project`, else the one before the command, else the settings'."""
    settings = ClientSettings.read(environment())
    context = click.get_current_context()
    given = project or context.find_root().params.get("project") or settings.project
    context.meta[PROJECT] = names.project_id(given)
    return CommandContext(settings, given)


def project_option(command: F) -> F:
    return click.option(
        "--project", metavar="ID", help="The project; TRAINSHED_PROJECT or `trainshed config set project` otherwise."
    )(command)


def region_option(command: F) -> F:
    """For command lines written for gcloud: the region chose an endpoint there, and there is one here."""
    return click.option(
        "--region", metavar="REGION", expose_value=False, help="Accepted as in gcloud; there is one endpoint here."
    )(command)


def format_option(command: F) -> F:
    return click.option(
        "--format",
        "format",
        metavar="FORMAT",
        help="json, yaml, table, csv(FIELD,...), table(FIELD,...) or value(FIELD,...).",
    )(command)


def listing_options(command: F) -> F:
    """--filter, --sort-by and --limit, as on every listing command."""
    for option in (
        click.option("--limit", type=click.IntRange(1), help="List no more than this many."),
        click.option("--sort-by", metavar="FIELD,...", help="Sort by these fields; ~FIELD sorts downwards."),
        click.option("--filter", "filter", metavar="EXPRESSION", help="List only what matches, such as state=FAILED."),
    ):
        command = option(command)
    return command


def resource_listing_options(command: F) -> F:
    """The same with --page-size and --uri, for what has pages and URLs."""
    for option in (
        click.option("--uri", is_flag=True, help="Print their URLs."),
        click.option(
            "--page-size", type=click.IntRange(1, 100), default=100, help="Ask the server for this many at a time."
        ),
    ):
        command = option(command)
    return listing_options(command)


class KeyValues(click.ParamType[dict[str, str]]):
    """`a=1,b=2` as a dict. `^;^a=1;b=2` chooses another separator, as gcloud does."""

    name = "KEY=VALUE,..."

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> dict[str, str]:
        if isinstance(value, dict):
            return value
        pairs = split_list(value)
        if bad := [pair for pair in pairs if "=" not in pair]:
            self.fail(f"Bad syntax for dict arg: [{bad[0]}]. Write KEY=VALUE.", param, ctx)
        return {key.strip(): text for key, _, text in (pair.partition("=") for pair in pairs)}


class Names(click.ParamType[tuple[str, ...]]):
    """`a,b` as a tuple."""

    name = "NAME,..."

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        return tuple(split_list(value)) if isinstance(value, str) else value


class Ports(click.ParamType[tuple[int, ...]]):
    """`8080,8081` as a tuple of numbers."""

    name = "PORT,..."

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        if not isinstance(value, str):
            return tuple(value)
        words = split_list(value)
        if bad := [word for word in words if not word.isascii() or not word.isdigit() or not 0 < int(word) < 65_536]:
            self.fail(f"[{bad[0]}] is not a port: those are numbers from 1 to 65535.", param, ctx)
        return tuple(int(word) for word in words)


def split_list(text: str) -> list[str]:
    separator = ","
    if chosen := re.match(r"\^([^^]+)\^", text):
        separator, text = chosen[1], text[chosen.end() :]
    return [part for part in text.split(separator) if part]


class WordChoice(click.ParamType[str]):
    """One of some words; case does not matter, nor whether - or _ is written."""

    def __init__(self, *words: str) -> None:
        self.words = words
        self.name = "|".join(words)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        word = str(value).lower().replace("_", "-")
        if word not in self.words:
            self.fail(f"Invalid choice: '{value}'. Valid choices are [{', '.join(self.words)}].", param, ctx)
        return word
