"""auth users: users and service accounts."""

from __future__ import annotations

import click

from trainshed.cli.toolkit.lazy_group import Command
from trainshed.cli.toolkit.list_filters import select
from trainshed.cli.toolkit.options import confirm, format_option, listing_options, quiet_option, session
from trainshed.cli.toolkit.output import Column, local_time, say, show_list
from trainshed.client.transport import segment

_COLUMNS = (
    Column("NAME", "name"),
    Column("KIND", "kind"),
    Column("CREATED", "createTime", local_time),
    Column("DISABLED", "disableTime", local_time),
)


@click.command("list", cls=Command)
@listing_options
@format_option
def list_(filter: str | None, sort_by: str | None, limit: int | None, format: str | None) -> None:
    """List users and service accounts.

    \b
    Example:
      trainshed auth users list --filter kind=service-account
    """
    users = session().client.call("GET", "/trainshed/v1/users")["users"]
    show_list(select(users, filter=filter, sort_by=sort_by, limit=limit), format=format, columns=_COLUMNS)


@click.command(cls=Command)
@click.argument("name")
@click.option("--service-account", is_flag=True, help="A program, and not a person.")
def create(name: str, service_account: bool) -> None:
    """Add a user or a service account. It can do nothing until `auth tokens create --user NAME` makes it a token.

    \b
    Example:
      trainshed auth users create nightly-build --service-account
    """
    kind = "service-account" if service_account else "user"
    session().client.call("POST", "/trainshed/v1/users", body={"name": name, "kind": kind})
    say(f"Created {kind.replace('-', ' ')} [{name}].")


@click.command(cls=Command)
@click.argument("name")
@quiet_option
def disable(name: str, quiet: bool) -> None:
    """End all tokens and sessions of a user, and make no new ones until `auth users enable`.

    \b
    Example:
      trainshed auth users disable ada
    """
    confirm(f"The tokens and sessions of [{name}] will be refused from now on.", quiet=quiet)
    session().client.call("POST", f"/trainshed/v1/users/{segment(name)}:disable", body={})
    say(f"Disabled user [{name}].")


@click.command(cls=Command)
@click.argument("name")
def enable(name: str) -> None:
    """Enable a user. Tokens that are neither expired nor revoked are valid again.

    \b
    Example:
      trainshed auth users enable ada
    """
    session().client.call("POST", f"/trainshed/v1/users/{segment(name)}:enable", body={})
    say(f"Enabled user [{name}].")
