"""versions list, describe, set-default, update, delete."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from trainshed.cli.models.commands import last_part, native_path_of, path_of
from trainshed.cli.models.create_version import read_config, scaling_options
from trainshed.cli.models.operations import wait_until_done
from trainshed.cli.models.rollout import check_replay
from trainshed.cli.models.version_body import CHANGEABLE, scaling_of
from trainshed.cli.toolkit.lazy_group import Command
from trainshed.cli.toolkit.list_filters import select
from trainshed.cli.toolkit.options import (
    CommandContext,
    changes_labels,
    confirm,
    format_option,
    label_options,
    label_patch,
    project_option,
    quiet_option,
    region_option,
    resource_listing_options,
    session,
)
from trainshed.cli.toolkit.output import Column, say, show_named, show_one
from trainshed.client.transport import segment
from trainshed.errors import InvalidArgumentError

F = TypeVar("F", bound=Callable[..., Any])

COLUMNS = (Column("NAME", "name", last_part), Column("DEPLOYMENT_URI", "deploymentUri"), Column("STATE", "state"))


def model_option(command: F) -> F:
    return click.option("--model", required=True, metavar="MODEL", help="The model of the version.")(command)


def _path_of(context: CommandContext, model: str, version: str) -> str:
    return f"{path_of(context, model)}/versions/{segment(version)}"


@click.command("list", cls=Command)
@model_option
@project_option
@region_option
@resource_listing_options
@format_option
def list_(model: str, project: str | None, page_size: int, uri: bool, format: str | None, **choice: Any) -> None:
    """List the versions of a model.

    \b
    Example:
      trainshed versions list --model MNIST
    """
    context = session(project)
    pages = context.client.pages(f"{path_of(context, model)}/versions", "versions", query={"pageSize": page_size})
    versions = select(pages, **choice)
    show_named(versions, url=context.client.url if uri else "", format=format, columns=COLUMNS)


@click.command(cls=Command)
@click.argument("version")
@model_option
@project_option
@region_option
@click.option("--log", is_flag=True, help="Also show the end of its log.")
@format_option
def describe(version: str, model: str, project: str | None, log: bool, format: str | None) -> None:
    """Show one version. What serves it, how its answers compare to its framework's and whether it batches is on stderr.

    \b
    Example:
      trainshed versions describe v1 --model MNIST
      trainshed versions describe v1 --model MNIST --log
    """
    context = session(project)
    details = context.client.call("GET", f"{native_path_of(context, model)}/versions/{segment(version)}")
    show_one(details["version"], format=format, columns=COLUMNS)
    for line in detail_lines(details, log=log):
        say(f"\n{line}")


def detail_lines(details: dict[str, Any], *, log: bool = False) -> list[str]:
    """Describe a version beyond its fields, a sentence each.

    The log is included only if the version failed or `log` is set.
    """
    lines = []
    if details.get("detail"):
        location = f" in runtime {details['runtime']}" if details["runtime"] else ""
        lines.append(f"Served by {details['detail']}{location}.")
    if parity := details.get("parity"):
        lines.append(parity["message"] if parity["within"] else f"Not served by OpenVINO. {parity['message']}")
    if invariance := details.get("invariance"):
        lines.append(invariance["message"])
    if precision := details.get("precision"):
        lines.append(precision["message"])
    for host in details.get("hosts", ()):
        size = f", {host['memoryBytes'] / 1e6:.0f} MB" if host.get("memoryBytes") else ""
        location = f"at {host['address']}" if host.get("address") else f"process {host['pid']}"
        lines.append(f"Host {host['instance']} is {host['state']}: {location}{size}.")
    if scaling := details.get("scaling"):
        lines.append(_scaling_line(scaling))
    lines += [*details.get("notes", ()), *filter(None, (details.get("progress"),))]
    if (log or details["version"]["state"] == "FAILED") and details.get("log"):
        lines.append(f"The end of its log:\n{details['log'].rstrip()}")
    return lines


def _scaling_line(scaling: dict[str, Any]) -> str:
    held = " More are wanted, but don't fit into memory." if scaling["waitsForMemory"] else ""
    return (
        f"By load it has {scaling['minHosts']} to {scaling['maxHosts']} hosts, and {scaling['hosts']} now: "
        f"{scaling['inFlight']} requests are in flight.{held}"
    )


@click.command("set-default", cls=Command)
@click.argument("version")
@model_option
@project_option
@region_option
@click.option(
    "--after-replay",
    type=click.IntRange(1),
    metavar="N",
    help="First replay the last N logged requests on this version; ask for confirmation if predictions differ.",
)
@quiet_option
@format_option
def set_default(
    version: str, model: str, project: str | None, after_replay: int | None, quiet: bool, format: str | None
) -> None:
    """Make a version the one that answers requests for the model.

    \b
    Example:
      trainshed versions set-default v2 --model MNIST
      trainshed versions set-default v2 --model MNIST --after-replay 100
    """
    context = session(project)
    if after_replay is not None:
        check_replay(context, model, version, count=after_replay, quiet=quiet)
    updated = context.client.call("POST", f"{_path_of(context, model, version)}:setDefault", body={})
    show_one(updated, format=format, columns=COLUMNS)


@click.command(cls=Command)
@click.argument("version")
@model_option
@project_option
@region_option
@click.option("--config", type=Path, metavar="FILE", help="Changes in YAML or JSON. Flags override it.")
@click.option("--description", metavar="TEXT", help="The new description.")
@scaling_options
@click.option(
    "--bigquery-table-name",
    metavar="gs://BUCKET/FOLDER",
    help="Log requests and responses to this folder, as JSON lines. (gcloud's word; Trainshed logs to buckets.)",
)
@click.option(
    "--sampling-percentage", type=click.FloatRange(0, 1), metavar="SHARE", help="The share to log, from 0 to 1."
)
@label_options
def update(version: str, model: str, project: str | None, **change: Any) -> None:
    """Change a version: its description, its labels, how it scales, what of its requests is logged.

    \b
    Example:
      trainshed versions update v1 --model MNIST --min-nodes 0
      trainshed versions update v1 --model MNIST --bigquery-table-name gs://my-bucket/requests \\
          --sampling-percentage 0.1
    """
    context = session(project)
    body = _changes(change)
    path = _path_of(context, model, version)
    if changes_labels(change):
        body |= label_patch(context.client.call("GET", path), change)
    if not body:
        raise InvalidArgumentError(
            "No updates requested. `trainshed versions update --help` shows what can be changed."
        )
    operation = context.client.call("PATCH", path, query={"updateMask": _mask(body)}, body=body)
    wait_until_done(context, operation, f"Updating version [{version}]")
    say(f"Updated AI Platform version [{version}].")


def _changes(change: dict[str, Any]) -> dict[str, Any]:
    body = read_config(change["config"], CHANGEABLE)
    if change["description"] is not None:
        body["description"] = change["description"]
    if scaling := scaling_of(change):
        body["autoScaling"] = {**(body.get("autoScaling") or {}), **scaling}
    table, share = change["bigquery_table_name"], change["sampling_percentage"]
    if (table is None) != (share is None):
        raise click.UsageError("--bigquery-table-name and --sampling-percentage must be given together.")
    if table is not None:
        body["requestLoggingConfig"] = {"bigqueryTableName": table, "samplingPercentage": share}
    return body


def _mask(body: dict[str, Any]) -> str:
    """Return the changed fields, sorted. Fields of scaling are named one by one, so that the others stay."""
    names: list[str] = []
    for name, value in body.items():
        if name in ("autoScaling", "manualScaling") and isinstance(value, dict):
            names += [f"{name}.{field}" for field in value]
        elif name != "etag":
            names.append(name)
    return ",".join(sorted(names))


@click.command(cls=Command)
@click.argument("version")
@model_option
@project_option
@region_option
@quiet_option
def delete(version: str, model: str, project: str | None, quiet: bool) -> None:
    """Delete a version. The default version can be deleted only when it is the last one.

    \b
    Example:
      trainshed versions delete v1 --model MNIST
    """
    context = session(project)
    confirm(f"This will delete version [{version}]...", quiet=quiet)
    operation = context.client.call("DELETE", _path_of(context, model, version))
    wait_until_done(context, operation, f"Deleting version [{version}]")
