"""From a batch prediction to one attempt with nothing left to decide: its model's files, its loader, its rows."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import orjson

from trainshed.attempts.batch_progress import FOLDER
from trainshed.buckets.backend import BucketBackend
from trainshed.buckets.glob import glob_objects
from trainshed.buckets.names import split_uri
from trainshed.config import Settings
from trainshed.control.deployments.provisioner import VersionProvisioner
from trainshed.control.jobs.local_attempt import report_build
from trainshed.domain.jobs import gang
from trainshed.domain.jobs.batch_prediction import BatchPrediction, cloud_output_unsupported
from trainshed.domain.jobs.job import Job, JobEvent
from trainshed.domain.models import hosting as rules
from trainshed.domain.models.version_container import batch_prediction_unsupported, container_of
from trainshed.domain.times import now_us
from trainshed.engines.base import AttemptSpec, Replica
from trainshed.engines.hosts.spec import HostSpec, render
from trainshed.errors import FailedPreconditionError, NotFoundError
from trainshed.store.jobs import JobStore
from trainshed.store.models import ModelStore

MODULE = "trainshed_serving.batch"
_WARM = "tensorflow"  #: the loader that gains from a process that has TensorFlow imported; others are better alone


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchAttemptBuilder:
    """Prepares attempts at batch predictions."""

    settings: Settings
    jobs: JobStore
    models: ModelStore
    creations: VersionProvisioner
    tree: BucketBackend
    ship: Callable[[], Path]  #: the folder with the code that serves models, for Pythons that have no Trainshed

    def prepare(self, job: Job, folder: Path) -> AttemptSpec:
        """Settle everything for the attempt that has `folder`. Blocks while a runtime is built and files are copied."""
        prediction = BatchPrediction.parse(job.body[BatchPrediction.key])
        own = folder / FOLDER
        own.mkdir(mode=0o700, parents=True, exist_ok=True)
        spec = self._spec(job, prediction, own / "model")
        (own / "plan.json").write_bytes(orjson.dumps(self._plan(job, prediction, spec, own)))
        env = gang.common_environment(job, prediction, cpus=self.creations.room.cpus)
        [master] = gang.gang(prediction)
        return AttemptSpec(
            project=job.project,
            job=job.id,
            attempt=job.attempt,
            folder=folder,
            python=spec.python,
            module=MODULE,
            args=(str(own / "plan.json"),),
            packages=(),
            site=own / "site",
            replicas=(Replica(name=master.name, type=master.type, index=master.index, primary=True),),
            env=env | {"PYTHONPATH": str(self.ship())},
            grace_s=self.settings.grace_s,
            max_running_s=prediction.max_running_s,
            log_limit_bytes=self.settings.log_limit_mb << 20,
            warm=spec.loader == _WARM,
        )

    def _plan(self, job: Job, prediction: BatchPrediction, spec: HostSpec, own: Path) -> dict[str, object]:
        addresses = self.creations.supplies.addresses
        if cloud := addresses.cloud_of(job.project, prediction.output_path):
            raise cloud_output_unsupported(prediction.output_path, cloud)
        gone = FailedPreconditionError(
            f"The input or the output of job {job.id} is no longer in a bucket of project {job.project}."
        )
        output = addresses.path_resolver(job.project, serves_gs=True)(prediction.output_path)
        uris = list(self._rows(prediction))
        if output is None or not uris:
            raise gone
        try:
            paths = [addresses.local_file(job.project, uri, copies=own / "inputs") for uri in uris]
        except NotFoundError as exc:
            raise gone from exc
        buckets = self.creations.supplies.home.buckets
        if output.resolve() != buckets.resolve() / output.relative_to(buckets):
            raise FailedPreconditionError(
                f"There is a link on the way to {prediction.output_path}. Results are written to plain folders alone."
            )
        return {
            "spec": render(spec, Path()),
            "inputs": [str(path) for path in paths],
            "names": {str(path): uri for path, uri in zip(paths, uris, strict=True)},
            "output": str(output),
            "state": str(own),
            "data_format": prediction.data_format.value,
            "batch_size": prediction.batch_size,
            "signature": prediction.signature,
        }

    def _rows(self, prediction: BatchPrediction) -> Iterator[str]:
        """The addresses of all input files, each once, in order."""
        seen: set[str] = set()
        for address in prediction.input_paths:
            bucket, pattern = split_uri(address)
            for name in glob_objects(self.tree, bucket, pattern):
                uri = f"gs://{bucket}/{name}"
                if uri not in seen:
                    seen.add(uri)
                    yield uri

    def _spec(self, job: Job, prediction: BatchPrediction, model: Path) -> HostSpec:
        """What to load, from files of the job's own, so that a version may be deleted while the job goes on."""
        if prediction.uri:
            spec = self._spec_of_folder(job, prediction, model)
        else:
            version = self.models.served(prediction.project, prediction.model, prediction.version)
            self._tell(job, f"The rows are predicted by version {version.id} of model {version.model}.")
            if container_of(version) is not None:
                raise batch_prediction_unsupported(version.model)
            spec = self.creations.spec_of_existing(version)
            _link(spec.model_dir, model)
        room = self.creations.room
        threads, memory = rules.threads_per_host(room.cpus, 1), rules.memory_per_host(room.memory_bytes, 1)
        return replace(spec, model_dir=model, threads=threads, memory_bytes=memory)

    def _spec_of_folder(self, job: Job, prediction: BatchPrediction, model: Path) -> HostSpec:
        supplies = self.creations.supplies
        python = supplies.runtimes.ensure(job.runtime, report_build(self.jobs, job))
        with supplies.pins.snapshot(job.project, prediction.uri, check=lambda: None) as pinned:
            loader = rules.candidate_loaders(pinned.names, framework="", prediction_class="", where=prediction.uri)[-1]
            _link(pinned.folder, model)
        return HostSpec(
            project=job.project,
            model="",
            version="",
            instance=0,
            python=python,
            model_dir=model,
            loader=loader,
            threads=1,
            body_limit=self.creations.room.body_limit,
        )

    def _tell(self, job: Job, line: str) -> None:
        self.jobs.tell(job, JobEvent(message=line, time_us=now_us()))


def _link(source: Path, target: Path) -> None:
    """The same files in another folder, which takes no more room. Those of an earlier try are replaced."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target, copy_function=os.link)
