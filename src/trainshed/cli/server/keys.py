"""auth keys: keys of service accounts, as Google's libraries take them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import click

from trainshed.cli.toolkit.lazy_group import Command
from trainshed.cli.toolkit.options import WordChoice, session
from trainshed.cli.toolkit.output import say
from trainshed.errors import CannotProceedError


@click.command(cls=Command)
@click.argument("account", metavar="ACCOUNT")
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
@click.option("--project", metavar="ID", help="Its project. Default: the current one.")
@click.option(
    "--role", type=WordChoice("viewer", "editor", "owner"), default="editor", show_default=True, help="What it may do."
)
@click.option("--label", default="", metavar="TEXT", help="A note for people.")
def create(account: str, file: Path, project: str | None, role: str, label: str) -> None:
    """Make a key of a service account, in a file.

    FILE must not be there yet. It is readable by you alone.

    FILE signs URLs and is what GOOGLE_APPLICATION_CREDENTIALS names. The server keeps the public key alone. `auth
    tokens list` shows the key, and `auth tokens revoke` ends it.

    \b
    Example:
      trainshed auth users create ci --service-account
      trainshed auth keys create ci ci.json --project my-project
    """
    context = session(project)
    try:
        fd = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError as exc:
        raise CannotProceedError(f"{file} can't be made: {exc.strerror}. Name a file that is not there yet.") from exc
    try:
        body = {"user": account, "project": context.project, "role": role, "label": label}
        created = context.client.call("POST", "/trainshed/v1/tokens:createKey", body=body)
        with open(fd, "w") as stream:
            json.dump(created["keyFile"], stream, indent=2)
    except BaseException:
        file.unlink(missing_ok=True)
        raise
    say(f"Created key [{created['id']}] of {account}: {role} of {context.project}. It is in {file} only.")
