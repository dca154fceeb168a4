"""gcloud in `trainshed shell`: Trainshed's commands under gcloud's names, and a few of gcloud's own."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

import click

from trainshed import __version__
from trainshed.cli.commands import COMMANDS, ML
from trainshed.cli.server import config
from trainshed.cli.toolkit.lazy_group import Command, LazyGroup, RootGroup
from trainshed.cli.toolkit.list_filters import select
from trainshed.cli.toolkit.options import CommandContext, format_option, listing_options, session
from trainshed.cli.toolkit.output import Column, say, show_list, show_one
from trainshed.config import environment
from trainshed.errors import CannotProceedError
from trainshed.shell import gcloud as lines
from trainshed.shell.gcloud import REGIONS, zones

_AUTH = COMMANDS["auth"][0]

_BUCKETS: dict[str, tuple[Any, str]] = {
    "create": ("buckets.commands:mb", "Make buckets."),
    "delete": ("buckets.changes:rb", "Remove empty buckets."),
    "list": ("buckets.listing:ls", "List buckets."),
}

_PLAIN: dict[str, tuple[Any, str]] = {
    "ml-engine": (ML, "Jobs, models, versions and predictions."),
    "ai-platform": (ML, "Jobs, models, versions and predictions."),
    "config": (
        {
            "list": ("workspace.gcloud:config_list", "List the project and the server settings."),
            "get": ("workspace.gcloud:config_get", "Print one property."),
            "get-value": ("workspace.gcloud:config_get", "Print one property."),
            "set": ("workspace.gcloud:config_set", "Set a property."),
            "unset": ("server.config:unset", "Remove a property."),
        },
        "The default project and the server's settings.",
    ),
    "auth": (
        {
            "print-access-token": _AUTH["print-access-token"],
            "application-default": (
                {"print-access-token": _AUTH["print-access-token"]},
                "Credentials of programs.",
            ),
            "list": ("workspace.gcloud:accounts", "List who you are here."),
        },
        "Tokens.",
    ),
    "compute": (
        {
            "zones": ({"list": ("workspace.gcloud:list_zones", "List zones.")}, "Zones."),
            "regions": ({"list": ("workspace.gcloud:list_regions", "List regions.")}, "Regions."),
        },
        "Zones and regions, all of which are this machine.",
    ),
    "logging": (
        {"logs": ({"list": ("workspace.gcloud:list_logs", "List the logs of the project.")}, "Logs.")},
        "The logs of jobs, as Cloud Logging names them.",
    ),
    "projects": (
        {
            "list": ("workspace.gcloud:list_projects", "List projects."),
            "describe": ("workspace.gcloud:describe_project", "Show one project."),
        },
        "Projects.",
    ),
    "storage": (
        {
            "buckets": (_BUCKETS, "Buckets."),
            "ls": ("buckets.listing:ls", "List buckets, and objects in them."),
            "cp": ("buckets.commands:cp", "Copy files and objects."),
            "mv": ("buckets.changes:mv", "Move files and objects."),
            "cat": ("buckets.commands:cat", "Print objects."),
            "rm": ("buckets.commands:rm", "Remove objects, folders and buckets."),
            "rsync": ("buckets.commands:rsync", "Make one folder hold what another one holds."),
            "du": ("buckets.listing:du", "Show how much space objects take."),
        },
        "Buckets and objects.",
    ),
    "version": ("workspace.gcloud:version", "Say what this is."),
    "info": ("workspace.gcloud:info", "Say where it talks to."),
}
_TRACK: dict[str, tuple[Any, str]] = _PLAIN | {"ml": (ML, "Old name of `ai-platform`.")}

TABLE: dict[str, tuple[Any, str]] = _PLAIN | {
    "beta": (_TRACK, "The same; Trainshed has one track."),
    "alpha": (_TRACK, "The same; Trainshed has one track."),
}


@click.group(
    cls=RootGroup,
    table=TABLE,
    aliases=("ml-engine", "beta", "alpha"),
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, message="Trainshed %(version)s, in place of the Google Cloud SDK")
@click.option("--project", metavar="ID", help="The project.")
@click.option("-q", "--quiet", is_flag=True, help="Don't ask for confirmation.")
def gcloud(project: str | None, quiet: bool) -> None:
    """Trainshed in gcloud's words. Jobs, models and predictions are under `gcloud ai-platform`."""


def run(args: Sequence[str]) -> None:
    """Run a command line of gcloud, and exit with its status."""
    line = lines.parse(args)
    for note in line.notes:
        say(f"WARNING: {note}")
    names = lines.names(line.words)
    if (text := lines.longest(lines.NOT_NEEDED, names)) is not None:
        say(text)
        return
    command = resolve_command(gcloud, line.words)
    if command is None:
        raise CannotProceedError(lines.refusal(names))
    flags = [*(("--project", line.project) if line.project else ()), *(("--quiet",) if line.quiet else ())]
    split = line.words.index("--") if "--" in line.words else len(line.words)
    takes_format = any(parameter.name == "format" for parameter in command.params)
    format_flag = ("--format", line.format) if line.format is not None and takes_format else ()
    gcloud.main([*flags, *line.words[:split], *format_flag, *line.words[split:]], prog_name="gcloud")


