"""models create, list, describe, update, delete."""

from __future__ import annotations

from typing import Any

import click

from trainshed.cli.models.operations import wait_until_done
from trainshed.cli.toolkit.lazy_group import Command
from trainshed.cli.toolkit.list_filters import select
from trainshed.cli.toolkit.options import (
    CommandContext,
    KeyValues,
    Names,
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

REGION = "us-central1"


def last_part(name: Any) -> str:
    """Return `v1` of projects/p/models/m/versions/v1."""
    return str(name or "").rpartition("/")[2]


COLUMNS = (Column("NAME", "name", last_part), Column("DEFAULT_VERSION_NAME", "defaultVersion.name", last_part))


def path_of(context: CommandContext, model: str) -> str:
    return context.ml(f"models/{segment(model)}")


def native_path_of(context: CommandContext, model: str) -> str:
    """Return the path of a model in the native API, which has what the ml API has no field for."""
    return f"/trainshed{path_of(context, model)}"


def fetch(context: CommandContext, model: str) -> dict[str, Any]:
    body: dict[str, Any] = context.client.call("GET", path_of(context, model))
    return body


@click.command(cls=Command)
@click.argument("model")
@project_option
@click.option("--regions", type=Names(), metavar="REGION,...", help="Kept with the model. Default: us-central1.")
@click.option("--region", metavar="REGION", help="The same as --regions, for one region.")
@click.option("--enable-logging", is_flag=True, help="Log each request: when, how long, with what status.")
@click.option("--enable-console-logging", is_flag=True, help="Kept; what versions print is logged anyway.")
@click.option("--description", metavar="TEXT", help="Kept with the model.")
@click.option("--labels", type=KeyValues(), help="Labels for the model.")
def create(model: str, project: str | None, regions: tuple[str, ...] | None, region: str | None, **flags: Any) -> None:
    """Create a model: a name for versions to come.

    \b
    Example:
      trainshed models create MNIST --regions us-central1
    """
    if regions and region:
        raise click.UsageError("argument --region: At most one of --region | --regions can be specified.")
    region_names = regions or ((region,) if region and region != "global" else (REGION,))
    body = {
        "name": model,
        "regions": list(region_names),
        "onlinePredictionLogging": flags["enable_logging"] or None,
        "onlinePredictionConsoleLogging": flags["enable_console_logging"] or None,
        "description": flags["description"],
        "labels": flags["labels"],
    }
    context = session(project)
    fields = {name: value for name, value in body.items() if value is not None}
    created_model = context.client.call("POST", context.ml("models"), body=fields)
    say(f"Created ai platform model [{created_model['name']}].")
    _say_notes(context, model)


def _say_notes(context: CommandContext, model: str) -> None:
    for note in context.client.call("GET", native_path_of(context, model)).get("notes", ()):
        say(f"\n{note}")


@click.command("list", cls=Command)
@project_option
@region_option
@resource_listing_options
@format_option
def list_(project: str | None, page_size: int, uri: bool, format: str | None, **choice: Any) -> None:
    """List models.

    \b
    Example:
      trainshed models list
    """
    context = session(project)
    models = select(context.client.pages(context.ml("models"), "models", query={"pageSize": page_size}), **choice)
    show_named(models, url=context.client.url if uri else "", format=format, columns=COLUMNS)


@click.command(cls=Command)
@click.argument("model")
@project_option
@region_option
@format_option
def describe(model: str, project: str | None, format: str | None) -> None:
    """Show one model.

    \b
    Example:
      trainshed models describe MNIST
    """
    context = session(project)
    show_one(fetch(context, model), format=format, columns=COLUMNS)
    _say_notes(context, model)


@click.command(cls=Command)
@click.argument("model")
@project_option
@region_option
@click.option("--description", metavar="TEXT", help="The new description.")
@label_options
def update(model: str, project: str | None, description: str | None, **change: Any) -> None:
    """Change the description and the labels of a model.

    \b
    Example:
      trainshed models update MNIST --description "Digits" --update-labels team=vision
    """
    context = session(project)
    body: dict[str, Any] = {} if description is None else {"description": description}
    if changes_labels(change):
        body |= label_patch(fetch(context, model), change)
    if not body:
        raise InvalidArgumentError(
            "No updates requested. Give --description, --update-labels, --remove-labels or --clear-labels."
        )
    mask = ",".join(sorted(body.keys() - {"etag"}))
    operation = context.client.call("PATCH", path_of(context, model), query={"updateMask": mask}, body=body)
    wait_until_done(context, operation, f"Updating model [{model}]")
    say(f"Updated ai platform model [{model}].")


@click.command(cls=Command)
@click.argument("model")
@project_option
@region_option
@quiet_option
def delete(model: str, project: str | None, quiet: bool) -> None:
    """Delete a model that has no versions.

    \b
    Example:
      trainshed models delete MNIST
    """
    context = session(project)
    confirm(f"This will delete model [{model}]...", quiet=quiet)
    operation = context.client.call("DELETE", path_of(context, model))
    wait_until_done(context, operation, f"Deleting model [{model}]")
