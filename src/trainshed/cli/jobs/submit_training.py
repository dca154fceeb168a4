"""jobs submit training: build the package, upload it, create the job, and optionally follow it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click

from trainshed.cli.jobs.commands import fetch
from trainshed.cli.jobs.logs import show_stream
from trainshed.cli.jobs.training_body import check_flags, job_body
from trainshed.cli.toolkit.lazy_group import Command
from trainshed.cli.toolkit.options import (
    CommandContext,
    KeyValues,
    Names,
    WordChoice,
    format_option,
    job_command,
    project_option,
    session,
)
from trainshed.cli.toolkit.output import local_time, say, show_one
from trainshed.client.job_reader import entries
from trainshed.client.submission import check_runnable, create_job, packages, read_config, upload
from trainshed.domain.uris import bucket_of, is_uri, uri_parts

_BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]")


class BucketName(click.ParamType[str]):
    """`gs://bucket`: a bucket and nothing below it."""

    name = "gs://BUCKET"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        name = bucket_of(str(value))
        if not _BUCKET.fullmatch(name):
            self.fail(f"Invalid bucket name [{name}]: it must be a bucket alone, such as gs://my-bucket.", param, ctx)
        return f"gs://{name}"


class ObjectPath(click.ParamType[str]):
    """`gs://bucket/path`."""

    name = "gs://BUCKET/PATH"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not is_uri(str(value)) or not uri_parts(str(value))[0]:
            self.fail("Must be of form gs://bucket/object", param, ctx)
        return str(value)


class SubmitCommand(Command):
    """A command whose words after `--` go to the user's code unparsed."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        split = args.index("--") if "--" in args else len(args)
        ctx.meta["user_args"] = tuple(args[split + 1 :])
        return super().parse_args(ctx, args[:split])

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "[-- USER_ARGS ...]"]