def resolve_command(group: click.Group, words: Sequence[str]) -> click.Command | None:
    """Return the command that the words name. Returns None if Trainshed does not have it.

    An unknown word below jobs, models and so on is a usage error, not another command of gcloud.
    """
    command: click.Command = group
    for word in words:
        if word.startswith("-") or not isinstance(command, LazyGroup):
            break
        subcommand = command.get_command(click.Context(command), word)
        if subcommand is None:
            return command if _is_ml(command.table) else None
        command = subcommand
    return command


def _is_ml(table: Mapping[str, Any]) -> bool:
    return table is ML or any(table is location for location, _ in ML.values())


_PROJECT_PROPERTIES = ("project", "core/project", "client/project")


def _is_supported(property: str) -> bool:
    return property in _PROJECT_PROPERTIES or property.startswith("server/")


@click.command("set", cls=Command)
@click.argument("property")
@click.argument("value")
@click.pass_context
def config_set(ctx: click.Context, property: str, value: str) -> None:
    """Set a property. The project is kept; regions, zones and accounts mean nothing here."""
    if not _is_supported(property):
        say(f"WARNING: [{property}] means nothing here: there is one machine and one endpoint. Nothing was kept.")
        return
    ctx.invoke(config.set_, property=property, value=value)
    project_variable = environment().get("TRAINSHED_PROJECT")
    if property in _PROJECT_PROPERTIES and project_variable and project_variable != value:
        say(
            f"WARNING: The variable TRAINSHED_PROJECT is set to {project_variable} in this shell, and counts more. "
            f"To work in the other project, type: export TRAINSHED_PROJECT={value}"
        )


@click.command("get-value", cls=Command)
@click.argument("property")
@click.pass_context
def config_get(ctx: click.Context, property: str) -> None:
    """Print one property as it is in force."""
    if _is_supported(property):
        ctx.invoke(config.get, property=property)
    else:
        say("(unset)")


@click.command("list", cls=Command)
@click.argument("property", required=False)
@format_option
@click.pass_context
def config_list(ctx: click.Context, property: str | None, format: str | None) -> None:
    """List the project and the server settings."""
    if property is not None and not _is_supported(property):
        say(f"WARNING: [{property}] is not set: it means nothing here.")
        if format is not None:
            show_one({}, format=format)
        return
    ctx.invoke(config.list_, property=property, format=format)


@click.command("list", cls=Command)
@format_option
def accounts(format: str | None) -> None:
    """List who you are here: the holder of the token that this shell uses."""
    user = session().client.call("GET", "/trainshed/v1/session")["user"]
    show_list(
        [{"account": user, "status": "ACTIVE"}],
        format=format,
        columns=(Column("ACTIVE", "status", lambda status: "*" if status else ""), Column("ACCOUNT", "account")),
    )


@click.command("list", cls=Command)
@listing_options
@format_option
def list_zones(format: str | None, **choice: Any) -> None:
    """List zones."""
    columns = (Column("NAME", "name"), Column("REGION", "region"), Column("STATUS", "status"))
    show_list(select(zones(), **choice), format=format, columns=columns)
    say("\nAll of them are this machine: jobs, notebooks and buckets are here whatever zone is named.")


@click.command("list", cls=Command)
@listing_options
@format_option
def list_regions(format: str | None, **choice: Any) -> None:
    """List regions."""
    rows = [{"name": region, "status": "UP"} for region in REGIONS]
    show_list(select(rows, **choice), format=format, columns=(Column("NAME", "name"), Column("STATUS", "status")))
    say("\nAll of them are this machine.")


def _project(context: CommandContext, name: str) -> dict[str, str]:
    number = context.client.call("GET", f"/v1/projects/{name}:getConfig")["serviceAccountProject"]
    return {"projectId": name, "name": name, "projectNumber": str(number), "lifecycleState": "ACTIVE"}


@click.command("list", cls=Command)
@listing_options
@format_option
def list_projects(format: str | None, **choice: Any) -> None:
    """List projects."""
    context = session()
    known = context.client.call("GET", "/trainshed/v1/session")["projects"]
    columns = (Column("PROJECT_ID", "projectId"), Column("NAME", "name"), Column("PROJECT_NUMBER", "projectNumber"))
    show_list(select([_project(context, name) for name in known], **choice), format=format, columns=columns)


@click.command("list", cls=Command)
@listing_options
@format_option
def list_logs(format: str | None, **choice: Any) -> None:
    """List the logs of the project: those of its jobs' replicas, and those that programs wrote."""
    context = session()
    rows: list[dict[str, str]] = []
    token: str | None = ""
    while token is not None:
        query = urlencode({"pageSize": 1000, "pageToken": token})
        page = context.client.call("GET", f"/v2/projects/{context.project}/logs?{query}")
        rows += [{"name": name} for name in page.get("logNames", ())]
        token = page.get("nextPageToken")
    show_list(select(rows, **choice), format=format, columns=(Column("NAME", "name"),))


@click.command("describe", cls=Command)
@click.argument("project_id", required=False)
@format_option
def describe_project(project_id: str | None, format: str | None) -> None:
    """Show one project."""
    context = session(project_id)
    show_one(_project(context, context.project), format=format)


@click.command(cls=Command)
def version() -> None:
    """Say what this is."""
    click.echo(f"Trainshed {__version__}, in place of the Google Cloud SDK")


@click.command(cls=Command)
def info() -> None:
    """Say where it talks to."""
    context = session()
    click.echo(f"Trainshed [{__version__}] in place of the Google Cloud SDK, on Python {platform.python_version()}")
    click.echo(
        f"Server: [{context.client.url}]\nProject: [{context.project}]\nState folder: [{context.settings.home.path}]"
    )
