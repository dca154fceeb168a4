"""versions create: upload local files, create the version, and wait until it is ready."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from trainshed.cli.jobs.submit_training import BucketName
from trainshed.cli.models.commands import native_path_of, path_of
from trainshed.cli.models.operations import wait_until_done
from trainshed.cli.models.version_body import CREATABLE, check_fields, check_flags, version_body
from trainshed.cli.toolkit.lazy_group import Command
from trainshed.cli.toolkit.options import (
    CommandContext,
    KeyValues,
    Names,
    Ports,
    WordChoice,
    project_option,
    region_option,
    session,
)
from trainshed.cli.toolkit.output import say
from trainshed.cli.toolkit.transfers import run
from trainshed.client.operations import create_once
from trainshed.client.staging import stage_upload
from trainshed.client.submission import read_yaml
from trainshed.client.transport import segment
from trainshed.domain.models.hosting import FRAMEWORKS
from trainshed.domain.uris import is_uri
from trainshed.errors import InvalidArgumentError

F = TypeVar("F", bound=Callable[..., Any])

_NO_ORIGIN = "Either `--origin` must be provided or `deploymentUri` must be provided in the file given by `--config`."


def scaling_options(command: F) -> F:
    for option in (
        click.option(
            "--metric-targets", type=KeyValues(), metavar="NAME=PERCENT,...", help="When to scale: cpu-usage=60."
        ),
        click.option("--max-nodes", type=click.IntRange(1), metavar="N", help="Maximum number of hosts."),
        click.option(
            "--min-nodes", type=click.IntRange(0), metavar="N", help="Minimum number of hosts. 0: scale to zero."
        ),
    ):
        command = option(command)
    return command


def _container_options(command: F) -> F:
    for option in (
        click.option("--health-route", metavar="PATH", help="Where the container says whether it is healthy."),
        click.option("--predict-route", metavar="PATH", help="Where the container takes requests for predictions."),
        click.option(
            "--ports", type=Ports(), metavar="PORT,...", help="The port that the container listens on. Default: 8080."
        ),
        click.option("--env-vars", type=KeyValues(), metavar="NAME=VALUE,...", help="Variables for the container."),
        click.option("--args", type=Names(), metavar="ARG,...", help="Arguments, instead of the image's own."),
        click.option("--command", type=Names(), metavar="WORD,...", help="The command, instead of the image's own."),
        click.option(
            "--image", metavar="IMAGE", help="A container image that serves the version, with an HTTP server in it."
        ),
    ):
        command = option(command)
    return command


def _explanation_options(command: F) -> F:
    for option in (
        click.option(
            "--num-paths", type=click.IntRange(1), metavar="N", help="For sampled-shapley. Default: 50 paths."
        ),
        click.option(
            "--num-integral-steps",
            type=click.IntRange(1),
            metavar="N",
            help="For integrated-gradients. Default: 50 steps.",
        ),
        click.option(
            "--explanation-method",
            type=WordChoice("integrated-gradients", "sampled-shapley", "xrai"),
            metavar="METHOD",
            help="Serve `explain` too, by integrated-gradients or sampled-shapley.",
        ),
    ):
        command = option(command)
    return command


@click.command(cls=Command)
@click.argument("version")
@click.option("--model", required=True, metavar="MODEL", help="The model to add the version to.")
@project_option
@region_option
@click.option("--origin", metavar="FOLDER", help="The exported model: gs://BUCKET/FOLDER, or a folder on this machine.")
@click.option(
    "--staging-bucket",
    type=BucketName(),
    metavar="gs://BUCKET",
    help="Where local files are uploaded to. Default: gs://PROJECT-staging, made if need be.",
)
@click.option("--config", type=Path, metavar="FILE", help="A Version in YAML or JSON. Flags override it.")
@click.option(
    "--framework",
    type=WordChoice(*FRAMEWORKS),
    metavar="NAME",
    help=f"One of {', '.join(FRAMEWORKS)}. Default: detected from the files.",
)
@click.option("--runtime-version", metavar="VERSION", help="The runtime; `trainshed runtimes list` shows them.")
@click.option("--python-version", metavar="VERSION", help="The Python version, such as 3.7.")
@click.option("--machine-type", metavar="TYPE", help="Such as n1-standard-2. Only on a cluster does it matter.")
@click.option("--accelerator", type=KeyValues(), metavar="type=TYPE,count=N", help="Rejected: hosts compute on CPUs.")
@click.option("--description", metavar="TEXT", help="Kept with the version.")
@click.option("--labels", type=KeyValues(), help="Labels for the version.")
@click.option(
    "--engine",
    metavar="NAME",
    help="Where its hosts run: local or ray. Default: the model's label trainshed-engine, or the server's setting "
    "`engine`. Sets that label of the version.",
)
@scaling_options
@click.option(
    "--batching",
    type=WordChoice("auto", "exact", "off"),
    metavar="MODE",
    help="auto: batch requests if answers stay the same but for rounding. exact: only if to the last bit. off: never. "
    "Default: auto.",
)
@click.option(
    "--precision",
    type=WordChoice("f32", "bf16"),
    metavar="NAME",
    help="bf16: compute in bfloat16, which is faster on processors that have it, and less exact. What that changes is "
    "measured and shown with the version. Default: f32.",
)
@click.option("--prediction-class", metavar="MODULE.CLASS", help="A class of yours that does the predictions.")
@click.option(
    "--package-uris", type=Names(), metavar="FILE,...", help="Packages with that class: gs:// names or local archives."
)
@click.option("--service-account", metavar="EMAIL", help="Rejected: there are no service accounts.")
@_explanation_options
@_container_options
@click.option("--async", "async_", is_flag=True, help="Return immediately; don't wait until it is ready.")
def create(version: str, model: str, project: str | None, **flags: Any) -> None:
    """Create a version of a model from what a training exported, and wait until it is ready to predict.

    \b
    Example:
      trainshed versions create v1 --model MNIST --origin gs://my-bucket/my_job/export/Servo/1605475055/ \\
          --runtime-version 2.21
      trainshed versions create v1 --model mine --image example/predictor:1.0 --ports 8080 \\
          --predict-route /predict --health-route /health
    """
    check_flags(flags)
    config = read_config(flags["config"], CREATABLE)
    body = version_body(version, flags=flags, config=config)
    context = session(project)
    origin = flags["origin"] or config.get("deploymentUri")
    if not origin and "container" not in body:
        raise InvalidArgumentError(_NO_ORIGIN)
    staging = flags["staging_bucket"]
    if origin:
        body["deploymentUri"] = origin if is_uri(origin) else _upload(context, Path(origin), staging)
    if packages := list(flags["package_uris"] or config.get("packageUris") or ()):
        body["packageUris"] = [uri if is_uri(uri) else _upload(context, Path(uri), staging) for uri in packages]
    check_command = f"trainshed versions describe {body['name']} --model {model}"
    operation = create_once(context, f"{path_of(context, model)}/versions", body, check_command=check_command)
    name = str(operation["name"]).rpartition("/")[2]
    if flags["async_"]:
        say(f"Version [{version}] is being created. Wait for it with: trainshed operations wait {name}")
        return
    details = f"{native_path_of(context, model)}/versions/{segment(version)}"
    wait_until_done(
        context,
        operation,
        "Creating version (this might take a few minutes)",
        progress=lambda: str(context.client.call("GET", details).get("progress", "")),
    )
    for note in context.client.call("GET", details).get("notes", ()):
        say(f"\n{note}")


def read_config(path: Path | None, allowed: tuple[str, ...]) -> dict[str, Any]:
    """Read the Version in a YAML or JSON file. Versions and labels stay strings, however they are written."""
    if path is None:
        return {}
    config, strings = read_yaml(path)
    if config is None:
        return {}
    if not isinstance(config, dict):
        raise InvalidArgumentError(
            f"[{path}] must hold a Version: a map with fields such as deploymentUri and runtimeVersion."
        )
    check_fields(config, path, allowed)
    return config | {name: strings[name] for name in ("runtimeVersion", "pythonVersion", "labels") if config.get(name)}


def _upload(context: CommandContext, path: Path, staging: str | None) -> str:
    return stage_upload(
        context, path, staging, run_transfers=lambda all_: run(context.storage, all_, bar=None, quiet=True), notify=say
    )
