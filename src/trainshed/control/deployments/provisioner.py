"""Provisions versions: copies files, builds the runtime, installs packages or resolves the image, and starts a host."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from trainshed.artifacts.staging import Package
from trainshed.buckets.names import split_uri
from trainshed.config import Home
from trainshed.control.deployments.mlflow_folders import read_mlflow_model, requirements_of
from trainshed.control.deployments.model_files import NO_FILES, ModelFileStore, ModelSnapshot
from trainshed.control.packages import PackageRequest, resolve_packages, site_name
from trainshed.control.uri_resolver import UriResolver
from trainshed.domain.access.secrets import requested
from trainshed.domain.image_registries import ImageRegistries
from trainshed.domain.models import hosting as rules
from trainshed.domain.models.mlflow_models import MlflowModel
from trainshed.domain.models.version import F32, Version
from trainshed.domain.models.version_container import ServingContainer, aip_environment, container_of, model_folder
from trainshed.domain.models.version_details import ServedModel, VersionParity
from trainshed.domain.names import package_folder
from trainshed.engines.hosts.base import HostEngine
from trainshed.engines.hosts.spec import HostSpec, ResolvedContainer
from trainshed.engines.hosts.watcher import HostPhase, HostStatus
from trainshed.engines.local.containers import ResolvedImage, resolve_image
from trainshed.engines.local.package_installer import InstallTarget, PackageInstaller
from trainshed.errors import EngineUnavailableError, FailedPreconditionError, NotFoundError, TrainshedError
from trainshed.node.crashpoints import crashpoint
from trainshed.runtimes.catalogue import DEFAULT_RUNTIME
from trainshed.runtimes.environments import Runtimes, RuntimeState

CONTAINER_LOADER = "container"  #: the loader name of container versions
_HOST_POLL_INTERVAL_S = 0.01
_PARITY_TIMEOUT_S = 60.0  #: for comparing a host's results with the reference's
#: of hosts of containers, which load no model and need no runtime
CONTAINER_HOST_PYTHON = Path(sys.executable)


class ModelLoadError(TrainshedError):
    """A model cannot be loaded. The message is the loader's own."""


