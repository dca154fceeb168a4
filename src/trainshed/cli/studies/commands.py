"""studies list, describe, trials, delete."""

from __future__ import annotations

from typing import Any

import click

from trainshed.cli.toolkit.lazy_group import Command
from trainshed.cli.toolkit.list_filters import select
from trainshed.cli.toolkit.options import (
    CommandContext,
    confirm,
    format_option,
    listing_options,
    project_option,
    quiet_option,
    session,
)
from trainshed.cli.toolkit.output import Column, say, show_list, show_one
from trainshed.client.submission import REGION
from trainshed.client.transport import segment


def _last(value: object) -> str:
    return str(value).rpartition("/")[2]


_COLUMNS = (Column("NAME", "name", _last), Column("STATE", "state"), Column("CREATED", "createTime"))
_TRIAL_COLUMNS = (
    Column("TRIAL", "name", _last),
    Column("STATE", "state"),
    Column("VALUES", "parameters", lambda values: _pairs(values, "parameter")),
    Column("METRICS", "finalMeasurement.metrics", lambda values: _pairs(values, "metric")),
)


def _pairs(items: Any, key: str) -> str:
    """`rate=0.01 units=33`, of parameters or metrics."""
    shown = []
    for item in items or []:
        [value] = [each for name, each in item.items() if name != key]
        shown.append(f"{item[key]}={value:.6g}" if isinstance(value, float) else f"{item[key]}={value}")
    return " ".join(shown)


def _location_option(command: Any) -> Any:
    return click.option(
        "--region", default=REGION, show_default=True, metavar="LOCATION", help="The location in the study's name."
    )(command)


@click.command("list", cls=Command)
@project_option
@_location_option
@listing_options
@format_option
def list_(project: str | None, region: str, format: str | None, **choice: Any) -> None:
    """List studies, the newest first.

    \b
    Example:
      trainshed studies list
      trainshed studies list --region europe-west1 --format json
    """
    context = session(project)
    found = context.client.call("GET", context.ml(f"locations/{segment(region)}/studies")).get("studies", [])
    show_list(select(found, **choice), format=format, columns=_COLUMNS)


@click.command(cls=Command)
@click.argument("study")
@project_option
@_location_option
@format_option
def describe(study: str, project: str | None, region: str, format: str | None) -> None:
    """Show one study.

    \b
    Example:
      trainshed studies describe digits
    """
    context = session(project)
    show_one(context.client.call("GET", _path(context, region, study)), format=format, columns=_COLUMNS)


@click.command(cls=Command)
@click.argument("study")
@project_option
@_location_option
@listing_options
@format_option
def trials(study: str, project: str | None, region: str, format: str | None, **choice: Any) -> None:
    """List the trials of a study, with their values and their results.

    \b
    Example:
      trainshed studies trials digits --filter state=COMPLETED
    """
    context = session(project)
    found = context.client.call("GET", f"{_path(context, region, study)}/trials").get("trials", [])
    show_list(select(found, **choice), format=format, columns=_TRIAL_COLUMNS)


@click.command(cls=Command)
@click.argument("study")
@project_option
@_location_option
@quiet_option
def delete(study: str, project: str | None, region: str, quiet: bool) -> None:
    """Delete a study with all of its trials.

    \b
    Example:
      trainshed studies delete digits
    """
    context = session(project)
    confirm(f"This will delete study [{study}] with all of its trials...", quiet=quiet)
    context.client.call("DELETE", _path(context, region, study))
    say(f"Deleted study [{study}].")


def _path(context: CommandContext, region: str, study: str) -> str:
    return context.ml(f"locations/{segment(region)}/studies/{segment(study)}")
