"""secrets: values that jobs get and nobody reads."""

from __future__ import annotations

import sys
from typing import BinaryIO

import click

from trainshed.cli.toolkit.lazy_group import Command
from trainshed.cli.toolkit.options import confirm, format_option, project_option, quiet_option, session
from trainshed.cli.toolkit.output import Column, local_time, say, show_list
from trainshed.client.transport import segment
from trainshed.errors import CannotProceedError

_COLUMNS = (
    Column("NAME", "name"),
    Column("SET BY", "user"),
    Column("SET", "updateTime", local_time),
    Column("READABLE", "readable"),
)


@click.command("list", cls=Command)
@project_option
@format_option
def list_(project: str | None, format: str | None) -> None:
    """List the names of a project's secrets. Nobody can read their values.

    \b
    Example:
      trainshed secrets list
    """
    context = session(project)
    found = context.client.call("GET", f"/trainshed/v1/projects/{segment(context.project)}/secrets")["secrets"]
    show_list(found, format=format, columns=_COLUMNS)


@click.command("set", cls=Command)
@click.argument("name")
@project_option
@click.option("--from-file", type=click.File("rb"), metavar="FILE", help="The file with the value. Default: stdin.")
def set_(name: str, project: str | None, from_file: BinaryIO | None) -> None:
    """Set a secret. Its value comes from stdin or a file, and never from the command line.

    A line feed at the end of stdin is left out. Jobs that run keep the value that they have.

    \b
    Example:
      trainshed secrets set wandb-api-key < key.txt
      trainshed secrets set client-cert --from-file client.pem
    """
    context = session(project)
    if from_file is None and sys.stdin.isatty():
        say("Type the value, then a line feed and Ctrl+D.")
    raw = from_file.read() if from_file is not None else sys.stdin.buffer.read().removesuffix(b"\n")
    try:
        value = raw.decode()
    except UnicodeDecodeError:
        raise CannotProceedError("The value is not UTF-8 text. Encode it first, for instance with base64.") from None
    path = f"/trainshed/v1/projects/{segment(context.project)}/secrets/{segment(name)}:set"
    context.client.call("POST", path, body={"value": value})
    say(f"Set secret [{name}] of project [{context.project}].")


@click.command(cls=Command)
@click.argument("name")
@project_option
@quiet_option
def delete(name: str, project: str | None, quiet: bool) -> None:
    """Delete a secret. Jobs that run keep it; new ones that ask for it are refused.

    \b
    Example:
      trainshed secrets delete wandb-api-key
    """
    context = session(project)
    confirm(f"Secret [{name}] of project [{context.project}] will be deleted.", quiet=quiet)
    context.client.call("DELETE", f"/trainshed/v1/projects/{segment(context.project)}/secrets/{segment(name)}")
    say(f"Deleted secret [{name}].")


@click.command("rotate-key", cls=Command)
def rotate_key() -> None:
    """Encrypt all secrets of all projects with a new key. The older ones are forgotten.

    \b
    Example:
      trainshed secrets rotate-key
    """
    done = session().client.call("POST", "/trainshed/v1/secrets:rotateKey", body={})
    number = done["secrets"]
    say(f"Encrypted {number} {'secret' if number == 1 else 'secrets'} with a new key.")
    if done["unreadable"]:
        say(f"WARNING: the key of these is not there, set them again: {', '.join(done['unreadable'])}.")
