"""local predict: one request to an exported model, through the code that serves deployed models, without a server."""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainshed.config import Home
from trainshed.domain.models.hosting import FRAMEWORKS, candidate_loaders
from trainshed.domain.uris import is_uri
from trainshed.engines.shipping import ship
from trainshed.errors import InvalidArgumentError, TrainshedError
from trainshed.local.buckets import LocalBuckets

_LOG_TAIL_LINES = 20
_LOADER_ERROR = re.compile(r"\(Error code: \d+\)$")


class LocalModelError(TrainshedError):
    """The loader can't load the model. The message is the loader's own."""


def model_folder(home: Home, name: str) -> Path:
    """Return the folder that `--model-dir` names: a path, or gs:// in a bucket of this machine."""
    folder = LocalBuckets(home).folder(name) if is_uri(name) else Path(name).expanduser().absolute()
    if not folder.is_dir():
        raise InvalidArgumentError(f"[{name}] is not a folder. Name the folder that holds the exported model.")
    return folder


def candidates(folder: Path, framework: str | None) -> tuple[str, ...]:
    """Return the loaders for the files in the folder, best first, as a server would try them."""
    names = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]
    return candidate_loaders(
        names, framework=FRAMEWORKS[framework] if framework else "", prediction_class="", where=str(folder)
    )


def run_request(python: Path, home: Home, folder: Path, loader: str, body: Mapping[str, Any]) -> tuple[bool, Any]:
    """Run one request. Returns whether it succeeded, and the response.

    Raises `LocalModelError` if the loader can't load the model, `TrainshedError` if the model crashes.
    """
    with tempfile.TemporaryDirectory(prefix="trainshed-predict-") as scratch:
        spec = Path(scratch) / "spec.json"
        spec.write_text(json.dumps({"format": 1, "model_dir": str(folder), "loader": loader}))
        result = subprocess.run(
            [python, ship(home.node) / "run.py", "predict", spec],
            input=json.dumps(body).encode(),
            capture_output=True,
            check=False,
        )
    if result.stdout:
        return result.returncode == 0, json.loads(result.stdout)
    lines = result.stderr.decode(errors="replace").strip().splitlines()
    if result.returncode == 1 and lines and _LOADER_ERROR.search(lines[-1]):
        raise LocalModelError(lines[-1])
    exit_status = f"signal {-result.returncode}" if result.returncode < 0 else f"exit status {result.returncode}"
    raise TrainshedError(
        f"The model gave no answer and ended with {exit_status}. Its last lines:\n"
        + "\n".join(lines[-_LOG_TAIL_LINES:])
    )
