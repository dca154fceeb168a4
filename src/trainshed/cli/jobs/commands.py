"""jobs list, describe, cancel, update."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from trainshed.cli.toolkit.lazy_group import Command
from trainshed.cli.toolkit.list_filters import select
from trainshed.cli.toolkit.options import (
    CommandContext,
    changes_labels,
    format_option,
    job_command,
    label_options,
    label_patch,
    project_option,
    resource_listing_options,
    session,
)
from trainshed.cli.toolkit.output import Column, boxed_text, heading, local_time, say, show_list, show_one, text_of
from trainshed.client.job_format import sentences
from trainshed.client.transport import segment
from trainshed.errors import InvalidArgumentError

COLUMNS = (Column("JOB_ID", "jobId"), Column("STATUS", "state"), Column("CREATED", "createTime", local_time))
_OVERVIEW = ("jobId", "createTime", "startTime", "endTime", "state")
_INPUT = (
    *("runtimeVersion", "pythonVersion", "region", "scaleTier", "pythonModule", "masterType"),
    *("workerType", "workerCount", "parameterServerType", "parameterServerCount", "jobDir"),
)
_OUTPUT = {"completedTrialCount": "TRIALS", "consumedMLUnits": "ML_UNITS"}  #: of a tuning job, with gcloud's headings
_TRIAL_HEADINGS = ("TRIAL", "OBJECTIVE_VALUE", "STEP", "HYPERPARAMETERS")
_PREDICTION = ("modelName", "versionName", "uri", "dataFormat", "outputPath", "batchSize", "runtimeVersion", "region")


@click.command("list", cls=Command)
@project_option
@resource_listing_options
@format_option
def list_(project: str | None, page_size: int, uri: bool, format: str | None, **choice: Any) -> None:
    """List jobs, the newest first.

    \b
    Example:
      trainshed jobs list --filter state=RUNNING --limit 10
    """
    context = session(project)
    jobs = select(context.client.pages(context.ml("jobs"), "jobs", query={"pageSize": page_size}), **choice)
    if uri:
        click.echo("".join(f"{context.client.url}{context.ml('jobs/')}{job['jobId']}\n" for job in jobs), nl=False)
    else:
        show_list(jobs, format=format, columns=COLUMNS)


@click.command(cls=Command)
@click.argument("job")
@project_option
@click.option("--summarize", is_flag=True, help="Show a summary in boxes, not everything in YAML.")
@format_option
def describe(job: str, project: str | None, summarize: bool, format: str | None) -> None:
    """Show one job.

    \b
    Example:
      trainshed jobs describe my_job
      trainshed jobs describe my_search --summarize
    """
    context = session(project)
    details = context.client.call("GET", f"/trainshed/v1/projects/{context.project}/jobs/{segment(job)}")
    job_body = details["job"]
    if summarize:
        if format is not None:
            say("WARNING: --format is ignored when --summarize is present")
        click.echo("\n".join(_summary(job_body)))
    else:
        show_one(job_body, format=format, columns=COLUMNS)
    progress_lines = sentences(details["progress"], state=job_body["state"])
    restarts = map(_sentence, details["restarts"])
    for line in (*details["notes"], *restarts, " ".join(progress_lines), details["waiting"]):
        if line:
            say(f"\n{line}")
    for hang in details["hangs"]:
        if hang["endTime"] is None:
            say(f"\n{hang['message']}\n{hang['stack']}\n{hang['remedy']}")
    if job_body["state"] == "RUNNING":
        say(f"\nWatch it with: trainshed jobs watch {job}")
    say(f"\nView job logs with: {job_command('stream-logs', job)}")


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def fetch(context: CommandContext, job: str) -> dict[str, Any]:
    body: dict[str, Any] = context.client.call("GET", context.ml(f"jobs/{segment(job)}"))
    return body


def _summary(job: dict[str, Any]) -> Iterator[str]:
    """Yield the summary of a job, a box for each part with values."""
    training, prediction = job.get("trainingInput", {}), job.get("predictionInput", {})
    image = {"imageUri": training.get("masterConfig", {}).get("imageUri")}
    output = job.get("trainingOutput", {})
    boxes = (
        ("Job Overview", {name: job.get(name) for name in _OVERVIEW}),
        ("Training Input Summary", {name: training.get(name) for name in _INPUT} | image),
        ("Prediction Input Summary", {name: prediction.get(name) for name in _PREDICTION}),
        ("Prediction Output Summary", job.get("predictionOutput", {})),
        ("Training Output Summary", {title: output.get(name) for name, title in _OUTPUT.items()}),
    )
    for title, values in boxes:
        cells = {heading(name): text_of(value) for name, value in values.items() if value not in (None, "")}
        if cells:
            yield boxed_text(title, list(cells), [list(cells.values())])
    if trials := output.get("trials"):
        yield boxed_text("Training Output Trials", _TRIAL_HEADINGS, [_trial_cells(trial) for trial in trials])
    if job.get("errorMessage"):
        yield job["errorMessage"]


def _trial_cells(trial: dict[str, Any]) -> list[str]:
    metric, values = trial.get("finalMetric", {}), trial["hyperparameters"]
    objective = f"{metric['objectiveValue']:.6g}" if metric else ""
    return [
        trial["trialId"],
        objective,
        metric.get("trainingStep", ""),
        "\n".join(f"{name}={values[name]}" for name in sorted(values)),
    ]


@click.command(cls=Command)
@click.argument("job")
@project_option
def cancel(job: str, project: str | None) -> None:
    """Cancel a job that has not ended. Its processes get SIGTERM, and SIGKILL some seconds later.

    \b
    Example:
      trainshed jobs cancel my_job
    """
    context = session(project)
    context.client.call("POST", context.ml(f"jobs/{segment(job)}:cancel"), body={})
    say(f"Job [{job}] was told to end. See how it ended with: {job_command('describe', job)}")


@click.command(cls=Command)
@click.argument("job")
@project_option
@label_options
def update(job: str, project: str | None, **change: Any) -> None:
    """Change the labels of a job.

    \b
    Example:
      trainshed jobs update my_job --update-labels team=vision --remove-labels draft
    """
    if not changes_labels(change):
        raise InvalidArgumentError("No updates requested. Give --update-labels, --remove-labels or --clear-labels.")
    context = session(project)
    body = label_patch(fetch(context, job), change)
    context.client.call("PATCH", context.ml(f"jobs/{segment(job)}"), query={"updateMask": "labels"}, body=body)
    say(f"Updated ml engine job [{job}].")


@click.command(cls=Command)
@click.argument("job")
@project_option
@click.option("--kill", "replica", metavar="REPLICA", required=True, help="The replica, such as worker-replica-0.")
@click.option(
    "--signal", "signal", metavar="NAME", default="KILL", show_default=True, help="KILL, TERM, SEGV, STOP and so on."
)
def chaos(job: str, project: str | None, replica: str, signal: str) -> None:
    """Kill a replica of a running job, to see how the job gets over it.

    \b
    Example:
      trainshed jobs chaos my_job --kill worker-replica-0
    """
    context = session(project)
    body = {"kill": replica, "signal": signal}
    done = context.client.call("POST", f"/trainshed{context.ml(f'jobs/{segment(job)}')}:chaos", body=body)
    say(
        f"Sent {done['signal']} to {done['replica']} of job [{job}]. To see what comes of it:\n\n"
        f"  $ {job_command('stream-logs', job)}\n  $ {job_command('describe', job)}"
    )
