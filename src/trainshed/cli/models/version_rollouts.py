"""versions rollout and list-rollouts."""

from __future__ import annotations

import re
import sys
import time
from typing import Any

import click

from trainshed.cli.models.commands import native_path_of
from trainshed.cli.models.versions import model_option
from trainshed.cli.toolkit.lazy_group import Command
from trainshed.cli.toolkit.options import CommandContext, format_option, project_option, session
from trainshed.cli.toolkit.output import Column, say, show_list, show_one
from trainshed.errors import NotFoundError, TrainshedError

POLL_INTERVAL_S = 1.0
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)([smhd])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_COLUMNS = (
    Column("ID", "id"),
    Column("VERSION", "version"),
    Column("BASELINE", "baseline"),
    Column("STATE", "state"),
    Column("REASON", "reason"),
)


class StageTime(click.ParamType[float]):
    """`10m`."""

    name = "DURATION"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        if (match := _DURATION.fullmatch(str(value))) is None:
            self.fail(f"[{value}] is not a duration such as 90s, 10m or 2h.", param, ctx)
        return float(match[1]) * _SECONDS[match[2]]


class Steps(click.ParamType[tuple[int, ...]]):
    """`1,10,50,100`."""

    name = "PERCENT,..."

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        try:
            return tuple(int(each) for each in str(value).split(","))
        except ValueError:
            self.fail(f"[{value}] must be whole percentages such as 1,10,50,100.", param, ctx)


@click.command(cls=Command)
@click.argument("version")
@model_option
@click.option("--shadow", type=StageTime(), help="First copy requests to the version for so long. Default: not at all.")
@click.option(
    "--shadow-percent", type=click.IntRange(1, 100), metavar="PERCENT", help="Of the requests, copied. Default: 100."
)
@click.option("--steps", type=Steps(), help="The shares of the requests that it gets. Default: 1,10,50,100.")
@click.option("--step-time", type=StageTime(), help="How long each step takes at least. Default: 5m.")
@click.option(
    "--abort-if",
    multiple=True,
    metavar="CONDITION",
    help="Roll back if this is true: error_rate>0.5%, error_rate>2x, p99>1.5x, p95>200ms, changed>1%. Repeatable.",
)
@click.option(
    "--min-requests",
    type=click.IntRange(1),
    metavar="N",
    help="Requests that judge a stage. Default: 200.",
)
@click.option("--async", "async_", is_flag=True, help="Return at once. The rollout goes on in the server.")
@click.option("--show", "action", flag_value="show", help="Show the version's last rollout.")
@click.option("--stop", "action", flag_value="stop", help="Stop the rollout: all requests go to the version of before.")
@click.option("--promote", "action", flag_value="promote", help="Make the version the default now.")
@project_option
@format_option
def rollout(
    version: str,
    model: str,
    action: str | None,
    async_: bool,
    project: str | None,
    format: str | None,
    **plan: Any,
) -> None:
    """Roll a version out by stages, and back by itself if a condition says so.

    The version gets shadow traffic first: copies of requests, whose answers are compared and thrown away. Then it gets
    a growing share of the requests that name no version, and in the end it becomes the default. Exits with 0 if it
    does, else with 1. Ctrl-C ends the watching and leaves the rollout alone.

    \b
    Example:
      trainshed versions rollout v2 --model MNIST --shadow 10m --steps 1,10,50,100 \\
          --abort-if 'error_rate>0.5%' --abort-if 'p99>1.5x'
      trainshed versions rollout v2 --model MNIST --stop
    """
    context = session(project)
    path = f"{native_path_of(context, model)}/rollouts"
    given = {name: value for name, value in plan.items() if value not in (None, ())}
    if action is not None:
        if given or async_:
            raise click.UsageError(f"--{action} goes without the options of a new rollout.")
        last = _last(context, path, version, model)
        if action != "show":
            last = context.client.call("POST", f"{path}/{last['id']}:{action}", body={})
        show_one(last, format=format, columns=_COLUMNS)
        return
    started = context.client.call("POST", path, body=_body(version, given))
    if not async_:
        started = _watch(context, path, started, model)
    show_one(started, format=format, columns=_COLUMNS)
    if started["state"] in ("ROLLED_BACK", "STOPPED"):
        raise TrainshedError(f"Version [{version}] is not the default of model [{model}]: {started['reason']}")


@click.command("list-rollouts", cls=Command)
@model_option
@project_option
@format_option
def list_rollouts(model: str, project: str | None, format: str | None) -> None:
    """List the rollouts of a model, newest first.

    \b
    Example:
      trainshed versions list-rollouts --model MNIST
    """
    context = session(project)
    listed = context.client.call("GET", f"{native_path_of(context, model)}/rollouts")
    show_list(listed["rollouts"], format=format, columns=_COLUMNS)


def _body(version: str, given: dict[str, Any]) -> dict[str, Any]:
    names = {
        "shadow": "shadowSeconds",
        "shadow_percent": "shadowPercent",
        "steps": "steps",
        "step_time": "stepSeconds",
        "abort_if": "abortIf",
        "min_requests": "minRequests",
    }
    values = {names[name]: list(value) if isinstance(value, tuple) else value for name, value in given.items()}
    return {"version": version, **values}


def _last(context: CommandContext, path: str, version: str, model: str) -> dict[str, Any]:
    """The newest rollout of a version."""
    for rollout in context.client.call("GET", path)["rollouts"]:
        if rollout["version"] == version:
            found: dict[str, Any] = rollout
            return found
    raise NotFoundError(f"Version [{version}] of model [{model}] was never rolled out.")


def _watch(context: CommandContext, path: str, rollout: dict[str, Any], model: str) -> dict[str, Any]:
    """Say what a rollout does until it ends. Returns it as it is then."""
    told, last_line = 0, ""
    try:
        while True:
            for event in rollout["events"][told:]:
                say(event["message"])
            told = len(rollout["events"])
            if rollout["state"] != "RUNNING":
                return rollout
            if (line := progress_line(rollout)) != last_line:
                last_line = line
                click.echo(f"\r{line:<100}" if _on_terminal() else line, nl=not _on_terminal(), err=True)
            time.sleep(POLL_INTERVAL_S)
            rollout = context.client.call("GET", f"{path}/{rollout['id']}")
            if _on_terminal() and len(rollout["events"]) > told:
                say("")
    except KeyboardInterrupt:
        say(
            f"\nThe rollout goes on. Look at it with: trainshed versions rollout {rollout['version']} --model {model} "
            f"--show"
        )
        click.get_current_context().exit(130)


def _on_terminal() -> bool:
    return sys.stderr.isatty()


def progress_line(rollout: dict[str, Any]) -> str:
    """What the present stage has measured, in a line."""
    stage, measured = rollout["stages"][rollout["stage"]], rollout["measured"]
    name = f"shadow {stage['percent']} %" if stage["kind"] == "SHADOW" else f"{stage['percent']} %"
    new = measured["version"]
    changed = f", {new['changed']}/{new['compared']} changed" if stage["kind"] == "SHADOW" else ""
    return (
        f"[{rollout['stage'] + 1}/{len(rollout['stages'])}] {name}: {new['requests']} requests, {new['errors']} failed"
        f"{changed}, p99 {new['p99Ms']:.1f} ms ({rollout['baseline']}: {measured['baseline']['p99Ms']:.1f} ms). "
        f"{rollout['waitsFor']}"
    )
