"""jobs stats."""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator, Sequence
from typing import Any

import click

from trainshed.cli.jobs import charts
from trainshed.cli.toolkit.lazy_group import Command
from trainshed.cli.toolkit.options import WordChoice, project_option, session
from trainshed.cli.toolkit.output import json_text, say, table_text
from trainshed.client.job_format import cores, duration, number, rate, size
from trainshed.client.job_reader import stats as series_of
from trainshed.domain.times import parse_rfc3339

_HEIGHT = 6
_HEADINGS = ("REPLICA", "CPU_MEAN", "CPU_MAX", "MEMORY_MEAN", "MEMORY_MAX")


@click.command(cls=Command)
@click.argument("job")
@project_option
@click.option("--plot", is_flag=True, help="Draw charts: CPU, memory, and what the training measured.")
@click.option(
    "--points",
    type=click.IntRange(2, 1000),
    default=300,
    show_default=True,
    metavar="N",
    help="At most so many points a series.",
)
@click.option(
    "--format",
    "format",
    type=WordChoice("table", "json"),
    default="table",
    show_default=True,
    help="table or json; JSON has the whole series.",
)
def stats(job: str, project: str | None, plot: bool, points: int, format: str) -> None:
    """Show the CPU and memory of each replica, while a job runs and afterwards.

    100 % of CPU is one core. Memory is that of a replica with all processes that it started.

    \b
    Example:
      trainshed jobs stats my_job --plot
      trainshed jobs stats my_job --format json
    """
    found = series_of(session(project), job, points)
    if format == "json":
        click.echo(json_text(found))
        return
    sampled = [replica for replica in found["replicas"] if replica["cpu"]["value"]]
    if sampled:
        click.echo(table_text([_row(replica) for replica in sampled], _HEADINGS))
    else:
        say("There are no samples of this job: they are taken once a second while its replicas run.")
    if plot:
        width = max(40, min(shutil.get_terminal_size().columns, 120))
        for line in (*_use(sampled, width), *_curves(found["metrics"], width)):
            click.echo(line)
    if found["elapsed_s"] is not None:
        ran = "has run" if found["state"] == "RUNNING" else "ran"
        say(f"\nJob [{job}] is {found['state']}; it {ran} for {duration(found['elapsed_s'])}.")


def _row(replica: dict[str, Any]) -> list[str]:
    cpu, memory = replica["cpu"], replica["memory_bytes"]
    return [replica["name"], cores(cpu["mean"]), cores(cpu["max"]), size(memory["mean"]), size(memory["max"])]


def _use(replicas: Sequence[dict[str, Any]], width: int) -> Iterator[str]:
    """A row of blocks for each replica, all of them over the same time and to the same scale."""
    if not replicas:
        return
    times = {replica["name"]: _seconds(replica["cpu"]["time"]) for replica in replicas}
    span = (min(each[0] for each in times.values()), max(each[-1] for each in times.values()))
    name_width = max(len(name) for name in times)
    row = width - name_width - 14
    for title, key, show in (("CPU", "cpu", cores), ("Memory", "memory_bytes", size)):
        top = max(replica[key]["max"] for replica in replicas)
        over = duration(span[1] - span[0])
        yield f"\n{title} over {over}: a full block is {show(top)}, and each row ends with its last value"
        for replica in replicas:
            seconds = times[replica["name"]]
            spread = charts.spread(seconds, replica[key]["value"], span=span, width=row)
            gap = math.ceil(row / max(1, len(seconds))) + 1
            drawn = charts.blocks(charts.bridged(spread, longest=gap), top=top)
            yield f"{replica['name']:{name_width}}  {drawn}  {show(replica[key]['value'][-1])}".rstrip()


def _curves(metrics: Sequence[dict[str, Any]], width: int) -> Iterator[str]:
    for metric in metrics:
        points = [
            (step, value)
            for step, value in zip(metric["step"], metric["value"], strict=True)
            if isinstance(value, int | float)
        ]
        if len(points) < 2:
            continue
        xs, ys = [float(step) for step, _ in points], [value for _, value in points]
        show = rate if metric["name"] == "steps_per_s" else number
        title = "steps/s" if metric["name"] == "steps_per_s" else metric["name"]
        title += " of evaluations" if metric["evaluation"] else ""
        yield f"\n{title.capitalize()} by {metric['unit']}: the last is {show(ys[-1])}"
        yield from _framed(charts.plot(xs, ys, width=width - 12, height=_HEIGHT), (show(max(ys)), show(min(ys))), xs)


def _framed(rows: Sequence[str], labels: tuple[str, str], xs: Sequence[float]) -> Iterator[str]:
    high, low = labels
    marks = {0: high, len(rows) - 1: low} if high != low else {len(rows) // 2: high}
    for index, row in enumerate(rows):
        label = marks.get(index, "")
        yield f"{label:>9} │{row}".rstrip()
    first, last = f"{min(xs):,.0f}", f"{max(xs):,.0f}"
    yield f"{'':9} └{'─' * len(rows[0])}"
    yield f"{'':11}{first}{last:>{max(1, len(rows[0]) - len(first))}}"


def _seconds(times: Sequence[str]) -> list[float]:
    return [parse_rfc3339(time) / 1e6 for time in times]
