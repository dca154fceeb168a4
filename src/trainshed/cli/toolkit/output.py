"""Output: tables, YAML, JSON and single values, in the formats that gcloud's users and scripts know."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime
from itertools import zip_longest
from typing import Any

import click

from trainshed.client import ApiError
from trainshed.domain.times import parse_rfc3339
from trainshed.errors import TrainshedError


def say(text: str) -> None:
    """Print a message for people, to stderr."""
    click.echo(text, err=True)


def sentence(exc: TrainshedError, *, project: str = "") -> str:
    """Format an error as gcloud does: `NOT_FOUND: message`, and details as YAML below."""
    if not isinstance(exc, ApiError):
        return str(exc)
    if exc.status == "ALREADY_EXISTS" and project:
        first = f"Resource in projects [{project}] is the subject of a conflict: {exc}"
    else:
        first = f"{exc.status}: {exc}"
    return "\n".join([first, yaml_text([dict(detail) for detail in exc.details]).rstrip()] if exc.details else [first])


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its heading, the dotted field it shows, and a formatter."""

    heading: str
    field: str
    show: Callable[[Any], str] = lambda value: text_of(value)


def field_of(item: Any, path: str) -> Any:
    """Return `trainingInput.args[0]` of an item, or None if it is missing. A dot always separates names."""
    value = item
    for name in re.findall(r"[^.\[\]]+", path):
        if isinstance(value, Mapping):
            value = value.get(name)
        elif isinstance(value, Sequence) and not isinstance(value, str) and re.fullmatch(r"-?\d+", name):
            value = value[int(name)] if -len(value) <= int(name) < len(value) else None
        else:
            return None
    return value


def text_of(value: Any) -> str:
    """Format a value as one cell."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return str(value)
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return ";".join(value)
    if isinstance(value, Mapping) and all(isinstance(item, str) for item in value.values()):
        return ";".join(f"{key}={item}" for key, item in value.items())
    return json.dumps(value) if isinstance(value, list | Mapping) else str(value)


def local_time(value: Any) -> str:
    """Format an RFC 3339 time as local time: 2020-03-27T11:57:55."""
    if not value:
        return ""
    return datetime.fromtimestamp(parse_rfc3339(value) // 1_000_000).strftime("%Y-%m-%dT%H:%M:%S")


def table_text(rows: Iterable[Sequence[str]], headings: Sequence[str]) -> str:
    """Format a table: columns two blanks apart, no trailing blanks."""
    lines = [list(headings), *[list(row) for row in rows]]
    widths = [max(len(line[i]) for line in lines) for i in range(len(headings))]
    padded = ("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines)
    return "\n".join(line.rstrip() for line in padded)


def boxed_text(title: str, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Format a titled box, as gcloud does. A cell may have several lines."""
    lines = [line for cells in rows for line in zip_longest(*(cell.split("\n") for cell in cells), fillvalue="")]
    widths = [max(map(len, column)) for column in zip(headings, *lines, strict=True)]
    widths[-1] += max(0, len(title) + 2 - sum(width + 3 for width in widths))
    inner = sum(width + 3 for width in widths) - 1

    def rule(left: str, middle: str, right: str) -> str:
        return left + middle.join("─" * (width + 2) for width in widths) + right

    def row(texts: Sequence[str], align: Callable[[str, int], str]) -> str:
        return "│" + "│".join(f" {align(text, width)} " for text, width in zip(texts, widths, strict=True)) + "│"

    top = [f"┌{'─' * inner}┐", f"│{title.center(inner)}│", rule("├", "┬", "┤"), row(headings, str.center)]
    return "\n".join([*top, rule("├", "┼", "┤"), *(row(line, str.ljust) for line in lines), rule("└", "┴", "┘")])


def yaml_text(value: Any) -> str:
    """Format as YAML with sorted keys; multi-line strings stay readable."""
    import yaml

    class Dumper(yaml.SafeDumper):
        """Writes multi-line strings as blocks, also with blanks at the end of a line."""

        def analyze_scalar(self, scalar: str) -> Any:
            analysis = super().analyze_scalar(scalar)
            if analysis.multiline and all(line.isprintable() for line in scalar.replace("\t", " ").split("\n")):
                analysis.allow_block = True
            return analysis

    def text(dumper: yaml.SafeDumper, data: str) -> yaml.ScalarNode:
        unusual = any(
            char in "\x85\u2028\u2029\ufeff" for char in data
        )  # other line separators, which would become blanks
        style = '"' if unusual else "|" if "\n" in data else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", data, style=style)

    Dumper.add_representer(str, text)
    return str(yaml.dump(value, Dumper=Dumper, default_flow_style=False, sort_keys=True, allow_unicode=True))


