"""runtimes list, install, remove."""

from __future__ import annotations

import sys
import time
from typing import Any

import click

from trainshed.cli.toolkit.lazy_group import Command
from trainshed.cli.toolkit.list_filters import select
from trainshed.cli.toolkit.options import CommandContext, format_option, listing_options, session
from trainshed.cli.toolkit.output import Column, say, show_list
from trainshed.client.transport import segment
from trainshed.errors import NotFoundError, TrainshedError

_PATH = "/trainshed/v1/runtimes"
_POLL_INTERVAL_S = 0.5
_COLUMNS = (
    Column("RUNTIME", "name"),
    Column("PYTHON", "python"),
    Column("STATE", "state"),
    Column("SUMMARY", "summary"),
)


@click.command("list", cls=Command)
@listing_options
@format_option
def list_(format: str | None, **choice: Any) -> None:
    """List runtimes and their state.

    \b
    Example:
      trainshed runtimes list
    """
    show_list(select(_fetch_all(session()), **choice), format=format, columns=_COLUMNS)


def _fetch_all(context: CommandContext) -> list[dict[str, Any]]:
    runtimes: list[dict[str, Any]] = context.client.call("GET", _PATH)["runtimes"]
    return runtimes


@click.command(cls=Command)
@click.argument("runtime")
def install(runtime: str) -> None:
    """Build a runtime now, not at its first job, and show how far it is.

    \b
    Example:
      trainshed runtimes install 2.21
    """
    context = session()
    state = context.client.call("POST", f"{_PATH}/{segment(runtime)}:install", body={})
    if state["state"] == "READY":
        say(f"Runtime {runtime} is installed.")
        return
    state = _wait_with_bar(context, runtime) if sys.stderr.isatty() else _wait_with_lines(context, runtime)
    if state["state"] != "READY":
        raise TrainshedError(state.get("error") or f"Runtime {runtime} could not be built; it is {state['state']}.")
    say(f"Runtime {runtime} is installed.")


def _fetch_one(context: CommandContext, runtime: str) -> dict[str, Any]:
    for state in _fetch_all(context):
        if state["name"] == runtime:
            return state
    raise NotFoundError(f"There is no runtime {runtime} any more.")


def _wait_with_lines(context: CommandContext, runtime: str) -> dict[str, Any]:
    """Wait for the end of the build, with a line for each step."""
    last_text = ""
    while (state := _fetch_one(context, runtime))["state"] == "BUILDING":
        if state["text"] != last_text:
            last_text = state["text"]
            say(f"{state['fraction']:4.0%}  {last_text}")
        time.sleep(_POLL_INTERVAL_S)
    return state


def _wait_with_bar(context: CommandContext, runtime: str) -> dict[str, Any]:
    """Wait for the end of the build, with a progress bar."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("Runtime {task.fields[runtime]}"), BarColumn(), TextColumn("{task.percentage:3.0f} %"))
    with Progress(*columns, TimeElapsedColumn(), TextColumn("{task.description}"), console=Console(stderr=True)) as bar:
        task = bar.add_task("", total=1.0, runtime=runtime)
        while (state := _fetch_one(context, runtime))["state"] == "BUILDING":
            bar.update(task, completed=state["fraction"], description=state["text"])
            time.sleep(_POLL_INTERVAL_S)
        if state["state"] == "READY":
            bar.update(task, completed=1.0, description="")
    return state


@click.command(cls=Command)
@click.argument("runtime")
def remove(runtime: str) -> None:
    """Remove a built runtime from the disk. The next job that wants it builds it again.

    \b
    Example:
      trainshed runtimes remove 2.15
    """
    session().client.call("DELETE", f"{_PATH}/{segment(runtime)}")
    say(f"Removed runtime {runtime}.")
