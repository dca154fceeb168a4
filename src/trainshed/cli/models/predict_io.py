"""The input and output of predictions: instances and requests in files, as gcloud reads them, and tables."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from trainshed.cli.toolkit.output import json_text, show_one, table_text
from trainshed.errors import InvalidArgumentError

F = TypeVar("F", bound=Callable[..., Any])

MAX_INSTANCES = 100  #: in a file; more are for a batch prediction job


def instance_options(command: F) -> F:
    """Add --json-instances, --json-request and --text-instances."""
    for option in (
        click.option("--text-instances", metavar="FILE", help="One instance a line, as text. - is stdin."),
        click.option("--json-request", metavar="FILE", help="The whole body of a request, in JSON. - is stdin."),
        click.option("--json-instances", metavar="FILE", help="One instance a line, in JSON. - is stdin."),
    ):
        command = option(command)
    return command


def signature_option(command: F) -> F:
    return click.option(
        "--signature-name", metavar="NAME", help="The signature of the model to call. Default: serving_default."
    )(command)


def request_body(
    *, json_instances: str | None, json_request: str | None, text_instances: str | None, signature_name: str | None
) -> dict[str, Any]:
    """Return the request body from the options. Raises a usage error unless exactly one of the three files is given."""
    if sum(file is not None for file in (json_instances, json_request, text_instances)) != 1:
        raise click.UsageError(
            "Exactly one of (--json-instances | --json-request | --text-instances) must be specified."
        )
    if json_request is not None:
        body = parse_request(read_text(json_request))
    elif json_instances is not None:
        body = {"instances": parse_instances(read_text(json_instances))}
    else:
        body = {"instances": lines_of(read_text(str(text_instances)))}
    return body | ({"signature_name": signature_name} if signature_name is not None else {})


def read_text(file: str) -> str:
    """Read a file, or stdin, as UTF-8, without a byte order mark."""
    try:
        raw = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        return raw.decode("utf-8-sig")
    except OSError as exc:
        raise InvalidArgumentError(f"Unable to read file [{file}]: {exc.strerror}.") from exc
    except UnicodeDecodeError as exc:
        raise InvalidArgumentError(f"[{file}] is not UTF-8 text: {exc.reason} at byte {exc.start}.") from exc


def lines_of(text: str) -> list[str]:
    """Split into one instance a line.

    Raises `InvalidArgumentError` if there is none, if one is empty, or if there are too many.
    """
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    lines = [line.removesuffix("\r") for line in lines]
    if not lines:
        raise InvalidArgumentError("No valid instance was found in input file.")
    if not all(lines):
        raise InvalidArgumentError("Empty line is not allowed in the instances file.")
    if len(lines) > MAX_INSTANCES:
        raise InvalidArgumentError(
            f"Online prediction can process no more than {MAX_INSTANCES} instances per file. Please use batch "
            f"prediction instead: trainshed jobs submit prediction"
        )
    return lines


def parse_instances(text: str) -> list[Any]:
    instances = []
    for number, line in enumerate(lines_of(text), 1):
        if not line.strip():
            raise InvalidArgumentError("Empty line is not allowed in the instances file.")
        try:
            instances.append(json.loads(line))
        except ValueError as exc:
            raise InvalidArgumentError(
                f"Input instances are not in JSON format, at line {number}: {exc}. Each line must hold one whole "
                f'instance. See `--json-request` for files like {{"instances": [...]}}.'
            ) from exc
    return instances


def parse_request(text: str) -> dict[str, Any]:
    try:
        body = json.loads(text)
    except ValueError as exc:
        raise InvalidArgumentError(f"Input request is not in JSON format: {exc}.") from exc
    if not isinstance(body, dict) or not isinstance(body.get("instances"), list):
        raise InvalidArgumentError('Input request must be a map with a list of instances: {"instances": [...]}.')
    if not body["instances"]:
        raise InvalidArgumentError("No valid instance was found in input request.")
    return body


def show_predictions(response: Any, *, format: str | None) -> None:
    """Print a response: in `format`, or in the form that suits it."""
    if format is not None and isinstance(response, Mapping):
        show_one(response, format=format)
    else:
        click.echo(predictions_text(response))


def predictions_text(response: Any) -> str:
    """Format a response: a table if predictions have names, a list if not, JSON if there are no predictions."""
    predictions = response.get("predictions") if isinstance(response, Mapping) else None
    if not isinstance(predictions, list):
        return json_text(response)
    if not predictions:
        return "predictions: []"
    if isinstance(predictions[0], Mapping):
        return _table(predictions[0], predictions)
    return str(predictions)


def _table(first: Mapping[str, Any], predictions: Sequence[Any]) -> str:
    """Format a table with a column for each name in the first prediction, sorted. Other names are not shown."""
    names = sorted(first)
    rows = [[_cell(each, name) for name in names] for each in predictions]
    return table_text(rows, [name.upper() for name in names])


def _cell(prediction: Any, name: str) -> str:
    value = prediction.get(name) if isinstance(prediction, Mapping) else None
    return "" if value is None else str(value)
