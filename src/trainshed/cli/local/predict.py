"""local predict: ask an exported model on this machine, without a server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from trainshed.cli.models.predict_io import instance_options, request_body, show_predictions, signature_option
from trainshed.cli.toolkit.build_progress import shown_build
from trainshed.cli.toolkit.lazy_group import Command
from trainshed.cli.toolkit.options import WordChoice, format_option
from trainshed.cli.toolkit.output import say
from trainshed.config import Home, environment
from trainshed.errors import TrainshedError
from trainshed.local import interpreters
from trainshed.local.predict import FRAMEWORKS, LocalModelError, candidates, model_folder, run_request


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
    help="tensorflow, scikit-learn or xgboost. Default: found out by the files.",
)
@click.option("--runtime-version", metavar="VERSION", help="The runtime to load it in. Default: 2.21.")
@format_option
def predict(
    model_dir: str, framework: str | None, runtime_version: str | None, format: str | None, **given: str | None
) -> None:
    """Ask an exported model on this machine, without a server, with the code that serves deployed models.

    The runtime is built at its first use.

    \b
    Example:
      trainshed local predict --model-dir output/export/1605475055 --json-instances request.json
    """
    home = Home.find(environment())
    folder = model_folder(home, model_dir)
    possible = candidates(folder, framework)
    body = request_body(**given)
    well, found = _asked(_python(home, runtime_version), home, folder, possible, body)
    if not well:
        raise TrainshedError(_message(found))
    show_predictions(found, format=format)


def _asked(python: Path, home: Home, folder: Path, possible: tuple[str, ...], body: dict[str, Any]) -> tuple[bool, Any]:
    """The answer by the best loader that can load the model."""
    for loader in possible[:-1]:
        try:
            return run_request(python, home, folder, loader, body)
        except LocalModelError as exc:
            say(f"The loader {loader} does not do for this model, so {possible[-1]} loads it. {exc}")
    return run_request(python, home, folder, possible[-1], body)


def _python(home: Home, runtime_version: str | None) -> Path:
    choice = interpreters.serving_choice(home, runtime_version)
    for note in choice.notes:
        say(f"WARNING: {note}")
    with shown_build(choice.name) as progress:
        return interpreters.ensure_runtime(home, choice.name, progress)


def _message(found: Any) -> str:
    """The sentence of Google's form of an error."""
    error = found.get("error") if isinstance(found, dict) else None
    return str(error["message"]) if isinstance(error, dict) and "message" in error else json.dumps(found)
