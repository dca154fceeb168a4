"""predict and explain: send requests to a deployed model."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeVar

import click

from trainshed.cli.models.commands import path_of
from trainshed.cli.models.predict_io import instance_options, request_body, show_predictions, signature_option
from trainshed.cli.toolkit.lazy_group import Command
from trainshed.cli.toolkit.options import CommandContext, format_option, project_option, region_option, session
from trainshed.client import ApiError
from trainshed.client.transport import segment
from trainshed.errors import CannotProceedError, TrainshedError

F = TypeVar("F", bound=Callable[..., Any])


def _model_options(command: F) -> F:
    for option in (
        click.option("--version", metavar="VERSION", help="The version. Default: the model's default version."),
        click.option("--model", required=True, metavar="MODEL", help="The model."),
    ):
        command = option(command)
    return command


@click.command(cls=Command)
@_model_options
@instance_options
@signature_option
@project_option
@region_option
@format_option
def predict(
    model: str, version: str | None, project: str | None, format: str | None, **request_options: str | None
) -> None:
    """Ask a deployed model for predictions and show them in a table.

    \b
    Example:
      trainshed predict --model MNIST --json-instances request.json
      trainshed predict --model MNIST --version v2 --json-request body.json --format json
    """
    body = request_body(**request_options)
    show_predictions(send_request(session(project), "predict", model, version, body), format=format)


@click.command(cls=Command)
@_model_options
@instance_options
@project_option
@region_option
@format_option
def explain(
    model: str, version: str | None, project: str | None, format: str | None, **request_options: str | None
) -> None:
    """Ask a deployed model which parts of its input its predictions come from.

    The version must have been created with --explanation-method.

    \b
    Example:
      trainshed explain --model iris --json-instances test.json
    """
    body = request_body(**request_options, signature_name=None)
    show_predictions(send_request(session(project), "explain", model, version, body), format=format)


def target_of(context: CommandContext, model: str, version: str | None) -> str:
    """Return the path of a model, or of one of its versions."""
    return path_of(context, model) + (f"/versions/{segment(version)}" if version else "")


def send_request(context: CommandContext, verb: str, model: str, version: str | None, body: dict[str, Any]) -> Any:
    """Send one request, without retries: the caller decides whether to repeat it.

    Errors are shown as the server sent them.
    """
    raw = json.dumps(body, sort_keys=True).encode()
    headers = {"content-type": "application/json"}
    try:
        response = context.client.exchange(
            "POST", f"{target_of(context, model, version)}:{verb}", headers=headers, body=raw
        )
    except ApiError as exc:
        raise TrainshedError(f"HTTP request failed. Response: {exc.raw or exc}") from exc
    content = context.client.read(response)
    try:
        return json.loads(content)
    except ValueError as exc:
        raise CannotProceedError(f"What {context.client.url} answered is not JSON: {content[:200]!r}.") from exc
