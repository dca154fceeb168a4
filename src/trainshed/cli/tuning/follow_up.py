"""tuning continue, train, promote."""

from __future__ import annotations

from pathlib import Path

import click

from trainshed.cli.jobs.submit_training import finish
from trainshed.cli.models.create_version import create
from trainshed.cli.toolkit.lazy_group import Command
from trainshed.cli.toolkit.options import CommandContext, format_option, project_option, session
from trainshed.cli.toolkit.output import say
from trainshed.client.submission import REGION, create_job, read_config
from trainshed.client.transport import ApiError, segment
from trainshed.client.tuning import (
    chosen_trial,
    continued_job,
    job_body,
    next_name,
    search_of,
    trained_job,
    trial_exports,
)

_NAME = click.option("--name", metavar="ID", help="The new job. Default: the name of this one, and the time.")
_TRIAL = click.option("--trial", type=click.IntRange(1), metavar="N", help="The trial. Default: the best one.")
_STREAM = click.option("--stream-logs", is_flag=True, help="Show the log until the job ends.")


@click.command("continue", cls=Command)
@click.argument("job")
@project_option
@click.option("--max-trials", type=click.IntRange(1), required=True, metavar="N", help="How many more trials.")
@click.option("--parallel", type=click.IntRange(1), metavar="N", help="How many at a time. Default: as before.")
@click.option("--config", type=Path, metavar="FILE", help="A Job in YAML or JSON, such as one with another space.")
@_NAME
@_STREAM
@format_option
@click.pass_context
def continue_(
    ctx: click.Context,
    /,
    job: str,
    project: str | None,
    max_trials: int,
    parallel: int | None,
    config: Path | None,
    name: str | None,
    stream_logs: bool,
    format: str | None,
) -> None:
    """Go on with a search that has ended, in a new job with the same package, arguments and folder.

    It knows all trials so far, and its numbers follow theirs. Parameters that are no longer in the space are left out.

    \b
    Example:
      trainshed tuning continue my_search --max-trials 20 --parallel 4
    """
    context = session(project)
    changes = read_config(config) if config else {}
    earlier = job_body(context, job)
    body = continued_job(earlier, name or next_name(job), max_trials=max_trials, parallel=parallel, config=changes)
    finish(ctx, context, create_job(context, body), stream=stream_logs, format=format)


@click.command(cls=Command)
@click.argument("job")
@project_option
@_TRIAL
@click.option("--job-dir", metavar="gs://BUCKET/PATH", help="Where output goes. Default: below that of the search.")
@_NAME
@_STREAM
@format_option
@click.pass_context
def train(
    ctx: click.Context,
    /,
    job: str,
    project: str | None,
    trial: int | None,
    job_dir: str | None,
    name: str | None,
    stream_logs: bool,
    format: str | None,
) -> None:
    """Submit a normal job with the values of the best trial.

    \b
    Example:
      trainshed tuning train my_search --stream-logs
    """
    context = session(project)
    chosen = chosen_trial(search_of(context, job), trial)
    say(f"The values are those of trial {chosen['trial']}.")
    values = chosen["hyperparameters"]
    body = trained_job(job_body(context, job), name or next_name(job), values=values, job_dir=job_dir)
    finish(ctx, context, create_job(context, body), stream=stream_logs, format=format)


@click.command(cls=Command)
@click.argument("job")
@click.option("--model", required=True, metavar="MODEL", help="The model to add the version to; made if need be.")
@click.option("--version", metavar="VERSION", help="Its name. Default: JOB_trial_N.")
@_TRIAL
@project_option
@click.pass_context
def promote(
    ctx: click.Context, /, job: str, model: str, version: str | None, trial: int | None, project: str | None
) -> None:
    """Deploy what the best trial exported as a version of a model, and wait until it is ready to predict.

    \b
    Example:
      trainshed tuning promote my_search --model digits
    """
    context = session(project)
    number = chosen_trial(search_of(context, job), trial)["trial"]
    export = trial_exports(context, job, number)[0]
    _ensure_model(context, model)
    name = version or f"{job}_trial_{number}"
    ctx.invoke(
        create,
        version=name,
        model=model,
        project=project,
        origin=export["uri"],
        runtime_version=export["runtime"] or None,
    )
    say(f"Trial {number} of job [{job}] is version [{name}] of model [{model}].")


def _ensure_model(context: CommandContext, model: str) -> None:
    try:
        context.client.call("GET", context.ml(f"models/{segment(model)}"))
    except ApiError as exc:
        if exc.code != 404:
            raise
        context.client.call("POST", context.ml("models"), body={"name": model, "regions": [REGION]})
        say(f"Created model [{model}].")