def json_text(value: Any) -> str:
    return json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False)


def show_named(items: Sequence[Mapping[str, Any]], *, url: str, format: str | None, columns: Sequence[Column]) -> None:
    """Print a list of resources; with a server's `url`, only their URLs."""
    if url:
        click.echo("".join(f"{url}/v1/{item['name']}\n" for item in items), nl=False)
    else:
        show_list(items, format=format, columns=columns)


def show_list(items: Sequence[Mapping[str, Any]], *, format: str | None, columns: Sequence[Column]) -> None:
    """Print a list. An empty one says so on stderr, unless the format is JSON."""
    kind, keys = _parse_format(format or "table")
    if kind == "json":
        click.echo(json_text(list(items)))
        return
    if not items:
        say("Listed 0 items.")
        return
    if kind == "yaml":
        click.echo("---\n".join(yaml_text(dict(item)) for item in items), nl=False)
    elif kind in ("value", "get"):
        _values(items, keys)
    elif kind == "csv":
        _csv(items, keys)
    else:
        shown_columns = [_column(key) for key in keys] or list(columns)
        rows = [[column.show(field_of(item, column.field)) for column in shown_columns] for item in items]
        click.echo(table_text(rows, [column.heading for column in shown_columns]))


def show_one(item: Mapping[str, Any], *, format: str | None, columns: Sequence[Column] = ()) -> None:
    """Print one item; as YAML by default."""
    kind, _ = _parse_format(format or "yaml")
    if kind == "json":
        click.echo(json_text(dict(item)))
    elif kind == "yaml":
        click.echo(yaml_text(dict(item)), nl=False)
    else:
        shown_columns = columns or [Column(heading(key), key) for key in item]
        show_list([item], format=format, columns=shown_columns)


def _values(items: Iterable[Mapping[str, Any]], keys: Sequence[str]) -> None:
    if not keys:
        raise click.UsageError("value needs fields, such as value(jobId).")
    for item in items:
        click.echo("\t".join(text_of(field_of(item, key)) for key in keys))


def _csv(items: Iterable[Mapping[str, Any]], keys: Sequence[str]) -> None:
    import csv
    import io

    if not keys:
        raise click.UsageError("csv needs fields, such as csv(jobId,state).")
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([key.rpartition(".")[2] for key in keys])
    writer.writerows([text_of(field_of(item, key)) for key in keys] for item in items)
    click.echo(text.getvalue(), nl=False)


_FORMAT = re.compile(r"(json|yaml|table|value|get|csv)(?:\[[^\]]*\])?(?:\((.*)\))?", re.DOTALL)


def _parse_format(format: str) -> tuple[str, list[str]]:
    match = _FORMAT.fullmatch(format.strip())
    if match is None:
        raise click.UsageError(f"Unknown format [{format}]. Use json, yaml, table, csv(...), table(...) or value(...).")
    return match[1], [key.strip() for key in (match[2] or "").split(",") if key.strip()]


def _column(key: str) -> Column:
    """Parse `createTime:label=WHEN` to a column."""
    name, _, label = key.partition(":label=")
    return Column(label.strip("'\"") or heading(name), name)


def heading(key: str) -> str:
    """Turn createTime into CREATE_TIME."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", key.rpartition(".")[2]).upper()


_LINE_FRACTION = 0.1  #: of a build, between two lines


@contextmanager
def show_build(runtime: str) -> Iterator[Callable[[float, str], None]]:
    """Yield the progress callback of a build. Nothing is shown without a build."""
    with ExitStack() as stack:
        yield _bar(runtime, stack) if sys.stderr.isatty() else _lines(runtime)


def _lines(runtime: str) -> Callable[[float, str], None]:
    last_fraction = -1.0

    def report(fraction: float, text: str) -> None:
        nonlocal last_fraction
        if fraction - last_fraction >= _LINE_FRACTION:
            last_fraction = fraction
            say(f"Runtime {runtime} is built once: {fraction:4.0%}  {text}")

    return report


def _bar(runtime: str, stack: ExitStack) -> Callable[[float, str], None]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn(f"Runtime {runtime}"), BarColumn(), TextColumn("{task.percentage:3.0f} %"))
    bar = Progress(*columns, TimeElapsedColumn(), TextColumn("{task.description}"), console=Console(stderr=True))
    task = bar.add_task("", total=1.0)
    started = False

    def report(fraction: float, text: str) -> None:
        nonlocal started
        if not started:
            started = True
            stack.enter_context(bar)
        bar.update(task, completed=fraction, description=text)

    return report
