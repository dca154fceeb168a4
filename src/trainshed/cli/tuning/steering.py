"""tuning trials, update, try, finish."""

from __future__ import annotations

from typing import Any

import click

from trainshed.cli.toolkit.lazy_group import Command
from trainshed.cli.toolkit.list_filters import select
from trainshed.cli.toolkit.options import (
    KeyValues,
    format_option,
    job_command,
    listing_options,
    project_option,
    session,
)
from trainshed.cli.toolkit.output import Column, say, show_list
from trainshed.client.context import native_job_path
from trainshed.client.trial_format import COLUMNS, best_first, trial_row
from trainshed.errors import InvalidArgumentError

_COLUMNS = tuple(Column(name.upper(), name) for name in COLUMNS)


@click.command(cls=Command)
@click.argument("job")
@project_option
@listing_options
@format_option
def trials(job: str, project: str | None, format: str | None, **choice: Any) -> None:
    """List the trials of a tuning job, the best first.

    \b
    Example:
      trainshed tuning trials my_search --limit 5
      trainshed tuning trials my_search --format "csv(trial,finalMetric.value,hyperparameters)"
    """
    context = session(project)
    search = context.client.call("GET", f"{native_job_path(context, job)}/trials")
    found = select(iter(best_first(search)), **choice)
    show_list(found if format else [trial_row(trial) for trial in found], format=format, columns=_COLUMNS)


@click.command(cls=Command)
@click.argument("job")
@project_option
@click.option("--max-trials", type=click.IntRange(1), metavar="N", help="How many trials the job has in all.")
@click.option("--add-trials", type=click.IntRange(1), metavar="N", help="How many more trials it has.")
@click.option("--parallel", type=click.IntRange(1), metavar="N", help="How many trials run at a time.")
def update(job: str, project: str | None, max_trials: int | None, add_trials: int | None, parallel: int | None) -> None:
    """Change how many trials a search has, or how many run at a time, while it runs.

    Trials that run beyond a smaller number go on.

    \b
    Example:
      trainshed tuning update my_search --add-trials 10 --parallel 4
    """
    if max_trials is not None and add_trials is not None:
        raise click.UsageError("--max-trials and --add-trials can't be given together.")
    if max_trials is add_trials is parallel is None:
        raise InvalidArgumentError("No updates requested. Give --max-trials, --add-trials or --parallel.")
    context = session(project)
    path = native_job_path(context, job)
    if add_trials is not None:
        max_trials = context.client.call("GET", f"{path}/trials")["maxTrials"] + add_trials
    body = {"maxTrials": max_trials, "maxParallelTrials": parallel}
    wanted = {name: value for name, value in body.items() if value is not None}
    now = context.client.call("POST", f"{path}:changeSearch", body=wanted)
    say(f"The search of job [{job}] has {now['maxTrials']} trials, {now['maxParallelTrials']} at a time.")


@click.command("try", cls=Command)
@click.argument("job")
@click.argument("values", type=KeyValues())
@project_option
def try_(job: str, values: dict[str, str], project: str | None) -> None:
    """Make values of your own the next trial of a search. They need not be near to what it would try.

    If no trial is left for them, the search has one more.

    \b
    Example:
      trainshed tuning try my_search learning_rate=0.01,units=64
    """
    context = session(project)
    path = f"{native_job_path(context, job)}:tryPoint"
    now = context.client.call("POST", path, body={"hyperparameters": values})
    say(f"The values wait for the next trial of job [{job}]: {len(now['points'])} waiting.")


@click.command(cls=Command)
@click.argument("job")
@project_option
def finish(job: str, project: str | None) -> None:
    """Stop all trials of a search, and keep what they have reported.

    The job SUCCEEDED then, if a trial has a value. `trainshed jobs cancel` makes it CANCELLED.

    \b
    Example:
      trainshed tuning finish my_search
    """
    context = session(project)
    context.client.call("POST", f"{native_job_path(context, job)}:finishSearch", body={})
    say(f"The search of job [{job}] ends with the trials that it has. See them with: {job_command('describe', job)}")