class ReferenceSource(Protocol):
    """Computes the results of a spec's loader, as the reference for parity."""

    def compute(self, spec: HostSpec, folder: Path, *, timeout_s: float, check: Callable[[], None]) -> Path: ...

    def expect(self, python: Path) -> None: ...

    def await_warm(self, spec: HostSpec, *, check: Callable[[], None]) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class HostResources:
    """The resources of this machine and the limits for hosts."""

    cpus: int
    memory_bytes: int
    load_timeout_s: float
    body_limit: int
    available_bytes: Callable[[], int]  #: memory of this machine that is free now

    def shared(self, spec: HostSpec, hosts: int) -> HostSpec:
        """Return the spec with the share of one of `hosts` hosts, the most that its version may have."""
        threads, memory = rules.threads_per_host(self.cpus, hosts), rules.memory_per_host(self.memory_bytes, hosts)
        return replace(spec, threads=threads, memory_bytes=memory)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProvisioningContext:
    """Reports the progress of one provisioning. `check_cancelled` raises if it must end."""

    report: Callable[[str], None]
    check_cancelled: Callable[[], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProvisionedVersion:
    """A provisioned version: its host is ready, and its files stay for as long as the block runs."""

    files: str
    served: ServedModel
    host: str  #: the key of the ready host
    spec: HostSpec  #: the spec of further hosts


@dataclass(frozen=True, slots=True, kw_only=True)
class ProvisionerDeps:
    """What a provisioner is constructed with."""

    home: Home
    model_files: ModelFileStore
    runtimes: Runtimes
    installer: PackageInstaller
    references: ReferenceSource
    uri_resolver: UriResolver
    images: ImageResolver | None = None  #: None if containers are not supported
    #: returns the parity of a version with the same project, runtime, engine and files
    find_parity: Callable[[Version, str], VersionParity | None]


@dataclass(frozen=True, slots=True)
class VersionProvisioner:
    """Provisions versions. Thread-safe."""

    deps: ProvisionerDeps
    hosts: HostEngine
    resources: HostResources
    _sleep: Callable[[float], None] = field(default=time.sleep)

    @contextmanager
    def provision(self, version: Version, context: ProvisioningContext) -> Iterator[ProvisionedVersion]:
        """Provision a version up to a ready host. After the block, the files stay only if a version uses them.

        The caller owns the host inside the block. Raises `ModelLoadError`, or another `TrainshedError`, if provisioning
        fails; then no process is left.
        """
        with self._files(version, context) as snapshot:
            crashpoint("version.provision.files_copied")
            with_files = replace(version, files=snapshot.digest)
            container = container_of(version)
            if container is None:
                mlflow = self._mlflow_model(version, snapshot.folder)
                names = self._loaders(version, snapshot, mlflow)
                with self._packages(version, snapshot.folder, mlflow) as packages:
                    spec = self.spec(with_files, self._environment(version, packages, context), names[0])
                    spec = self.hosts.prepare(replace(spec, packages=packages))
            else:
                names = (CONTAINER_LOADER,)
                context.report(f"Looking for the image {container.image}.")
                image = self._images().resolve_new(version, container, _reporter(context))
                spec = self.hosts.prepare(self._container_spec(with_files, image))
            crashpoint("version.provision.prepared")
            host, served = self._host(version, spec, names, context, snapshot)
            crashpoint("version.provision.host_ready")
            image_id = spec.container.image if spec.container is not None else ""
            served = replace(served, site=spec.site, size=snapshot.size, image=image_id)
            try:
                yield ProvisionedVersion(
                    files=snapshot.digest, served=served, host=host, spec=replace(spec, loader=served.loader)
                )
            except BaseException:
                self.hosts.discard(host)
                raise

    @contextmanager
    def _files(self, version: Version, context: ProvisioningContext) -> Iterator[ModelSnapshot]:
        """Copy the files of a version. Container versions may have none."""
        uri = str(version.body.get("deploymentUri", ""))
        if not uri:
            yield NO_FILES
            return
        self._check_owner(version, uri)
        context.report("Copying the files of the model.")
        with self.deps.model_files.snapshot(version.project, uri, check=context.check_cancelled) as snapshot:
            yield snapshot

    def _mlflow_model(self, version: Version, folder: Path) -> MlflowModel | None:
        """How the files are served if they are a folder of MLflow. Code of the user's own reads them itself."""
        if version.body.get("predictionClass") or not folder.name:
            return None
        return read_mlflow_model(folder, where=str(version.body.get("deploymentUri", "")))

    def _loaders(self, version: Version, snapshot: ModelSnapshot, mlflow: MlflowModel | None) -> tuple[str, ...]:
        names = (
            mlflow.loaders
            if mlflow is not None
            else rules.candidate_loaders(
                snapshot.names,
                framework=version.framework,
                prediction_class=str(version.body.get("predictionClass", "")),
                where=str(version.body["deploymentUri"]),
            )
        )
        return rules.explainable_loaders(names, version.body.get("explanationConfig", {}))

    def _images(self) -> ImageResolver:
        if self.deps.images is None:
            raise FailedPreconditionError("Containers are not run here.")
        return self.deps.images

    def _container_spec(self, version: Version, container: ResolvedContainer) -> HostSpec:
        return replace(self.spec(version, (CONTAINER_HOST_PYTHON, ""), CONTAINER_LOADER), container=container)

    def spec(self, version: Version, environment: tuple[Path, str], loader: str) -> HostSpec:
        """Return the host spec of a version. `environment` is the interpreter and the folder of its packages."""
        folder = self.deps.model_files.folder(version.project, version.files) if version.files else Path()
        mlflow = self._mlflow_model(version, folder) if loader != CONTAINER_LOADER else None
        spec = HostSpec(
            project=version.project,
            model=version.model,
            version=version.id,
            instance=0,
            python=environment[0],
            model_dir=self.deps.model_files.folder(version.project, version.files),
            subfolder=mlflow.subfolder if mlflow is not None else "",
            loader=loader,
            prediction_class=str(version.body.get("predictionClass", "")),
            site=environment[1],
            explanation=version.body.get("explanationConfig", {}),
            engine=version.engine,
            runtime=version.runtime,
            machine=str(version.body.get("machineType", "")),
            threads=self.resources.cpus,
            batching=version.batching,
            precision=version.precision,
            body_limit=self.resources.body_limit,
            secrets=requested(version.labels, what="version"),
        )
        return self.resources.shared(spec, version.host_range.maximum)

    def spec_of_existing(self, version: Version) -> HostSpec:
        """Return the host spec of a version that was provisioned before. Blocks if its runtime must be rebuilt."""
        if (container := container_of(version)) is not None:
            return self._container_spec(version, self._images().resolve_existing(version, container))
        python = self.deps.runtimes.ensure(version.runtime, lambda fraction, text: None)
        site, loader = version.served.site, version.served.loader
        if site and not Path(site).is_dir():
            raise FailedPreconditionError(
                f"The packages of version {version.id} were removed from {site}. Create the version again."
            )
        return self.hosts.prepare(self.spec(version, (python, site), loader), existing=True)

    def prewarm(self) -> None:
        """Start the warm process of the default runtime, if it is built: a version is likely to be created soon."""
        if self.deps.runtimes.get(DEFAULT_RUNTIME).state is RuntimeState.READY:
            python = self.deps.runtimes.ensure(DEFAULT_RUNTIME, lambda fraction, text: None)
            self.deps.references.expect(python)

    def _check_owner(self, version: Version, uri: str) -> None:
        bucket, _ = split_uri(uri)
        try:
            owned = self.deps.uri_resolver.owner(bucket) == version.project
        except NotFoundError:
            owned = False
        if not owned:
            raise NotFoundError(f"There is no bucket {bucket} in project {version.project}.")

    @contextmanager
    def _packages(self, version: Version, folder: Path, mlflow: MlflowModel | None) -> Iterator[tuple[Package, ...]]:
        """Copy the packages with the user's code, and make that of what MLflow needs. They last for the block."""
        copies = self.hosts.folder(version.project, version.model, version.id) / "fetched"
        remedy = "Upload it, and create the version again."
        request = PackageRequest(project=version.project, copies=copies, remedy=remedy)
        try:
            packages = resolve_packages(version.body.get("packageUris", ()), self.deps.uri_resolver, request)
            if mlflow is not None:
                where = str(version.body["deploymentUri"])
                packages += requirements_of(mlflow, folder, version.runtime, copies, where=where)
            yield packages
        finally:
            shutil.rmtree(copies, ignore_errors=True)

    def _install_folder(self, version: Version) -> Path:
        return self.hosts.folder(version.project, version.model, version.id) / "install"

    def _environment(
        self, version: Version, packages: tuple[Package, ...], context: ProvisioningContext
    ) -> tuple[Path, str]:
        """Build the runtime and install the packages.

        Returns the interpreter, and the folder of installed packages or "".
        """
        context.check_cancelled()

        def progress(fraction: float, text: str) -> None:
            context.check_cancelled()
            context.report(f"Building runtime {version.runtime}, once for all versions: {fraction:.0%}. {text}.")

        python = self.deps.runtimes.ensure(version.runtime, progress)
        if not packages:
            return python, ""
        context.report("Installing the packages.")
        site, folder = (
            self.deps.home.packages / package_folder(version.project) / site_name(python, packages),
            self._install_folder(version),
        )
        try:
            target = InstallTarget(project=version.project, python=python, site=site)
            self.deps.installer.install(packages, target=target, folder=folder, check=context.check_cancelled)
        except FailedPreconditionError as exc:
            uris = ", ".join(each.uri for each in packages)
            raise ModelLoadError(
                f"Failed to load model: User-provided package {uris} failed to install: {exc} (Error code: 0)"
            ) from exc
        return python, str(site)

    def _host(
        self,
        version: Version,
        spec: HostSpec,
        names: tuple[str, ...],
        context: ProvisioningContext,
        snapshot: ModelSnapshot,
    ) -> tuple[str, ServedModel]:
        """Start a ready host, with the first loader that passes the parity check. Returns its key and its model."""
        if len(names) == 1:
            return self._start_host(spec, context)
        fast, checked = names
        parity = self.deps.find_parity(version, snapshot.digest)
        if parity is None:
            in_f32 = replace(spec, loader=fast, precision=F32)
            parity, started = self._start_compared_host(in_f32, checked, context)
            if started is not None:
                host, served = started
                if spec.precision == F32:
                    return host, replace(served, parity=parity)
                self.hosts.discard(host)
        if spec.precision != F32 and not parity.within:
            raise ModelLoadError(
                as_load_error(
                    f"Precision {spec.precision} is for models that OpenVINO serves, and {rules.REFERENCES[checked]} "
                    f"serves this one. Create the version with precision f32. {parity.message}"
                )
            )
        host, served = self._start_host(replace(spec, loader=fast if parity.within else checked), context)
        return host, replace(served, parity=parity)

    def _start_host(self, spec: HostSpec, context: ProvisioningContext) -> tuple[str, ServedModel]:
        context.report("Loading the model.")
        self.deps.references.await_warm(spec, check=context.check_cancelled)
        key = self.hosts.start(spec)
        return key, self._wait_ready(key, context)

    def _start_compared_host(
        self, spec: HostSpec, checked: str, context: ProvisioningContext
    ) -> tuple[VersionParity, tuple[str, ServedModel] | None]:
        """Start a host and compare its results with those of the loader `checked`.

        Returns no host, and leaves none, if the results differ or cannot be computed.
        """
        framework = rules.REFERENCES[checked]
        context.report(f"Loading the model, and checking its answers against {framework}'s.")
        key = self.hosts.start(spec)

        def check() -> None:
            context.check_cancelled()
            self._check_host(key)

        try:
            folder = self.hosts.folder(spec.project, spec.model, spec.version)
            reference = self.deps.references.compute(
                replace(spec, loader=checked), folder, timeout_s=self.resources.load_timeout_s, check=check
            )
            served = self._wait_ready(key, context)
            result = self.hosts.compare(key, reference, timeout_s=_PARITY_TIMEOUT_S)
            parity = VersionParity.parse({"reference": framework, **result})
        except (ModelLoadError, EngineUnavailableError) as exc:
            parity = VersionParity(reference=framework, difference=None, within=False, message=str(exc))
        except BaseException:
            self.hosts.discard(key)
            raise
        if parity.within:
            return parity, (key, served)
        self.hosts.discard(key)
        return parity, None

    def _wait_ready(self, key: str, context: ProvisioningContext) -> ServedModel:
        """Wait until a host is ready and return its model.

        Raises `ModelLoadError` if it fails; then no process is left.
        """
        try:
            while (status := self._check_host(key)).phase is HostPhase.STARTING:
                context.check_cancelled()
                self._sleep(_HOST_POLL_INTERVAL_S)
        except BaseException:
            self.hosts.discard(key)
            raise
        return ServedModel.parse(status.ready)

    def _check_host(self, key: str) -> HostStatus:
        status = self.hosts.status(key)
        if status is None or status.phase is HostPhase.ENDED:
            raise ModelLoadError(as_load_error(status.message if status is not None else "The host is gone."))
        if reason := status.too_slow(self.resources.load_timeout_s, time.monotonic()):
            raise ModelLoadError(as_load_error(reason))
        return status


def as_load_error(message: str) -> str:
    """Return the message in the form of AI Platform's load errors."""
    if message.endswith(")") and "(Error code: " in message:
        return message
    return f"Failed to load model: {message} (Error code: 0)"


def _reporter(context: ProvisioningContext) -> Callable[[str], None]:
    def tell(line: str) -> None:
        context.check_cancelled()
        context.report(line)

    return tell


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageResolver:
    """Resolves images. `tool` is the setting; `number` returns the number of a project."""

    tool: str
    registries: ImageRegistries
    number: Callable[[str], int]

    def resolve_new(
        self, version: Version, container: ServingContainer, tell: Callable[[str], None]
    ) -> ResolvedContainer:
        """Resolve the container of a new version. Blocks while the image is pulled.

        `tell` is called with progress, and its exception ends the pull. Raises `FailedPreconditionError` if the image
        is not available.
        """
        return self._resolved(version, container, self._pulled(container.image, tell))

    def resolve_existing(self, version: Version, container: ServingContainer) -> ResolvedContainer:
        """Resolve the container of an existing version: the same image, whatever its name refers to now."""
        image_id = version.served.image
        try:
            image = resolve_image(image_id, tool=self.tool, pull=False, report=_ignore)
        except FailedPreconditionError:
            image = self._pulled(container.image, _ignore)
            if image.id != image_id:
                raise FailedPreconditionError(
                    f"The image {container.image} is not the one any more that version {version.id} was created with, "
                    f"and that one was removed. Create the version again."
                ) from None
        return self._resolved(version, container, image)

    def _pulled(self, image: str, report: Callable[[str], None]) -> ResolvedImage:
        return resolve_image(image, tool=self.tool, pull=self.registries.pulls(image), report=report)

    def _resolved(self, version: Version, container: ServingContainer, image: ResolvedImage) -> ResolvedContainer:
        return ResolvedContainer(
            container=container,
            tool=image.tool,
            image=image.id,
            env=aip_environment(version, container, number=self.number(version.project)),
            folder=model_folder(version),
        )


def _ignore(line: str) -> None:
    """Ignore progress."""
