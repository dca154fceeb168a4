"""From a local trainer to a job: packages are built and uploaded, and a config file holds the Job."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from trainshed.client.context import ClientContext
from trainshed.client.operations import create_once
from trainshed.client.transport import ApiError
from trainshed.domain.uris import is_uri, uri_parts
from trainshed.errors import InvalidArgumentError, NotFoundError

REGION = "us-central1"


def read_config(path: Path) -> dict[str, Any]:
    """Read the Job in a YAML or JSON file. Versions, labels and arguments stay strings, however they are written."""
    config, strings = read_yaml(path)
    if config is None:
        return {}
    if not isinstance(config, dict) or not isinstance(config.get("trainingInput") or {}, dict):
        raise InvalidArgumentError(
            f"[{path}] must hold a Job: a map with jobId, labels and trainingInput, all of them optional."
        )
    if config.get("labels"):
        config["labels"] = strings["labels"]
    for name in ("runtimeVersion", "pythonVersion", "args"):  # 1.10 is not 1.1
        if name in (config.get("trainingInput") or {}):
            config["trainingInput"][name] = strings["trainingInput"][name]
    return config


def packages(
    stack: ExitStack, *, package_path: Path | None, arguments: Sequence[str | Path]
) -> tuple[list[Path], list[str]]:
    """Return the local archives, with the one built from `package_path`, and the URIs of those already in buckets.

    The built archive is deleted when `stack` closes.
    """
    remote = [str(name) for name in arguments if is_uri(str(name))]
    files = [Path(name) for name in arguments if not is_uri(str(name))]
    for file in files:
        if not file.is_file():
            raise InvalidArgumentError(f"Unable to read file [{file}]: there is no such file.")
    if package_path is not None:
        from trainshed.packaging import build

        files.insert(0, stack.enter_context(build(package_path)).path)
    return files, remote


def upload(context: ClientContext, names: dict[Path, str]) -> None:
    """Upload each file to its URI. Raises `NotFoundError` if the bucket does not exist."""
    for path, name in names.items():
        bucket, rest = uri_parts(name)
        try:
            with open(path, "rb") as file:
                size = path.stat().st_size
                context.storage.upload(file, (bucket, rest), content_type="application/x-tar", size=size)
        except ApiError as exc:
            if exc.code == 404:
                raise no_bucket(bucket) from exc
            raise


def no_bucket(bucket: str) -> NotFoundError:
    return NotFoundError(
        f"Could not upload file: [{bucket}] bucket does not exist. Make it with: trainshed buckets mb gs://{bucket}"
    )


def check_runnable(body: dict[str, Any]) -> None:
    """Raises `InvalidArgumentError` for a job without an image that has no module or no packages."""
    training = body["trainingInput"]
    if training.get("masterConfig", {}).get("imageUri"):
        return
    if not training.get("packageUris"):
        raise InvalidArgumentError("Non-custom jobs must have packages.")
    if not training.get("pythonModule"):
        raise InvalidArgumentError("Non-custom jobs must have a module name: give --module-name.")


def create_job(context: ClientContext, body: dict[str, Any]) -> dict[str, Any]:
    """Create the job and return it."""
    return create_once(context, context.ml("jobs"), body, check_command=f"trainshed jobs describe {body['jobId']}")


def read_yaml(path: Path) -> tuple[Any, Any]:
    """Return the content of a file twice: with typed values, and with every value as the string in the file.

    1.10 may be a version rather than the number 1.1: the field decides which one is used.
    """
    import yaml

    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as exc:
        raise InvalidArgumentError(f"Failed to load YAML from [{path}]: Unable to read file [{path}]: {exc}") from exc
    try:
        return yaml.safe_load(text), yaml.load(text, Loader=yaml.BaseLoader)  # noqa: S506  makes strings only
    except yaml.YAMLError as exc:
        raise InvalidArgumentError(f"Failed to parse YAML from [{path}]: {exc}") from exc
