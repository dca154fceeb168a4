"""quotas: limits of projects and users."""

from __future__ import annotations

import click

from trainshed.cli.toolkit.lazy_group import Command
from trainshed.cli.toolkit.options import CommandContext, WordChoice, format_option, project_option, session
from trainshed.cli.toolkit.output import Column, say, show_list
from trainshed.client.transport import segment, target
from trainshed.domain.access.quotas import EACH, RETENTION, WORDS, QuotaName
from trainshed.errors import CannotProceedError

_USED = (
    Column("NAME", "name"),
    Column("USER", "user"),
    Column("USED", "used"),
    Column("LIMIT", "value"),
    Column("DEFAULT", "default"),
)
_SET = (Column("NAME", "name"), Column("PROJECT", "project"), Column("USER", "user"), Column("LIMIT", "value"))
_NAMES = WordChoice(*(name.value for name in QuotaName))
_user_option = click.option("--user", metavar="NAME", help="A user of the project; '*' is each user without one.")
_all_option = click.option(
    "--all-projects", is_flag=True, help="Each project that has no limit of its own. For owners of all projects."
)


@click.command("list", cls=Command)
@project_option
@click.option("--user", metavar="NAME", help="Only the limits that apply to this user.")
@click.option("--all-projects", is_flag=True, help="All limits as they were set. For owners of all projects.")
@format_option
def list_(project: str | None, user: str | None, all_projects: bool, format: str | None) -> None:
    """List the limits that apply in a project, with what is in use. No user is the project as a whole.

    \b
    Example:
      trainshed quotas list
      trainshed quotas list --user ada --format json
    """
    context = session(project)
    if all_projects:
        found = context.client.call("GET", "/trainshed/v1/quotas")["quotas"]
        show_list([each for each in found if user in (None, each["user"])], format=format, columns=_SET)
        return
    show_list(_applied(context, user), format=format, columns=_USED)


@click.command(cls=Command)
@click.argument("name", type=_NAMES)
@project_option
@format_option
def describe(name: str, project: str | None, format: str | None) -> None:
    """Show what a limit counts, and what is in use of it in a project.

    \b
    Example:
      trainshed quotas describe running-replicas
    """
    context = session(project)
    say(f"{name}: {WORDS[QuotaName(name)]}.")
    show_list([each for each in _applied(context, None) if each["name"] == name], format=format, columns=_USED)


@click.command("set", cls=Command)
@click.argument("name", type=_NAMES)
@click.argument("value", type=int)
@project_option
@_user_option
@_all_option
def set_(name: str, value: int, project: str | None, user: str | None, all_projects: bool) -> None:
    """Set a limit of a project, or with --user of a user of it. Owners of a project set those of its users, and for
    how many days it keeps things.

    \b
    Example:
      trainshed quotas set running-replicas 8 --user '*'
      trainshed quotas set jobs-per-day 500 --all-projects
      trainshed quotas set log-days 90
    """
    where = _change("set", {"name": name, "value": value}, project, user, all_projects)
    say(f"Set {name} of {where} to {value}.")


@click.command(cls=Command)
@click.argument("name", type=_NAMES)
@project_option
@_user_option
@_all_option
def unset(name: str, project: str | None, user: str | None, all_projects: bool) -> None:
    """Remove a limit. One for each user or each project applies then, if there is one.

    \b
    Example:
      trainshed quotas unset running-replicas --user ada
    """
    where = _change("unset", {"name": name}, project, user, all_projects)
    say(f"Removed {name} of {where}.")


def _applied(context: CommandContext, user: str | None) -> list[dict[str, object]]:
    path = f"/trainshed/v1/projects/{segment(context.project)}/quotas"
    return list(context.client.call("GET", target(path, {"user": user}))["quotas"])


def _change(verb: str, body: dict[str, object], project: str | None, user: str | None, all_projects: bool) -> str:
    """Set or remove a limit. Returns whose it is, for people."""
    if project and all_projects:
        raise CannotProceedError("Give --project or --all-projects, and not both.")
    context = session(project)
    name = EACH if all_projects else context.project
    if (user or body["name"] in RETENTION) and not all_projects:
        path = f"/trainshed/v1/projects/{segment(name)}/quotas:{verb}"
        context.client.call("POST", path, body=body | {"user": user or ""})
    else:
        context.client.call("POST", f"/trainshed/v1/quotas:{verb}", body=body | {"project": name, "user": user or ""})
    of_project = "each project" if all_projects else f"project [{name}]"
    if not user:
        return of_project
    return f"each user of {of_project}" if user == EACH else f"user [{user}] of {of_project}"
