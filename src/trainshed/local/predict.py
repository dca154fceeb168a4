"""local predict: one request to an exported model, answered by the code that serves deployed ones, without a server."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainshed.config import Home
from trainshed.engines.local import ship
from trainshed.errors import Invalid, TrainshedError
from trainshed.local.addresses import LocalBuckets

#: gcloud's words for frameworks -> the loaders of serving. Not given: the files tell.
LOADERS = {"tensorflow": "tensorflow", "scikit-learn": "sklearn", "xgboost": "xgboost"}

_LAST_LINES = 20


def model_folder(home: Home, given: str) -> Path:
    """The folder that `--model-dir` means: a path, or gs:// in a bucket of this machine."""
    folder = LocalBuckets(home).folder(given) if given.startswith("gs://") else Path(given).expanduser().absolute()
    if not folder.is_dir():
        raise Invalid(f"[{given}] is not a folder. Name the folder that holds the exported model.")
    return folder


def spec(folder: Path, framework: str | None) -> dict[str, Any]:
    """What the serving code is told: the same as for a host, but for all that has to do with other requests."""
    return {"format": 1, "model_dir": str(folder), "loader": LOADERS[framework] if framework else ""}


def answer(python: Path, home: Home, told: Mapping[str, Any], body: Mapping[str, Any]) -> tuple[bool, Any]:
    """Whether the request was answered well, and the answer. `TrainshedError` if there is none: the model crashed."""
    with tempfile.TemporaryDirectory(prefix="trainshed-predict-") as folder:
        file = Path(folder) / "spec.json"
        file.write_text(json.dumps(told))
        done = subprocess.run(
            [python, ship(home.node) / "run.py", "predict", file],
            input=json.dumps(body).encode(),
            capture_output=True,
            check=False,
        )
    try:
        return done.returncode == 0, json.loads(done.stdout)
    except ValueError as exc:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        ended = f"signal {-done.returncode}" if done.returncode < 0 else f"exit status {done.returncode}"
        text = "\n".join(said[-_LAST_LINES:])
        raise TrainshedError(f"The model gave no answer and ended with {ended}. Its last lines:\n{text}") from exc
