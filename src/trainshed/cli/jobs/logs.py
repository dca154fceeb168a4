"""jobs stream-logs and logs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import click

from trainshed.cli.toolkit.lazy_group import Command
from trainshed.cli.toolkit.options import WordChoice, job_command, project_option, session
from trainshed.cli.toolkit.output import say
from trainshed.client.job_format import entry_lines
from trainshed.client.job_reader import entries
from trainshed.domain.logs import parse_since
from trainshed.errors import InvalidArgumentError


def show_stream(
    stream: Iterator[dict[str, Any]], job: str, *, show: Callable[[str], None], whole: bool = False
) -> None:
    """Print a log while it is followed. Ctrl-C stops the printing and leaves the job running."""
    try:
        for entry in stream:
            for line in entry_lines(entry, whole=whole):
                show(line)
    except KeyboardInterrupt:
        say(
            f"\nJob [{job}] goes on. To go on watching it:\n\n  $ {job_command('stream-logs', job)}\n\n"
            f"To cancel it:\n\n  $ {job_command('cancel', job)}"
        )
        raise click.exceptions.Exit(130) from None


@click.command("stream-logs", cls=Command)
@click.argument("job")
@project_option
@click.option("--task-name", metavar="REPLICA", help="Only lines of this replica, such as master-replica-0.")
@click.option("--trial", type=click.IntRange(1), metavar="N", help="Only lines of this trial of a tuning job.")
@click.option(
    "--polling-interval",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="Poll at this interval. Default: lines appear as they are written.",
)
@click.option("--allow-multiline-logs", is_flag=True, help="Keep messages of several lines together.")
def stream_logs(
    job: str,
    project: str | None,
    task_name: str | None,
    trial: int | None,
    polling_interval: float | None,
    allow_multiline_logs: bool,
) -> None:
    """Show a job's log until the job ends.

    \b
    Example:
      trainshed jobs stream-logs my_job
      trainshed jobs stream-logs my_search --trial 3
    """
    query = {"replica": task_name, "trial": trial}
    stream = entries(session(project), job, query=query, follow=True, pause_s=polling_interval)
    show_stream(stream, job, show=click.echo, whole=allow_multiline_logs)


class Moment(click.ParamType[str]):
    """`10m` ago, or an RFC 3339 time; sent unchanged, because log lines have the server's clock."""

    name = "TIME"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            parse_since(str(value), now_us=0)
        except InvalidArgumentError:
            message = f"'{value}' is neither a duration such as 10m nor a time such as 2026-11-15T21:17:35Z."
            self.fail(message, param, ctx)
        return str(value)


@click.command(cls=Command)
@click.argument("job")
@project_option
@click.option("--replica", metavar="NAME", help="Only lines of this replica: master-replica-0, service.")
@click.option("--trial", type=click.IntRange(1), metavar="N", help="Only lines of this trial of a tuning job.")
@click.option("--since", type=Moment(), help="Only lines since then: 10m, 2h, or 2026-11-15T21:17:35Z.")
@click.option("--grep", metavar="REGEX", help="Only lines whose message matches.")
@click.option("--tail", type=click.IntRange(1), metavar="N", help="Only the last N of them.")
@click.option("--follow", "-f", is_flag=True, help="Follow until the job has ended.")
@click.option(
    "--format",
    "format",
    type=WordChoice("text", "json"),
    default="text",
    show_default=True,
    help="text or json; JSON is one object a line.",
)
def logs(job: str, project: str | None, follow: bool, format: str, **query: Any) -> None:
    """Show a job's log, or a part of it.

    \b
    Example:
      trainshed jobs logs my_job --replica master-replica-0 --since 10m --grep loss --tail 20
    """
    stream = entries(session(project), job, query=query, follow=follow)
    if format == "json":
        stream_json(stream)
    else:
        show_stream(stream, job, show=click.echo)


def stream_json(stream: Iterator[dict[str, Any]]) -> None:
    for entry in stream:
        click.echo(json.dumps(entry, ensure_ascii=False))
