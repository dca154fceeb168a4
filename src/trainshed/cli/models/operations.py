"""operations list, describe, wait, cancel; locations list."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import click

from trainshed.cli.toolkit.lazy_group import Command
from trainshed.cli.toolkit.list_filters import select
from trainshed.cli.toolkit.options import (
    CommandContext,
    format_option,
    listing_options,
    project_option,
    region_option,
    resource_listing_options,
    session,
)
from trainshed.cli.toolkit.output import Column, say, show_list, show_named, show_one
from trainshed.client.operations import POLL_INTERVAL_S, fetch, follow, id_of
from trainshed.client.transport import segment
from trainshed.errors import TrainshedError

_COLUMNS = (
    Column("NAME", "name", lambda value: str(value).rpartition("/")[2]),
    Column("OPERATION_TYPE", "metadata.operationType"),
    Column("DONE", "done"),
)
_PATIENCE_S = 10.0  #: until then a line that grows says enough


@click.command("list", cls=Command)
@project_option
@region_option
@resource_listing_options
@format_option
def list_(project: str | None, page_size: int, uri: bool, format: str | None, **choice: Any) -> None:
    """List operations.

    \b
    Example:
      trainshed operations list
    """
    here = session(project)
    found = here.client.pages(here.ml("operations"), "operations", query={"pageSize": page_size})
    show_named(select(found, **choice), url=here.client.url if uri else "", format=format, columns=_COLUMNS)


@click.command(cls=Command)
@click.argument("operation")
@project_option
@region_option
@format_option
def describe(operation: str, project: str | None, format: str | None) -> None:
    """Show one operation.

    \b
    Example:
      trainshed operations describe create_my_model_v1-1605475055000
    """
    show_one(fetch(session(project), operation), format=format, columns=_COLUMNS)


@click.command(cls=Command)
@click.argument("operation")
@project_option
@region_option
@format_option
def wait(operation: str, project: str | None, format: str | None) -> None:
    """Wait until an operation is done. Exit status 1 if it failed.

    \b
    Example:
      trainshed operations wait create_my_model_v1-1605475055000
    """
    here = session(project)
    say(f"Waiting for operation [{operation}]...")
    for found in follow(here, fetch(here, operation)):
        if found.get("done"):
            break
    show_one(found, format=format, columns=_COLUMNS)
    if "error" in found:
        raise TrainshedError(str(found["error"].get("message", "The operation failed.")))


def finished(
    here: CommandContext, operation: dict[str, Any], words: str, *, news: Callable[[], str] | None = None
) -> dict[str, Any]:
    """Wait for an operation's end with a line that grows: `words...`, a dot a second, `done.` or `failed.`

    `news` is asked each second, once it takes long, for something worth a line of its own; "" if there is nothing.
    Returns the operation, or raises what it failed with.
    """
    click.echo(f"{words}...", nl=False, err=True)
    try:
        operation = _watched(here, operation, news or (lambda: ""))
    except KeyboardInterrupt:
        say(f"\nThis goes on without you. Wait for its end with: trainshed operations wait {id_of(operation)}")
        click.get_current_context().exit(130)
    if "error" in operation:
        click.echo("failed.", err=True)
        raise TrainshedError(str(operation["error"].get("message", "The operation failed.")))
    click.echo("done.", err=True)
    return operation


def _watched(here: CommandContext, begun: dict[str, Any], news: Callable[[], str]) -> dict[str, Any]:
    told, began = "", time.monotonic()
    dotted = began
    for operation in follow(here, begun):
        if time.monotonic() - dotted < POLL_INTERVAL_S or operation.get("done"):
            continue
        dotted = time.monotonic()
        text = news() if dotted - began > _PATIENCE_S else ""
        if text and text != told:
            told = text
            click.echo(f"\n{text}", nl=False, err=True)
        click.echo(".", nl=False, err=True)
    return operation


@click.command(cls=Command)
@click.argument("operation")
@project_option
@region_option
def cancel(operation: str, project: str | None) -> None:
    """Cancel an operation.

    \b
    Example:
      trainshed operations cancel create_my_model_v1-1605475055000
    """
    here = session(project)
    here.client.call("POST", here.ml(f"operations/{segment(operation)}:cancel"), body={})
    say(f"Cancelled operation [{operation}].")


@click.command("list", cls=Command)
@project_option
@listing_options
@format_option
def locations(project: str | None, format: str | None, **choice: Any) -> None:
    """List locations.

    \b
    Example:
      trainshed locations list
    """
    here = session(project)
    found = here.client.pages(here.ml("locations"), "locations")
    columns = (Column("NAME", "name", lambda value: str(value).rpartition("/")[2]),)
    show_list(select(found, **choice), format=format, columns=columns)