def _replica_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the flags that each type of replica has."""
    for role, who in (("parameter-server", "parameter servers"), ("worker", "workers"), ("master", "the master")):
        command = click.option(f"--{role}-image-uri", metavar="URI", help=f"Container image for {who}.")(command)
        command = click.option(
            f"--{role}-accelerator", type=KeyValues(), metavar="count=N,type=TYPE", help=f"Accelerators for {who}."
        )(command)
        command = click.option(f"--{role}-machine-type", metavar="TYPE", help=f"Machine type of {who}.")(command)
        if role != "master":
            command = click.option(f"--{role}-count", type=click.IntRange(0), metavar="N", help=f"How many {who}.")(
                command
            )
    return command


def _key_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for name, what in (("project", "project"), ("location", "location"), ("keyring", "key ring"), ("key", "key")):
        command = click.option(f"--kms-{name}", metavar="NAME", help=f"Customer-managed encryption: the {what}.")(
            command
        )
    return command


@click.command(cls=SubmitCommand)
@click.argument("job")
@project_option
@click.option("--package-path", type=Path, metavar="DIR", help="The trainer's package: a folder with __init__.py.")
@click.option("--packages", type=Names(), metavar="FILE,...", help="More packages: local archives or gs:// names.")
@click.option("--module-name", metavar="MODULE", help="The module to run, such as trainer.task.")
@click.option("--staging-bucket", type=BucketName(), metavar="gs://BUCKET", help="Where packages are uploaded to.")
@click.option(
    "--job-dir",
    type=ObjectPath(),
    metavar="gs://BUCKET/PATH",
    help="Where output goes; the trainer gets it as --job-dir.",
)
@click.option("--runtime-version", metavar="VERSION", help="The runtime; `trainshed runtimes list` shows them.")
@click.option("--python-version", metavar="VERSION", help="The Python version, such as 3.7.")
@click.option("--region", metavar="REGION", help="Stored with the job, without effect. Default: us-central1.")
@click.option("--config", type=Path, metavar="FILE", help="A Job in YAML or JSON. Flags override it.")
@click.option(
    "--scale-tier",
    type=WordChoice("basic", "basic-gpu", "basic-tpu", "custom", "premium-1", "standard-1"),
    metavar="TIER",
    help="Which replicas, and how many: basic, basic-gpu, basic-tpu, custom, premium-1 or standard-1.",
)
@_replica_options
@click.option("--use-chief-in-tf-config", type=bool, metavar="BOOL", help="Call the master `chief` in TF_CONFIG.")
@click.option("--labels", type=KeyValues(), help="Labels for the job.")
@click.option(
    "--engine",
    metavar="NAME",
    help="Where the job runs: local or ray. Default: the server's setting `engine`. Sets the label trainshed-engine.",
)
@click.option(
    "--keep-trials",
    type=click.IntRange(1),
    metavar="N",
    help="Of a search: remove the folders of all trials but the N best. Sets the label trainshed-keep-trials.",
)
@click.option("--service-account", metavar="EMAIL", help="Rejected: a job runs as the user who runs the server.")
@click.option("--enable-web-access/--no-enable-web-access", default=None, help="Ask for a shell in the replicas.")
@_key_options
@click.option("--async", "async_", is_flag=True, help="Return once the job is submitted. This is the default.")
@click.option("--stream-logs", is_flag=True, help="Show the log until the job ends; exit status 1 unless it succeeds.")
@format_option
@click.pass_context
def training(ctx: click.Context, /, job: str, project: str | None, format: str | None, **flags: Any) -> None:
    """Submit a training job. What stands after -- goes to the trainer.

    \b
    Example:
      trainshed jobs submit training my_job --package-path trainer --module-name trainer.task \\
          --staging-bucket gs://my-bucket --job-dir gs://my-bucket/my_job --runtime-version 2.21 \\
          --stream-logs -- --train_steps 5000
    """
    check_flags(flags)
    context = session(project)
    config = read_config(flags["config"]) if flags["config"] else {}
    with ExitStack() as stack:
        files, remote = packages(stack, package_path=flags["package_path"], arguments=flags["packages"] or ())
        names = _upload_names(files, job, flags, config)
        parts = {"flags": flags | {"project": context.project}, "config": config}
        body = job_body(job, package_uris=[*remote, *names.values()], user_args=ctx.meta["user_args"], **parts)
        check_runnable(body)
        upload(context, names)
    finish(ctx, context, create_job(context, body), stream=flags["stream_logs"], format=format)


def finish(
    ctx: click.Context, context: CommandContext, job_body: dict[str, Any], *, stream: bool, format: str | None
) -> None:
    """Report a new job. With `stream`, show its log until it ends, and exit with 1 unless it succeeds."""
    job = job_body["jobId"]
    say(f"Job [{job}] submitted successfully.")
    if not stream:
        say(
            "Your job is still active. You may view the status of your job with the command\n\n"
            f"  $ {job_command('describe', job)}\n\nor continue streaming the logs with the command\n\n"
            f"  $ {job_command('stream-logs', job)}"
        )
        show_one(brief(job_body), format=format)
        return
    show_stream(entries(context, job, follow=True), job, show=say)
    final_job = fetch(context, job)
    show_one(brief(final_job), format=format)
    if final_job["state"] != "SUCCEEDED":
        ctx.exit(1)


def brief(job: dict[str, Any]) -> dict[str, Any]:
    """Return the fields that are shown of a new job, with local times."""
    times = {name: local_time(job[name]) for name in ("startTime", "endTime") if job.get(name)}
    return {"jobId": job["jobId"], "state": job["state"]} | times


def _upload_names(files: Sequence[Path], job: str, flags: dict[str, Any], config: dict[str, Any]) -> dict[Path, str]:
    if not files:
        return {}
    from trainshed.packaging import upload_names

    job_dir = flags["job_dir"] or (config.get("trainingInput") or {}).get("jobDir")
    return upload_names(files, job_id=job, staging_bucket=flags["staging_bucket"], job_dir=job_dir)
