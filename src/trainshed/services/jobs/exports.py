"""What a job exported: the folders of its own that a version can be created from."""

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

_FRAMEWORKS = {"openvino": "TENSORFLOW", "keras": "TENSORFLOW", "xgboost": "XGBOOST"}
_MOST = 200
_WEIGHTS = (".weights.h5", "_weights.h5")  #: of a model, without the model


class Exports:
    """Reads only. Threads may share it. `owner` says which project a bucket belongs to, or raises `NotFoundError`."""

    def __init__(self, jobs: JobStore, tree: Lister, *, owner: Callable[[str], str]) -> None:
        self._jobs = jobs
        self._tree = tree
        self._owner = owner

    def of(self, project: str, job_id: str) -> dict[str, Any]:
        """Newest first."""
        job = self._jobs.get(project, job_id)
        found: dict[tuple[str, ...], ModelFolder] = {}
        for place in output_folders.folders(job, self._owner):
            for folder in model_folders(self._tree, place, holds_model=lambda names: bool(kinds(names))):
                found[folder.parts] = folder
        newest = sorted(found.values(), key=lambda folder: (folder.time_us, folder.parts), reverse=True)
        return {"exports": [_body(folder, job) for folder in newest[:_MOST]]}


def kinds(names: Collection[str]) -> tuple[str, ...]:
    """What may serve the model that these files are; nothing if they are none, or more than one."""
    try:
        whole = [name for name in names if not name.endswith(_WEIGHTS)]
        return candidate_loaders(whole, framework="", prediction_class="", where="it")
    except FailedPreconditionError:
        return ()


def _body(folder: ModelFolder, job: Job) -> dict[str, Any]:
    loader = kinds(folder.files)[0]
    return {
        "uri": f"gs://{'/'.join(folder.parts)}/",
        "time": rfc3339(folder.time_us),
        "framework": _FRAMEWORKS.get(loader, ""),  # a pickle tells only those who open it
        "runtime": job.runtime if job.runtime[:1].isdigit() else "",
    }
