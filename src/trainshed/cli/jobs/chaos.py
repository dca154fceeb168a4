"""jobs chaos."""

from __future__ import annotations

import click

from trainshed.cli.toolkit.lazy_group import Command
from trainshed.cli.toolkit.options import project_option, session
from trainshed.cli.toolkit.output import say
from trainshed.client.transport import segment


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
    here = session(project)
    body = {"kill": replica, "signal": signal}
    done = here.client.call("POST", f"/trainshed{here.ml(f'jobs/{segment(job)}')}:chaos", body=body)
    say(
        f"Sent {done['signal']} to {done['replica']} of job [{job}]. To see what comes of it:\n\n"
        f"  $ trainshed jobs stream-logs {job}\n  $ trainshed jobs describe {job}"
    )
