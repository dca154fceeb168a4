"""local predict: one request to an exported model, answered by the code that serves deployed ones, without a server."""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainshed.config import Home
from trainshed.domain.models.hosting import candidate_loaders
from trainshed.engines.shipping import ship
from trainshed.errors import InvalidArgumentError, TrainshedError
from trainshed.local.buckets import LocalBuckets

#: gcloud's words for frameworks, and the API's. Not given: the files tell.
FRAMEWORKS = {"tensorflow": "TENSORFLOW", "scikit-learn": "SCIKIT_LEARN", "xgboost": "XGBOOST"}

_LAST_LINES = 20
_TOLD = re.compile(r"\(Error code: \d+\)$")


class LocalModelError(TrainshedError):
    """The loader's own words."""


def model_folder(home: Home, given: str) -> Path:
    """The folder that `--model-dir` means: a path, or gs:// in a bucket of this machine."""
    folder = LocalBuckets(home).folder(given) if given.startswith("gs://") else Path(given).expanduser().absolute()
    if not folder.is_dir():
        raise InvalidArgumentError(f"[{given}] is not a folder. Name the folder that holds the exported model.")
    return folder


def candidates(folder: Path, framework: str | None) -> tuple[str, ...]:
    """The loaders that may serve what is in the folder, best first: those that a server would try."""
    names = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]
    return candidate_loaders(
        names, framework=FRAMEWORKS[framework] if framework else "", prediction_class="", where=str(folder)
    )


def answer(python: Path, home: Home, folder: Path, loader: str, body: Mapping[str, Any]) -> tuple[bool, Any]:
    """Whether the request was answered well, and the answer.

    `LocalModelError` if the loader can't load the model, `TrainshedError` if the model crashed.
    """
    with tempfile.TemporaryDirectory(prefix="trainshed-predict-") as scratch:
        spec = Path(scratch) / "spec.json"
        spec.write_text(json.dumps({"format": 1, "model_dir": str(folder), "loader": loader}))
        done = subprocess.run(
            [python, ship(home.node) / "run.py", "predict", spec],
            input=json.dumps(body).encode(),
            capture_output=True,
            check=False,
        )
    if done.stdout:
        return done.returncode == 0, json.loads(done.stdout)
    lines = done.stderr.decode(errors="replace").strip().splitlines()
    if done.returncode == 1 and lines and _TOLD.search(lines[-1]):
        raise LocalModelError(lines[-1])
    ended = f"signal {-done.returncode}" if done.returncode < 0 else f"exit status {done.returncode}"
    raise TrainshedError(
        f"The model gave no answer and ended with {ended}. Its last lines:\n" + "\n".join(lines[-_LAST_LINES:])
    )
