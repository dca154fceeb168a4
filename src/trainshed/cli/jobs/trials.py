"""jobs stop-trial."""

from __future__ import annotations

import click

from trainshed.cli.toolkit.lazy_group import Command
from trainshed.cli.toolkit.options import job_command, project_option, session
from trainshed.cli.toolkit.output import say
from trainshed.client.context import native_job_path


@click.command("stop-trial", cls=Command)
@click.argument("job")
@click.argument("trial", type=click.IntRange(1))
@project_option
def stop_trial(job: str, trial: int, project: str | None) -> None:
    """Stop a trial of a tuning job, and keep what it has reported. The search goes on.

    Its processes get SIGTERM, and SIGKILL some seconds later.

    \b
    Example:
      trainshed jobs stop-trial my_search 3
    """
    context = session(project)
    context.client.call("POST", f"{native_job_path(context, job)}/trials/{trial}:stop", body={})
    say(f"Trial {trial} of job [{job}] is being stopped. See its last value with: {job_command('describe', job)}")
