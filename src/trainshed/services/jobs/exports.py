"""The exported models of a job: folders that a version can be created from."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from trainshed.buckets.glob import Lister
from trainshed.buckets.model_folders import ModelFolder, model_folders
from trainshed.domain.jobs.job import Job
from trainshed.domain.models.hosting import candidate_loaders
from trainshed.domain.times import rfc3339
from trainshed.errors import FailedPreconditionError
from trainshed.services.jobs import output_folders
from trainshed.store.jobs import JobStore

_FRAMEWORKS = {
    "tensorflow": "TENSORFLOW",
    "keras": "TENSORFLOW",
    "onnxruntime": "ONNX",
    "xgboost": "XGBOOST",
    "lightgbm": "LIGHTGBM",
    "catboost": "CATBOOST",
    "pytorch": "PYTORCH",
}
_MAX_EXPORTS = 200
_WEIGHTS = (".weights.h5", "_weights.h5")  #: weights without their model


class Exports:
    """Finds exported models. Read-only. Thread-safe.

    `owner` returns the project of a bucket, or raises `NotFoundError`.
    """

    def __init__(self, jobs: JobStore, lister: Lister, *, owner: Callable[[str], str]) -> None:
        self._jobs = jobs
        self._lister = lister
        self._owner = owner

    def of(self, project: str, job_id: str) -> dict[str, Any]:
        """Return the exports of a job, newest first."""
        job = self._jobs.get(project, job_id)
        exports: dict[tuple[str, ...], ModelFolder] = {}
        for output in output_folders.folders(job, self._owner):
            for folder in model_folders(self._lister, output, holds_model=lambda names: bool(kinds(names))):
                exports[folder.parts] = folder
        newest = sorted(exports.values(), key=lambda folder: (folder.time_us, folder.parts), reverse=True)
        return {"exports": [_body(folder, job) for folder in newest[:_MAX_EXPORTS]]}


def kinds(names: Collection[str]) -> tuple[str, ...]:
    """Return the candidate loaders for these files. Returns none if they are no model or more than one."""
    try:
        complete = [name for name in names if not name.endswith(_WEIGHTS)]
        return candidate_loaders(complete, framework="", prediction_class="", where="it")
    except FailedPreconditionError:
        return ()


def _body(folder: ModelFolder, job: Job) -> dict[str, Any]:
    loader = kinds(folder.files)[-1]
    return {
        "uri": f"gs://{'/'.join(folder.parts)}/",
        "time": rfc3339(folder.time_us),
        "framework": _FRAMEWORKS.get(loader, ""),  # the framework of a pickle is unknown until it is loaded
        "runtime": "" if job.runtime == "python" else job.runtime,
    }
