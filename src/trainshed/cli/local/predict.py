"""local predict: send a request to an exported model on this machine, without a server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from trainshed.cli.models.predict_io import instance_options, request_body, show_predictions, signature_option
from trainshed.cli.toolkit.lazy_group import Command
from trainshed.cli.toolkit.options import WordChoice, format_option
from trainshed.cli.toolkit.output import say, show_build
from trainshed.config import Home, environment
from trainshed.domain.models.hosting import FRAMEWORKS
from trainshed.errors import TrainshedError
from trainshed.local import interpreters
from trainshed.local.predict import LocalModelError, candidates, model_folder, run_request


@click.command(cls=Command)
@click.option(
    "--model-dir",
    required=True,
    metavar="FOLDER",
    help="The exported model: a folder, or gs:// in a bucket of this machine.",
)
@instance_options
@signature_option
@click.option(
    "--framework",
    type=WordChoice(*FRAMEWORKS),
    metavar="NAME",
    help=f"One of {', '.join(FRAMEWORKS)}. Default: detected from the files.",
)
@click.option("--runtime-version", metavar="VERSION", help="The runtime to load it in. Default: 2.21.")
@format_option
def predict(
    model_dir: str,
    framework: str | None,
    runtime_version: str | None,
    format: str | None,
    **request_options: str | None,
) -> None:
    """Ask an exported model on this machine, without a server, with the code that serves deployed models.

    The runtime is built at its first use.

    \b
    Example:
      trainshed local predict --model-dir output/export/1605475055 --json-instances request.json
    """
    home = Home.find(environment())
    folder = model_folder(home, model_dir)
    loaders = candidates(folder, framework)
    body = request_body(**request_options)
    succeeded, response = _predict(_python(home, runtime_version), home, folder, loaders, body)
    if not succeeded:
        raise TrainshedError(_message(response))
    show_predictions(response, format=format)


def _predict(
    python: Path, home: Home, folder: Path, loaders: tuple[str, ...], body: dict[str, Any]
) -> tuple[bool, Any]:
    """Return the response of the best loader that can load the model."""
    for loader in loaders[:-1]:
        try:
            return run_request(python, home, folder, loader, body)
        except LocalModelError:
            say(f"The loader {loader} does not take this model, so {loaders[-1]} loads it, as on a server.")
    return run_request(python, home, folder, loaders[-1], body)


def _python(home: Home, runtime_version: str | None) -> Path:
    choice = interpreters.serving_choice(home, runtime_version)
    for note in choice.notes:
        say(f"WARNING: {note}")
    with show_build(choice.name) as progress:
        return interpreters.ensure_runtime(home, choice.name, progress)


def _message(response: Any) -> str:
    """Return the message of an error in Google's format."""
    error = response.get("error") if isinstance(response, dict) else None
    return str(error["message"]) if isinstance(error, dict) and "message" in error else json.dumps(response)
