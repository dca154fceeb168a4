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
_PROGRESS_AFTER_S = 10.0  #: after that progress messages are shown


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
    context = session(project)
    pages = context.client.pages(context.ml("operations"), "operations", query={"pageSize": page_size})
    show_named(select(pages, **choice), url=context.client.url if uri else "", format=format, columns=_COLUMNS)


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
    context = session(project)
    say(f"Waiting for operation [{operation}]...")
    for update in follow(context, fetch(context, operation)):
        if update.get("done"):
            break
    show_one(update, format=format, columns=_COLUMNS)
    if "error" in update:
        raise TrainshedError(str(update["error"].get("message", "The operation failed.")))


def wait_until_done(
    context: CommandContext, operation: dict[str, Any], title: str, *, progress: Callable[[], str] | None = None
) -> dict[str, Any]:
    """Wait for an operation with a line that grows: `title...`, a dot a second, `done.` or `failed.`

    Once it takes long, `progress` is called each second for a message, "" if there is none. Returns the operation.
    Raises `TrainshedError` if the operation failed.
    """
    click.echo(f"{title}...", nl=False, err=True)
    try:
        operation = _follow(context, operation, progress or (lambda: ""))
    except KeyboardInterrupt:
        say(f"\nThe operation continues. Wait for it with: trainshed operations wait {id_of(operation)}")
        click.get_current_context().exit(130)
    if "error" in operation:
        click.echo("failed.", err=True)
        raise TrainshedError(str(operation["error"].get("message", "The operation failed.")))
    click.echo("done.", err=True)
    return operation


def _follow(context: CommandContext, first: dict[str, Any], progress: Callable[[], str]) -> dict[str, Any]:
    last_text, started = "", time.monotonic()
    last_dot = started
    for operation in follow(context, first):
        if time.monotonic() - last_dot < POLL_INTERVAL_S or operation.get("done"):
            continue
        last_dot = time.monotonic()
        text = progress() if last_dot - started > _PROGRESS_AFTER_S else ""
        if text and text != last_text:
            last_text = text
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
    context = session(project)
    context.client.call("POST", context.ml(f"operations/{segment(operation)}:cancel"), body={})
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
    context = session(project)
    pages = context.client.pages(context.ml("locations"), "locations")
    columns = (Column("NAME", "name", lambda value: str(value).rpartition("/")[2]),)
    show_list(select(pages, **choice), format=format, columns=columns)
