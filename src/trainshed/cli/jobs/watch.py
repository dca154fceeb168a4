"""jobs watch: a view of a job that is refreshed until the job ends."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from trainshed.cli.jobs.watch_trials import trials_line, trials_picture
from trainshed.cli.toolkit.lazy_group import Command
from trainshed.cli.toolkit.options import WordChoice, project_option, session
from trainshed.cli.toolkit.output import say
from trainshed.client.job_format import cores, duration, evaluated, facts, number, percent, rate, size
from trainshed.client.job_reader import PROGRESS_INTERVAL_S, progress_updates, trial_updates, tunes
from trainshed.domain.jobs.states import JobState

if TYPE_CHECKING:
    from rich.console import RenderableType

_LINE_INTERVAL_S = 10.0  #: between two lines without a terminal


@click.command(cls=Command)
@click.argument("job")
@project_option
@click.option(
    "--interval",
    type=click.FloatRange(min=0.2),
    metavar="SECONDS",
    help="Seconds between two updates. Default: 1 on a terminal, else 10.",
)
@click.option(
    "--format",
    "format",
    type=WordChoice("text", "json"),
    default="text",
    show_default=True,
    help="text or json; JSON is one object a line.",
)
def watch(job: str, project: str | None, interval: float | None, format: str) -> None:
    """Watch a job until it ends: its progress, and what each replica does. Of a tuning job: what each trial does.

    Exits with 0 if the job has SUCCEEDED, else with 1. Ctrl-C ends the watching and leaves the job alone. Where there
    is no terminal, lines are printed.

    \b
    Example:
      trainshed jobs watch my_job
    """
    context = session(project)
    by_replica, by_trial = (progress_updates, line_of, picture), (trial_updates, trials_line, trials_picture)
    updates, line, view = by_trial if tunes(context, job) else by_replica
    try:
        if format == "json":
            last = _print_json(updates(context, job, interval or _LINE_INTERVAL_S))
        elif sys.stdout.isatty():
            last = _show_live(updates(context, job, interval or PROGRESS_INTERVAL_S), view)
        else:
            last = _print_lines(updates(context, job, interval or _LINE_INTERVAL_S), line)
    except KeyboardInterrupt:
        say(
            f"\nJob [{job}] goes on. To go on watching it:\n\n  $ trainshed jobs watch {job}\n\n"
            f"To cancel it:\n\n  $ trainshed jobs cancel {job}"
        )
        raise click.exceptions.Exit(130) from None
    say(f"\nJob [{job}] is {last['state']}.{'' if not last['error'] else chr(10) + last['error']}")
    raise click.exceptions.Exit(0 if last["state"] == JobState.SUCCEEDED else 1)


def _print_json(updates: Iterator[dict[str, Any]]) -> dict[str, Any]:
    status: dict[str, Any] = {}
    for status in updates:
        click.echo(json.dumps(status, ensure_ascii=False))
    return status


def _print_lines(updates: Iterator[dict[str, Any]], line: Callable[[dict[str, Any], datetime], str]) -> dict[str, Any]:
    status: dict[str, Any] = {}
    for status in updates:
        click.echo(line(status, datetime.now()))
    return status


def line_of(status: dict[str, Any], now: datetime) -> str:
    """Format a line: 12:03:04  RUNNING  step 1,204 of 5,000 (24 %), loss 0.213  4 replicas run: CPU 180 %, 1.2 GiB"""
    parts = [f"{now:%H:%M:%S}", status["state"]]
    if status["progress"] is not None:
        parts.append(", ".join(facts(status["progress"])))
    elif status["waiting"]:
        parts.append(status["waiting"])
    running = [replica for replica in status["replicas"] if replica["state"] == "running"]
    if running and status["state"] == JobState.RUNNING:
        use = [replica for replica in running if replica["cpu"] is not None]
        text = f"{len(running)} {'replica runs' if len(running) == 1 else 'replicas run'}"
        if use:
            cpu, memory = sum(each["cpu"] for each in use), sum(each["memoryBytes"] for each in use)
            text += f": CPU {cores(cpu)}, {size(memory)}"
        parts.append(text)
    return "  ".join(part for part in parts if part)


def _show_live(
    updates: Iterator[dict[str, Any]], view: Callable[[dict[str, Any], int], RenderableType]
) -> dict[str, Any]:
    """Show a view that is redrawn at each update. The last one stays."""
    from rich.live import Live

    status: dict[str, Any] = {}
    with Live(auto_refresh=False) as live:
        for status in updates:
            live.update(view(status, live.console.height), refresh=True)
    return status


def picture(status: dict[str, Any], height: int) -> RenderableType:
    """Return the view: the state, a bar if the fraction is known, the metrics, and a row for each replica."""
    from rich.console import Group
    from rich.text import Text

    elapsed = f"  {duration(status['elapsedSeconds'])}" if status["elapsedSeconds"] is not None else ""
    parts: list[RenderableType] = [Text.assemble((status["job"], "bold"), f"  {status['state']}{elapsed}")]
    if (progress := status["progress"]) is not None:
        if progress["fraction"] is not None:
            parts.append(_bar(progress))
            progress = progress | {"fraction": None, "leftSeconds": None}  # the bar shows them
        lines = [", ".join(facts(progress)), evaluated(progress)]
        parts.extend(Text(line) for line in lines if line)
    if status["waiting"]:
        parts.append(Text(status["waiting"]))
    return Group(*parts, Text(""), _table(status["replicas"]))


def _bar(progress: dict[str, Any]) -> RenderableType:
    from rich.progress_bar import ProgressBar
    from rich.table import Table

    row = Table.grid(padding=(0, 1), expand=True)
    row.add_column(ratio=1)
    row.add_column(justify="right")
    left = f"about {duration(progress['leftSeconds'])} left" if progress["leftSeconds"] else ""
    row.add_row(ProgressBar(total=1.0, completed=progress["fraction"]), f"{percent(progress['fraction'])}  {left}")
    return row


def _table(replicas: list[dict[str, Any]]) -> RenderableType:
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("REPLICA", no_wrap=True)
    table.add_column("STATE")
    for heading in ("STEP", "LOSS", "STEPS/S", "CPU", "MEMORY"):
        table.add_column(heading, justify="right", no_wrap=True)
    for replica in replicas:
        restarts = f", restarted {replica['restarts']}×" if replica["restarts"] else ""
        table.add_row(
            replica["name"],
            f"{replica['status']}{restarts}",
            "-" if replica["step"] is None else f"{replica['step']:,}",
            number(replica["loss"]),
            rate(replica["localStepsPerSecond"]),
            cores(replica["cpu"]),
            size(replica["memoryBytes"]),
        )
    return table
