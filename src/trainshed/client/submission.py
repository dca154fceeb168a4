"""From a trainer on the user's machine to a job: its packages, built and uploaded, and the Job that a file holds."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from trainshed.client.context import ClientContext
from trainshed.client.operations import create_once
from trainshed.client.transport import ApiError
from trainshed.errors import InvalidArgumentError, NotFoundError

REGION = "us-central1"


def read_config(path: Path) -> dict[str, Any]:
    """The Job in a YAML or JSON file. Versions, labels and arguments are texts, however they are written."""
    config, words = read_yaml(path)
    if config is None:
        return {}
    if not isinstance(config, dict) or not isinstance(config.get("trainingInput") or {}, dict):
        raise InvalidArgumentError(
            f"[{path}] must hold a Job: a map with jobId, labels and trainingInput, all of them optional."
        )
    if config.get("labels"):
        config["labels"] = words["labels"]
    for name in ("runtimeVersion", "pythonVersion", "args"):  # 1.10 is not 1.1
        if name in (config.get("trainingInput") or {}):
            config["trainingInput"][name] = words["trainingInput"][name]
    return config


def packages(
    stack: ExitStack, *, package_path: Path | None, given: Sequence[str | Path]
) -> tuple[list[Path], list[str]]:
    """Local archives, with the one built from `package_path`, and the names of those that are in buckets already.

    What is built is gone when `stack` is left.
    """
    remote = [str(name) for name in given if str(name).startswith("gs://")]
    files = [Path(name) for name in given if not str(name).startswith("gs://")]
    for file in files:
        if not file.is_file():
            raise InvalidArgumentError(f"Unable to read file [{file}]: there is no such file.")
    if package_path is not None:
        from trainshed.packaging import build

        files.insert(0, stack.enter_context(build(package_path)).path)
    return files, remote


def upload(here: ClientContext, names: dict[Path, str]) -> None:
    """Put each file under its name. A bucket that does not exist is said to be the trouble."""
    for path, name in names.items():
        bucket, _, rest = name.removeprefix("gs://").partition("/")
        try:
            with open(path, "rb") as file:
                size = path.stat().st_size
                here.storage.upload(file, (bucket, rest), content_type="application/x-tar", size=size)
        except ApiError as exc:
            if exc.code == 404:
                raise no_bucket(bucket) from exc
            raise


def no_bucket(bucket: str) -> NotFoundError:
    return NotFoundError(
        f"Could not upload file: [{bucket}] bucket does not exist. Make it with: trainshed buckets mb gs://{bucket}"
    )


def check_runnable(body: dict[str, Any]) -> None:
    """A job without an image of its own needs a module and packages."""
    training = body["trainingInput"]
    if training.get("masterConfig", {}).get("imageUri"):
        return
    if not training.get("packageUris"):
        raise InvalidArgumentError("Non-custom jobs must have packages.")
    if not training.get("pythonModule"):
        raise InvalidArgumentError("Non-custom jobs must have a module name: give --module-name.")


def created(here: ClientContext, body: dict[str, Any]) -> dict[str, Any]:
    """The job that the server made of a body."""
    return create_once(here, here.ml("jobs"), body, look_with=f"trainshed jobs describe {body['jobId']}")


def read_yaml(path: Path) -> tuple[Any, Any]:
    """What a file holds, twice: with numbers as numbers, and with every value as the text that it was written as.

    1.10 is a version, and not the number 1.1: which of the two is meant depends on the field.
    """
    import yaml

    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as exc:
        raise InvalidArgumentError(f"Failed to load YAML from [{path}]: Unable to read file [{path}]: {exc}") from exc
    try:
        return yaml.safe_load(text), yaml.load(text, Loader=yaml.BaseLoader)  # noqa: S506  BaseLoader makes texts only
    except yaml.YAMLError as exc:
        raise InvalidArgumentError(f"Failed to parse YAML from [{path}]: {exc}") from exc
