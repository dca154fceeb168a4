"""jobs stats."""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator, Sequence
from typing import Any

import click

from trainshed.cli.toolkit.lazy_group import Command
from trainshed.cli.toolkit.options import WordChoice, project_option, session
from trainshed.cli.toolkit.output import json_text, say, table_text
from trainshed.client.job_format import cores, duration, number, rate, size
from trainshed.client.job_reader import stats as series_of
from trainshed.domain.times import parse_rfc3339

_HEIGHT = 6
_HEADINGS = ("REPLICA", "CPU_MEAN", "CPU_MAX", "MEMORY_MEAN", "MEMORY_MAX")
_BLOCKS = "▁▂▃▄▅▆▇█"
#: the bits of a braille character's dots: [column][row from the top]
_DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
_BLANK = 0x2800


@click.command(cls=Command)
@click.argument("job")
@project_option
@click.option("--plot", is_flag=True, help="Draw charts: CPU, memory and metrics of the training.")
@click.option(
    "--points",
    type=click.IntRange(2, 1000),
    default=300,
    show_default=True,
    metavar="N",
    help="Maximum number of points of a series.",
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
    series = series_of(session(project), job, points)
    if format == "json":
        click.echo(json_text(series))
        return
    sampled = [replica for replica in series["replicas"] if replica["cpu"]["value"]]
    if sampled:
        click.echo(table_text([_row(replica) for replica in sampled], _HEADINGS))
    else:
        say("There are no samples of this job: they are taken once a second while its replicas run.")
    if plot:
        width = max(40, min(shutil.get_terminal_size().columns, 120))
        for line in (*_usage_rows(sampled, width), *_curves(series["metrics"], width)):
            click.echo(line)
    if series["elapsedSeconds"] is not None:
        ran = "has run" if series["state"] == "RUNNING" else "ran"
        say(f"\nJob [{job}] is {series['state']}; it {ran} for {duration(series['elapsedSeconds'])}.")


def _row(replica: dict[str, Any]) -> list[str]:
    cpu, memory = replica["cpu"], replica["memoryBytes"]
    return [replica["name"], cores(cpu["mean"]), cores(cpu["max"]), size(memory["mean"]), size(memory["max"])]


def _usage_rows(replicas: Sequence[dict[str, Any]], width: int) -> Iterator[str]:
    """Yield a row of blocks for each replica, all with the same time span and scale."""
    if not replicas:
        return
    times = {replica["name"]: _seconds(replica["cpu"]["time"]) for replica in replicas}
    span = (min(each[0] for each in times.values()), max(each[-1] for each in times.values()))
    name_width = max(len(name) for name in times)
    row = width - name_width - 14
    for title, key, show in (("CPU", "cpu", cores), ("Memory", "memoryBytes", size)):
        top = max(replica[key]["max"] for replica in replicas)
        span_text = duration(span[1] - span[0])
        yield f"\n{title} over {span_text}: a full block is {show(top)}, and each row ends with its last value"
        for replica in replicas:
            seconds = times[replica["name"]]
            columns = spread(seconds, replica[key]["value"], span=span, width=row)
            gap = math.ceil(row / max(1, len(seconds))) + 1
            row_text = blocks(fill_gaps(columns, longest=gap), top=top)
            yield f"{replica['name']:{name_width}}  {row_text}  {show(replica[key]['value'][-1])}".rstrip()


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
        yield from _frame(plot(xs, ys, width=width - 12, height=_HEIGHT), (show(max(ys)), show(min(ys))), xs)


def _frame(rows: Sequence[str], labels: tuple[str, str], xs: Sequence[float]) -> Iterator[str]:
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


def spread(
    times: Sequence[float], values: Sequence[float], *, span: tuple[float, float], width: int
) -> list[float | None]:
    """Return the largest value in each of `width` equal parts of the span; None where there is none."""
    start, end = span
    columns: list[float | None] = [None] * width
    for time, value in zip(times, values, strict=True):
        column = min(width - 1, max(0, int((time - start) / max(end - start, 1e-9) * width)))
        before = columns[column]
        columns[column] = value if before is None else max(before, value)
    return columns


def fill_gaps(values: Sequence[float | None], *, longest: int) -> list[float | None]:
    """Fill gaps up to this length with the value before them: fewer samples than columns leave meaningless holes."""
    filled: list[float | None] = []
    last, age = None, 0
    for value in values:
        last, age = (value, 0) if value is not None else (last, age + 1)
        filled.append(last if age <= longest else None)
    return filled


def blocks(values: Sequence[float | None], *, top: float) -> str:
    """Return a row of blocks from 0 up to `top`; a blank where there is no value."""
    steps = len(_BLOCKS) - 1
    return "".join(
        " " if value is None else _BLOCKS[min(steps, max(0, round(value / top * steps) if top > 0 else 0))]
        for value in values
    )


def plot(xs: Sequence[float], ys: Sequence[float], *, width: int, height: int) -> list[str]:
    """Draw a line through the points, `height` rows of `width` characters, the largest value at the top."""
    columns, rows = width * 2, height * 4
    low, high, first, last = min(ys), max(ys), min(xs), max(xs)

    def position(x: float, y: float) -> tuple[int, int]:
        across = round((x - first) / (last - first) * (columns - 1)) if last > first else 0
        down = round((high - y) / (high - low) * (rows - 1)) if high > low else rows // 2
        return across, down

    grid = [[_BLANK] * width for _ in range(height)]
    dots = [position(x, y) for x, y in zip(xs, ys, strict=True)]
    for before, dot in zip([dots[0], *dots], dots, strict=False):
        for across, down in _line(before, dot):
            grid[down // 4][across // 2] |= _DOTS[across % 2][down % 4]
    return ["".join(map(chr, row)) for row in grid]


def _line(start: tuple[int, int], end: tuple[int, int]) -> list[tuple[int, int]]:
    """Return all dots between two, both included."""
    length = max(abs(end[0] - start[0]), abs(end[1] - start[1]), 1)
    return [
        (round(start[0] + (end[0] - start[0]) * part / length), round(start[1] + (end[1] - start[1]) * part / length))
        for part in range(length + 1)
    ]
