"""Builds attempt specs of batch predictions: model files, loader and input files."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import orjson

from trainshed.attempts.batch_progress import PREDICTION_FOLDER
from trainshed.buckets.backend import BucketBackend
from trainshed.buckets.glob import glob_objects
from trainshed.buckets.names import split_uri
from trainshed.config import Settings
from trainshed.control.deployments.mlflow_folders import read_mlflow_model
from trainshed.control.deployments.provisioner import VersionProvisioner
from trainshed.control.jobs.local_attempt import report_build
from trainshed.domain.jobs import gang
from trainshed.domain.jobs.batch_prediction import BatchPrediction, cloud_output_unsupported, guarded_output_unsupported
from trainshed.domain.jobs.job import Job, JobEvent, JobEventKind
from trainshed.domain.models import hosting as rules
from trainshed.domain.models.version_container import batch_prediction_unsupported, container_of
from trainshed.domain.times import now_us
from trainshed.engines.base import AttemptSpec, Replica
from trainshed.engines.hosts.spec import HostSpec, render
from trainshed.errors import FailedPreconditionError, NotFoundError
from trainshed.store.jobs import JobStore
from trainshed.store.models import ModelStore

MODULE = "trainshed_serving.batch"
_WARM_LOADER = "tensorflow"  #: the only loader that profits from a warm process


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchAttemptBuilder:
    """Builds attempt specs of batch predictions."""

    settings: Settings
    jobs: JobStore
    models: ModelStore
    provisioner: VersionProvisioner
    backend: BucketBackend
    buckets: Callable[[str], Iterable[str]]  #: the buckets of a project that are folders
    ship: Callable[[], Path]  #: returns the folder with the serving code, for Pythons without Trainshed

    def prepare(self, job: Job, prediction: BatchPrediction, folder: Path) -> AttemptSpec:
        """Build the spec of the attempt in `folder`. Blocks while a runtime is built and files are copied."""
        state_folder = folder / PREDICTION_FOLDER
        state_folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        model_dir, inputs, plan_file = folder / "model", folder / "inputs", folder / "plan.json"
        spec = self._spec(job, prediction, model_dir)
        plan = self._plan(job, prediction, spec, inputs)
        plan_file.write_bytes(orjson.dumps(plan | {"state": str(state_folder)}))
        env = gang.common_environment(job, prediction, cpus=self.provisioner.resources.cpus)
        [replica] = gang.gang(prediction)
        return AttemptSpec(
            project=job.project,
            job=job.id,
            attempt=job.attempt,
            folder=folder,
            python=spec.python,
            module=MODULE,
            args=(str(plan_file),),
            packages=(),
            site=folder / "site",
            replicas=(Replica(name=replica.name, type=replica.type, index=replica.index, primary=True),),
            env=env | {"PYTHONPATH": str(self.ship())},
            grace_s=self.settings.grace_s,
            max_running_s=prediction.max_running_s,
            log_limit_bytes=self.settings.log_limit_mb << 20,
            hang_timeout_s=self.settings.hang_timeout_s,
            hang_restart=self.settings.hang_restart,
            warm=spec.loader == _WARM_LOADER,
            readable=(plan_file, model_dir, inputs, self.ship(), *([Path(spec.site)] if spec.site else ())),
            writable=(state_folder, *(self.provisioner.deps.home.buckets / name for name in self.buckets(job.project))),
        )

    def _plan(self, job: Job, prediction: BatchPrediction, spec: HostSpec, inputs: Path) -> dict[str, object]:
        uri_resolver = self.provisioner.deps.uri_resolver
        if cloud := uri_resolver.cloud_of(job.project, prediction.output_path):
            raise cloud_output_unsupported(prediction.output_path, cloud)
        if uri_resolver.guards(prediction.output_path):
            raise guarded_output_unsupported(prediction.output_path)
        missing = FailedPreconditionError(
            f"The input or the output of job {job.id} is no longer in a bucket of project {job.project}."
        )
        output = uri_resolver.path_resolver(job.project, serves_gs=True)(prediction.output_path)
        uris = list(self._input_uris(prediction))
        if output is None or not uris:
            raise missing
        try:
            paths = [uri_resolver.local_file(job.project, uri, copies=inputs) for uri in uris]
        except NotFoundError as exc:
            raise missing from exc
        buckets = self.provisioner.deps.home.buckets
        if output.resolve() != buckets.resolve() / output.relative_to(buckets):
            raise FailedPreconditionError(
                f"There is a link on the way to {prediction.output_path}. Results are written to plain folders alone."
            )
        return {
            "spec": render(spec, Path()),
            "root": str(buckets),
            "inputs": [str(path) for path in paths],
            "names": {str(path): uri for path, uri in zip(paths, uris, strict=True)},
            "output": str(output),
            "data_format": prediction.data_format.value,
            "batch_size": prediction.batch_size,
            "signature": prediction.signature,
        }

    def _input_uris(self, prediction: BatchPrediction) -> Iterator[str]:
        """Yield the URIs of all input files, each once, in order."""
        uris: set[str] = set()
        for path in prediction.input_paths:
            bucket, pattern = split_uri(path)
            for name in glob_objects(self.backend, bucket, pattern):
                uri = f"gs://{bucket}/{name}"
                if uri not in uris:
                    uris.add(uri)
                    yield uri

    def _spec(self, job: Job, prediction: BatchPrediction, model_dir: Path) -> HostSpec:
        """Build the host spec on the job's own hard links, so that a version may be deleted while the job runs."""
        if prediction.uri:
            spec = self._spec_of_folder(job, prediction, model_dir)
        else:
            version = self.models.served(prediction.project, prediction.model, prediction.version)
            self._add_event(job, f"The rows are predicted by version {version.id} of model {version.model}.")
            if container_of(version) is not None:
                raise batch_prediction_unsupported(version.model)
            spec = self.provisioner.spec_of_existing(version)
            _hard_link(spec.model_dir, model_dir)
        resources = self.provisioner.resources
        threads, memory = rules.threads_per_host(resources.cpus, 1), rules.memory_per_host(resources.memory_bytes, 1)
        return replace(spec, model_dir=model_dir, threads=threads, memory_bytes=memory)

    def _spec_of_folder(self, job: Job, prediction: BatchPrediction, model_dir: Path) -> HostSpec:
        deps = self.provisioner.deps
        python = deps.runtimes.ensure(job.runtime, report_build(self.jobs, job))
        with deps.model_files.snapshot(job.project, prediction.uri, check=lambda: None) as files:
            mlflow = read_mlflow_model(files.folder, where=prediction.uri)
            if mlflow is not None and mlflow.needs_mlflow:
                raise FailedPreconditionError(
                    f"The model of MLflow in {prediction.uri} needs packages of its own. Create a version of it, and "
                    f"name the version in place of the folder."
                )
            names = (
                rules.candidate_loaders(files.names, framework="", prediction_class="", where=prediction.uri)
                if mlflow is None
                else mlflow.loaders
            )
            _hard_link(files.folder, model_dir)
        return HostSpec(
            project=job.project,
            model="",
            version="",
            instance=0,
            python=python,
            model_dir=model_dir,
            subfolder=mlflow.subfolder if mlflow is not None else "",
            loader=names[-1],
            threads=1,
            body_limit=self.provisioner.resources.body_limit,
        )

    def _add_event(self, job: Job, message: str) -> None:
        self.jobs.tell(job, JobEvent(kind=JobEventKind.PREPARING, message=message, time_us=now_us()))


def _hard_link(source: Path, target: Path) -> None:
    """Hard-link all files into another folder, which takes no extra space. Replaces those of an earlier attempt."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target, copy_function=os.link)
