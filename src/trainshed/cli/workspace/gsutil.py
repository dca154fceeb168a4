"""gsutil in `trainshed shell`: `trainshed buckets` under its old name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from trainshed import __version__
from trainshed.cli.buckets.commands import buckets
from trainshed.cli.toolkit.lazy_group import Command, LazyGroup, RootGroup
from trainshed.errors import CannotProceedError
from trainshed.shell import gsutil as lines

assert isinstance(buckets, LazyGroup)

TABLE: dict[str, tuple[Any, str]] = dict(buckets.table) | {
    "mkdir": ("buckets.commands:mb", "Make buckets."),
    "remove": ("buckets.commands:rm", "Remove objects, folders and buckets."),
    "version": ("workspace.gsutil:version", "Say what this is."),
    "help": ("workspace.gsutil:help_", "Show what there is."),
}


@click.group(
    cls=RootGroup,
    table=TABLE,
    aliases=("mkdir", "remove"),
    params=list(buckets.params),
    context_settings={"help_option_names": ["--help"], "max_content_width": 100},
)
def gsutil(parallel: bool, quiet: bool) -> None:
    """Trainshed's buckets in gsutil's words."""


def run(args: Sequence[str]) -> None:
    """Run a command line of gsutil, and exit with its status."""
    words = lines.parse(args)
    command = next((word for word in words if not word.startswith("-")), None)
    if command is not None and command not in TABLE:
        raise CannotProceedError(lines.refusal(command))
    gsutil.main(words, prog_name="gsutil")


@click.command(cls=Command)
def version() -> None:
    """Say what this is."""
    click.echo(f"Trainshed {__version__}, in place of gsutil")


@click.command("help", cls=Command)
@click.pass_context
def help_(ctx: click.Context) -> None:
    """Show what there is."""
    assert ctx.parent is not None
    click.echo(ctx.parent.get_help())
