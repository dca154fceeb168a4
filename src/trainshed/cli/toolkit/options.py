"""Options that many commands share, and the context that they create."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import click

from trainshed.cli.toolkit.lazy_group import PROJECT
from trainshed.cli.toolkit.output import say
from trainshed.client import Client, Storage, connect
from trainshed.config import ClientSettings, environment
from trainshed.domain import names
from trainshed.errors import CannotProceedError

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class CommandContext:
    """The settings, project and client of a command. It finds the server at the first request."""

    settings: ClientSettings
    project: str

    @cached_property
    def client(self) -> Client:
        """The client. It is closed when the command ends."""
        client = connect(self.settings)
        click.get_current_context().call_on_close(client.close)
        return client

    @cached_property
    def storage(self) -> Storage:
        return Storage(self.client)

    def ml(self, rest: str) -> str:
        """Return a path of the ml API in this project."""
        return f"/v1/projects/{self.project}/{rest}"


def session(project: str | None = None) -> CommandContext:
    """Return the context of the current command.

    The project is its `--project`, else the one before the command, else that of the settings.
    """
    settings = ClientSettings.read(environment())
    context = click.get_current_context()
    project_id = project or context.find_root().params.get("project") or settings.project
    context.meta[PROJECT] = names.project_id(project_id)
    return CommandContext(settings, project_id)


def project_option(command: F) -> F:
    return click.option(
        "--project", metavar="ID", help="The project; TRAINSHED_PROJECT or `trainshed config set project` otherwise."
    )(command)


def region_option(command: F) -> F:
    """Accept --region, as gcloud does. There it chooses an endpoint, and here there is one."""
    return click.option(
        "--region",
        metavar="REGION",
        expose_value=False,
        help="Accepted as in gcloud, without effect: there is one endpoint.",
    )(command)


def format_option(command: F) -> F:
    return click.option(
        "--format",
        "format",
        metavar="FORMAT",
        help="json, yaml, table, csv(FIELD,...), table(FIELD,...) or value(FIELD,...).",
    )(command)


def listing_options(command: F) -> F:
    """Add --filter, --sort-by and --limit, as on every list command."""
    for option in (
        click.option("--limit", type=click.IntRange(1), help="Maximum number of items."),
        click.option("--sort-by", metavar="FIELD,...", help="Sort by these fields; ~FIELD sorts downwards."),
        click.option("--filter", "filter", metavar="EXPRESSION", help="List only what matches, such as state=FAILED."),
    ):
        command = option(command)
    return command


def resource_listing_options(command: F) -> F:
    """Add the same with --page-size and --uri, for resources with pages and URLs."""
    for option in (
        click.option("--uri", is_flag=True, help="Print their URLs."),
        click.option("--page-size", type=click.IntRange(1, 100), default=100, help="Items per request to the server."),
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
    if prefix := re.match(r"\^([^^]+)\^", text):
        separator, text = prefix[1], text[prefix.end() :]
    return [part for part in text.split(separator) if part]


class WordChoice(click.ParamType[str]):
    """One of several words; case does not matter, nor - or _."""

    def __init__(self, *words: str) -> None:
        self.words = words
        self.name = "|".join(words)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        word = str(value).lower().replace("_", "-")
        if word not in self.words:
            self.fail(f"Invalid choice: '{value}'. Valid choices are [{', '.join(self.words)}].", param, ctx)
        return word


def job_command(verb: str, job: str) -> str:
    """Return the command line of another command on a job, in the words of the program that the user called."""
    words = click.get_current_context().command_path.split()
    program = words[: words.index("jobs")] if "jobs" in words else ["trainshed"]
    return " ".join((*program, "jobs", verb, job))


def quiet_option(command: F) -> F:
    return click.option("-q", "--quiet", is_flag=True, help="Don't ask for confirmation.")(command)


def is_quiet(quiet: bool) -> bool:
    """Return whether -q was given, to this command or before it."""
    return quiet or bool(click.get_current_context().find_root().params.get("quiet"))


def confirm(warning: str, *, quiet: bool, unattended: str = "") -> None:
    """Show the warning and ask for confirmation, on a terminal and on a pipe, as gcloud does.

    An empty line means yes, and so does the end of the input, unless `unattended` has a sentence for that case. Raises
    `CannotProceedError` if the answer is no, and with that sentence.
    """
    if is_quiet(quiet):
        return
    say(warning)
    click.echo("\nDo you want to continue (Y/n)?  ", nl=False, err=True)
    while line := sys.stdin.readline():
        answer = line.strip().lower()
        if answer in ("", "y", "yes"):
            return
        if answer in ("n", "no"):
            raise CannotProceedError("Aborted by user.")
        click.echo("Please enter 'y' or 'n':  ", nl=False, err=True)
    say("")
    if unattended:
        raise CannotProceedError(unattended)


def label_options(command: F) -> F:
    for option in (
        click.option("--clear-labels", is_flag=True, help="Remove all labels first."),
        click.option("--remove-labels", type=Names(), help="Labels to remove."),
        click.option("--update-labels", type=KeyValues(), help="Labels to set; others stay."),
    ):
        command = option(command)
    return command


def changes_labels(change: Mapping[str, Any]) -> bool:
    """Return whether the options change labels. Raises a usage error if they contradict each other."""
    if change["clear_labels"] and change["remove_labels"]:
        raise click.UsageError("--clear-labels and --remove-labels can't be given together.")
    return bool(change["update_labels"] or change["remove_labels"] or change["clear_labels"])


def label_patch(before: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a PATCH body for labels. It has the etag of `before`, so that no concurrent change is lost."""
    removals = change["remove_labels"] or ()
    labels = {} if change["clear_labels"] else {k: v for k, v in before.get("labels", {}).items() if k not in removals}
    body: dict[str, Any] = {"labels": labels | (change["update_labels"] or {})}
    return body | ({"etag": before["etag"]} if before.get("etag") else {})
