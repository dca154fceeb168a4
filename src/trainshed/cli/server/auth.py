"""auth: the current token, and tokens for others."""

from __future__ import annotations

import re

import click

from trainshed.cli.toolkit.lazy_group import Command
from trainshed.cli.toolkit.list_filters import select
from trainshed.cli.toolkit.options import WordChoice, format_option, listing_options, session
from trainshed.cli.toolkit.output import Column, local_time, say, show_list
from trainshed.client.discovery import current_token
from trainshed.client.transport import segment
from trainshed.config import ClientSettings, environment
from trainshed.errors import CannotProceedError


@click.command("print-access-token", cls=Command)
def print_access_token() -> None:
    """Print the token that this command line uses: TRAINSHED_TOKEN, else that of `auth login`, else the owner's.

    \b
    Example:
      curl -H "Authorization: Bearer $(trainshed auth print-access-token)" http://127.0.0.1:8470/v1/projects/trainshed/jobs
    """
    settings = ClientSettings.read(environment())
    token = current_token(settings)
    if token is None and settings.url is not None:
        raise CannotProceedError(f"There is no token for {settings.url} here. Sign in with: trainshed auth login")
    if token is None:
        raise CannotProceedError(f"There is no token in {settings.home.path} yet; `trainshed up` makes one.")
    click.echo(token)


class Duration(click.ParamType[float]):
    """`90s`, `30m`, `12h`, `7d` or a number of seconds."""

    name = "DURATION"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhd]?)", str(value))
        if match is None:
            self.fail(f"'{value}' is not a duration. Write 90s, 30m, 12h or 7d.", param, ctx)
        return float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}[match[2]]


@click.command(cls=Command)
@click.option("--user", required=True, metavar="NAME", help="Whose token it is.")
@click.option("--project", metavar="ID", help="Its project; '*' is all projects. Default: the current one.")
@click.option(
    "--role", type=WordChoice("viewer", "editor", "owner"), default="editor", show_default=True, help="What it may do."
)
@click.option("--label", default="", metavar="TEXT", help="A note for people.")
@click.option("--ttl", type=Duration(), help="Time until it expires, such as 12h or 7d. Default: never.")
def create(user: str, project: str | None, role: str, label: str, ttl: float | None) -> None:
    """Make a token and print it on stdout. It is shown this once; the server keeps only its hash.

    \b
    Example:
      trainshed auth tokens create --user ada --project my-project --role viewer --ttl 7d
    """
    context = session(None if project == "*" else project)
    body = {"user": user, "project": project or context.project, "role": role, "label": label}
    created = context.client.call("POST", "/trainshed/v1/tokens", body=body | ({"ttlSeconds": ttl} if ttl else {}))
    say(f"Created token [{created['id']}] for {user}: {role} of {body['project']}. It is shown only now.")
    click.echo(created["token"])


_COLUMNS = (
    Column("ID", "id"),
    Column("USER", "user"),
    Column("PROJECT", "project"),
    Column("ROLE", "role"),
    Column("CREATED", "createTime", local_time),
    Column("EXPIRES", "expireTime", local_time),
    Column("REVOKED", "revokeTime", local_time),
    Column("LABEL", "label"),
)


@click.command("list", cls=Command)
@listing_options
@format_option
def list_(filter: str | None, sort_by: str | None, limit: int | None, format: str | None) -> None:
    """List tokens, without their secrets.

    \b
    Example:
      trainshed auth tokens list --filter user=ada
    """
    tokens = session().client.call("GET", "/trainshed/v1/tokens")["tokens"]
    show_list(select(tokens, filter=filter, sort_by=sort_by, limit=limit), format=format, columns=_COLUMNS)


@click.command(cls=Command)
@click.argument("token_id", metavar="ID")
def revoke(token_id: str) -> None:
    """Make a token useless from now on. ID is what `tokens list` shows.

    \b
    Example:
      trainshed auth tokens revoke 3f9a
    """
    session().client.call("POST", f"/trainshed/v1/tokens/{segment(token_id)}:revoke", body={})
    say(f"Revoked token [{token_id}].")
