"""samples list, copy."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from trainshed.cli.toolkit.lazy_group import Command
from trainshed.cli.toolkit.options import format_option
from trainshed.cli.toolkit.output import Column, say, show_list
from trainshed.local import samples
from trainshed.sample_files import samples_folder

_COLUMNS = (Column("NAME", "name"), Column("RUNTIME", "runtime"), Column("SUMMARY", "summary"))


@click.command("list", cls=Command)
@format_option
def list_(format: str | None) -> None:
    """List the samples that come with Trainshed.

    \b
    Example:
      trainshed samples list
    """
    items = samples.catalogue(samples_folder()).values()
    rows = [{"name": item.name, "runtime": item.runtime, "summary": item.summary} for item in items]
    show_list(rows, format=format, columns=_COLUMNS)


@click.command(cls=Command)
@click.argument("name")
@click.argument("folder", type=click.Path(path_type=Path))
def copy(name: str, folder: Path) -> None:
    """Copy a sample, with its data, to a new folder, and say what to type next.

    \b
    Example:
      trainshed samples copy taxi my-taxi
    """
    sample = samples.find(samples_folder(), name)
    samples.copy(sample, folder)
    say(f"Copied the sample {name} to {folder}. Its README.md says more. Next:\n")
    click.echo("\n".join([f"cd {shlex.quote(str(folder))}", *sample.next]))
