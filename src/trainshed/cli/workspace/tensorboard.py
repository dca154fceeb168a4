"""tensorboard: the real TensorBoard, on a bucket's folder or a job's."""

from __future__ import annotations

import sys
from typing import Any

import click

from trainshed.cli.jobs.commands import fetch
from trainshed.cli.toolkit.lazy_group import Command
from trainshed.cli.toolkit.options import CommandContext, project_option, session
from trainshed.cli.toolkit.output import say, show_build
from trainshed.client import running
from trainshed.config import environment
from trainshed.errors import CannotProceedError, FailedPreconditionError
from trainshed.local import interpreters, processes
from trainshed.local.buckets import LocalBuckets
from trainshed.local.processes import check_port
from trainshed.local.tensorboard import RUNTIME, program, url_in


@click.command(cls=Command)
@click.argument("job", required=False)
@click.option("--logdir", metavar="FOLDER", help="gs://BUCKET/PATH or a folder; `one,two` or `name:one,name:two` too.")
@click.option("--port", type=click.IntRange(0, 65535), default=6006, help="Port to listen on; 0 picks a free one.")
@click.option(
    "--host", metavar="ADDRESS", default="127.0.0.1", help="Address to listen on. Default: this machine only."
)
@project_option
def tensorboard(job: str | None, logdir: str | None, port: int, host: str, project: str | None) -> None:
    """Show TensorBoard on what a training writes, while it runs and after. Ctrl-C ends it.

    Takes the name of a JOB, whose job directory it shows, or a --logdir. The first use on a machine builds the runtime
    that TensorBoard is in.

    \b
    Example:
      trainshed tensorboard my_job
      trainshed tensorboard --port 8080 --logdir gs://my-bucket/model
    """
    if (job is None) == (logdir is None):
        raise click.UsageError("Give the name of a job, or --logdir, and not both.")
    context = session(project)
    if job is not None:
        logdir = _job_dir(context, job)
    folder = _resolve(context, str(logdir))
    check_port(host, port)
    with show_build(RUNTIME) as progress:
        python, _ = interpreters.runtime_python(context.settings.home, RUNTIME, progress)
    say(f"Starting TensorBoard on {folder}")
    try:
        sys.exit(
            processes.run_gang(
                [program(python, folder, environment(), host=host, port=port)], _show, on_exit=_ignore_exit
            )
        )
    except processes.StopRequested:
        say("TensorBoard has ended.")


def _job_dir(context: CommandContext, job: str) -> str:
    body: dict[str, Any] = fetch(context, job)
    job_dir = body.get("trainingInput", {}).get("jobDir")
    if not job_dir:
        raise FailedPreconditionError(
            f"Job {job} has no job directory, so it is not known where it writes. Name the folder with --logdir."
        )
    return str(job_dir)


def _resolve(context: CommandContext, logdir: str) -> str:
    """Replace gs:// URIs in the text by paths. Raises `NotFoundError` if a bucket is not on this machine."""
    if "gs://" not in logdir:
        return logdir
    _check_here(context)
    buckets = LocalBuckets(context.settings.home)
    resolved = buckets.resolve(logdir)
    for uri in buckets.unknown:
        buckets.folder(uri)  # raises the error for it
    return resolved


def _check_here(context: CommandContext) -> None:
    url = context.settings.url
    if url is None:
        return
    local = running(context.settings.home)
    if local is None or url.rstrip("/") not in (local.url, local.tls_url):
        raise CannotProceedError(
            f"TRAINSHED_URL names the server {url}, whose buckets are not in this machine's state folder. Copy the "
            f"files with `trainshed buckets cp -r` and name the copy with --logdir, or run this where the server is."
        )


def _show(name: str, line: bytes, is_error: bool) -> None:
    text = line.decode(errors="replace").rstrip()
    url = url_in(text)
    if url:
        click.echo(f"TensorBoard is at {url} (Ctrl-C ends it)")
        sys.stdout.flush()
    else:
        say(text)


def _ignore_exit(name: str, status: int) -> None:
    """Ignore the exit: TensorBoard is the only program."""
