"""network: what user code of a project reaches."""

from __future__ import annotations

import click

from trainshed.cli.toolkit.lazy_group import Command
from trainshed.cli.toolkit.options import CommandContext, WordChoice, format_option, project_option, session
from trainshed.cli.toolkit.output import Column, say, show_one
from trainshed.client.transport import segment
from trainshed.domain.access.networks import NETWORKS


@click.command(cls=Command)
@project_option
@format_option
def describe(project: str | None, format: str | None) -> None:
    """Show what user code of a project reaches. DEFAULT is True if that is the server's setting.

    \b
    Example:
      trainshed network describe --format json
    """
    context = session(project)
    body = context.client.call("GET", _path(context))
    show_one(body, format=format, columns=[Column("NETWORK", "network"), Column("DEFAULT", "default")])


@click.command("set", cls=Command)
@click.argument("network", type=WordChoice(*NETWORKS))
@project_option
def set_(network: str, project: str | None) -> None:
    """Set what user code of a project reaches: its own gang alone (none), also this server and Google's storage
    (google-storage), or also other machines (all). Jobs and hosts that run keep what they have.

    \b
    Example:
      trainshed network set google-storage
    """
    context = session(project)
    context.client.call("POST", f"{_path(context)}:set", body={"network": network})
    say(f"User code of project [{context.project}] reaches {NETWORKS[network]}, from its next start on.")


@click.command(cls=Command)
@project_option
def reset(project: str | None) -> None:
    """Let a project have the server's network.

    \b
    Example:
      trainshed network reset
    """
    context = session(project)
    body = context.client.call("POST", f"{_path(context)}:reset", body={})
    say(f"Project [{context.project}] has the server's network: {body['network']}.")


def _path(context: CommandContext) -> str:
    return f"/trainshed/v1/projects/{segment(context.project)}/network"
