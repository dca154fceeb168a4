"""From a version's row to a host that answers: files copied, runtime built, packages installed, loader chosen."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from trainshed.artifacts.staging import Package
from trainshed.buckets.names import split_uri
from trainshed.config import Home
from trainshed.control.deployments.model_files import NO_FILES, ModelFileStore, ModelSnapshot
from trainshed.control.packages import PackageRequest, resolve_packages, site_name
from trainshed.control.uri_resolver import UriResolver
from trainshed.domain.models import hosting as rules
from trainshed.domain.models.version import Version
from trainshed.domain.models.version_container import ServingContainer, aip_environment, container_of, model_folder
from trainshed.engines.hosts.base import HostEngine
from trainshed.engines.hosts.spec import HostSpec, ResolvedContainer
from trainshed.engines.hosts.watcher import HostPhase, HostStatus
from trainshed.engines.local.containers import ResolvedImage, resolve_image
from trainshed.engines.local.package_installer import PackageInstaller
from trainshed.errors import EngineUnavailableError, FailedPreconditionError, NotFoundError, TrainshedError
from trainshed.runtimes.catalogue import DEFAULT
from trainshed.runtimes.environments import Runtimes, RuntimeState

CONTAINER = "container"  #: in the place of a loader
_LOOK_S = 0.01
_ANSWER_S = 60.0  #: that a host may take to compare its answers with TensorFlow's
#: what hosts of containers run in: they load nothing themselves, and need no runtime
PYTHON = Path(sys.executable)


class ModelLoadError(TrainshedError):
    """A model that can't be loaded, in the words of its loader."""


class ReferenceSource(Protocol):
    """What gives TensorFlow's own answers."""

    def compute(self, spec: HostSpec, folder: Path, *, timeout_s: float, check: Callable[[], None]) -> Path: ...

    def expect(self, python: Path) -> None: ...

    def await_warm(self, spec: HostSpec, *, check: Callable[[], None]) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class HostResources:
    """What this machine and its settings give hosts."""

    cpus: int
    memory_bytes: int
    load_timeout_s: float
    body_limit: int

    def shared(self, spec: HostSpec, hosts: int) -> HostSpec:
        """The spec of one of so many hosts of a version, with its share."""
        threads, memory = rules.threads_per_host(self.cpus, hosts), rules.memory_per_host(self.memory_bytes, hosts)
        return replace(spec, threads=threads, memory_bytes=memory)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProvisioningContext:
    """How one creation tells what it does, and hears that it shall end: `check` raises then."""

    report: Callable[[str], None]
    check_cancelled: Callable[[], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProvisionedVersion:
    """A version that could be served: its host is ready, and its files are there for as long as this is held."""

    files: str
    details: Mapping[str, Any]  #: for the version's details
    host: str  #: the key
    spec: HostSpec  #: what further hosts are started with


@dataclass(frozen=True, slots=True, kw_only=True)
class ProvisionerDeps:
    """Where the parts of a version come from."""

    home: Home
    pins: ModelFileStore
    runtimes: Runtimes
    installs: PackageInstaller
    references: ReferenceSource
    addresses: UriResolver
    images: ImageResolver | None = None  #: None: containers are not run here
    alike: Callable[[Version, str], Version | None]  #: another version of the same project, runtime and files


@dataclass(frozen=True, slots=True)
class VersionProvisioner:
    """Makes versions ready. Safe to use from many threads."""

    supplies: ProvisionerDeps
    hosts: HostEngine
    room: HostResources
    _sleep: Callable[[float], None] = field(default=time.sleep)

    @contextmanager
    def provision(self, version: Version, attempt: ProvisioningContext) -> Iterator[ProvisionedVersion]:
        """Everything up to the first answer. The files are given up at the end of the block if no version has them.

        The host is the caller's within the block. `ModelLoadError`, or another error with a sentence, if nothing came
        of it; then no process is left.
        """
        with self._files(version, attempt) as pinned:
            fixed = replace(version, files=pinned.digest)
            container = container_of(version)
            if container is None:
                names = self._loaders(version, pinned)
                found = self._packages(version)
                spec = self.spec(fixed, self._equipped(version, found, attempt), names[0])
                spec = replace(spec, packages=found)
            else:
                names = (CONTAINER,)
                attempt.report(f"Looking for the image {container.image}.")
                spec = self._contained(fixed, self._images().resolve_new(version, container, _telling(attempt)))
            spec = self.hosts.prepare(spec)
            host, known = self._host(version, spec, names, attempt, pinned)
            known |= {"site": spec.site, "size": pinned.size}
            if spec.container is not None:
                known["image"] = spec.container.image
            try:
                yield ProvisionedVersion(
                    files=pinned.digest, details=known, host=host, spec=replace(spec, loader=known["loader"])
                )
            except BaseException:
                self.hosts.discard(host)
                raise

    @contextmanager
    def _files(self, version: Version, attempt: ProvisioningContext) -> Iterator[ModelSnapshot]:
        """The copied files of a version. Containers may have none."""
        uri = str(version.body.get("deploymentUri", ""))
        if not uri:
            yield NO_FILES
            return
        self._check_owner(version, uri)
        attempt.report("Copying the files of the model.")
        with self.supplies.pins.snapshot(version.project, uri, check=attempt.check_cancelled) as pinned:
            yield pinned

    def _loaders(self, version: Version, pinned: ModelSnapshot) -> tuple[str, ...]:
        names = rules.candidate_loaders(
            pinned.names,
            framework=version.framework,
            prediction_class=str(version.body.get("predictionClass", "")),
            where=str(version.body["deploymentUri"]),
        )
        return rules.explainable_loaders(names, version.body.get("explanationConfig", {}))

    def _images(self) -> ImageResolver:
        if self.supplies.images is None:
            raise FailedPreconditionError("Containers are not run here.")
        return self.supplies.images

    def _contained(self, version: Version, container: ResolvedContainer) -> HostSpec:
        return replace(self.spec(version, (PYTHON, ""), CONTAINER), container=container)

    def spec(self, version: Version, equipped: tuple[Path, str], loader: str) -> HostSpec:
        """What a host of a version is started with; `equipped` is the interpreter and the folder of its packages."""
        spec = HostSpec(
            project=version.project,
            model=version.model,
            version=version.id,
            instance=0,
            python=equipped[0],
            model_dir=self.supplies.pins.folder(version.project, version.files),
            loader=loader,
            prediction_class=str(version.body.get("predictionClass", "")),
            site=equipped[1],
            explanation=version.body.get("explanationConfig", {}),
            engine=version.engine,
            runtime=str(version.details.get("runtime", "")),
            machine=str(version.body.get("machineType", "")),
            threads=self.room.cpus,
            body_limit=self.room.body_limit,
        )
        return self.room.shared(spec, rules.desired_hosts(version.nodes, awake=True))

    def spec_of_existing(self, version: Version) -> HostSpec:
        """The spec for a version that was created before. Blocks if its runtime has to be built again."""
        if (container := container_of(version)) is not None:
            return self._contained(version, self._images().resolve_existing(version, container))
        python = self.supplies.runtimes.ensure(version.runtime, lambda fraction, text: None)
        site = str(version.details.get("site", ""))
        if site and not Path(site).is_dir():
            raise FailedPreconditionError(
                f"The packages of version {version.id} were removed from {site}. Create the version again."
            )
        return self.hosts.prepare(self.spec(version, (python, site), str(version.details["loader"])), existing=True)

    def prewarm(self) -> None:
        """A version is likely to be created soon: get ready what takes long, if the newest runtime is there."""
        if self.supplies.runtimes.get(DEFAULT).state is RuntimeState.READY:
            python = self.supplies.runtimes.ensure(DEFAULT, lambda fraction, text: None)
            self.supplies.references.expect(python)

    def _check_owner(self, version: Version, uri: str) -> None:
        bucket, _ = split_uri(uri)
        try:
            owned = self.supplies.addresses.owner(bucket) == version.project
        except NotFoundError:
            owned = False
        if not owned:
            raise NotFoundError(f"There is no bucket {bucket} in project {version.project}.")

    def _packages(self, version: Version) -> tuple[Package, ...]:
        """What the user's own code is in, as it is now."""
        remedy = "Upload it, and create the version again."
        wanted = PackageRequest(project=version.project, copies=self._installs(version) / "fetched", remedy=remedy)
        return resolve_packages(version.body.get("packageUris", ()), self.supplies.addresses, wanted)

    def _installs(self, version: Version) -> Path:
        return self.hosts.folder(version.project, version.model, version.id) / "install"

    def _equipped(self, version: Version, found: tuple[Package, ...], attempt: ProvisioningContext) -> tuple[Path, str]:
        """The interpreter, and the folder of installed packages or nothing."""
        attempt.check_cancelled()

        def progress(fraction: float, text: str) -> None:
            attempt.check_cancelled()
            attempt.report(f"Building runtime {version.runtime}, once for all versions: {fraction:.0%}. {text}.")

        python = self.supplies.runtimes.ensure(version.runtime, progress)
        if not found:
            return python, ""
        attempt.report("Installing the packages.")
        site, folder = self.supplies.home.packages / version.project / site_name(python, found), self._installs(version)
        try:
            self.supplies.installs.install(
                found, python=python, site=site, folder=folder, check=attempt.check_cancelled
            )
        except FailedPreconditionError as exc:
            uris = ", ".join(each.uri for each in found)
            raise ModelLoadError(
                f"Failed to load model: User-provided package {uris} failed to install: {exc} (Error code: 0)"
            ) from exc
        return python, str(site)

    def _host(
        self,
        version: Version,
        spec: HostSpec,
        names: tuple[str, ...],
        attempt: ProvisioningContext,
        pinned: ModelSnapshot,
    ) -> tuple[str, dict[str, Any]]:
        """A ready host, and what is known of it. Of several loaders the first that passes is taken."""
        if len(names) == 1:
            return self._only(spec, attempt)
        fast, checked = names
        twin = self.supplies.alike(version, pinned.digest)
        parity: Mapping[str, Any] | None = twin.details["parity"] if twin is not None else None
        if parity is None:
            host, known = self._compared(replace(spec, loader=fast), attempt)
            if host:
                return host, known
            parity = known["parity"]
        elif parity["within"]:
            host, known = self._only(replace(spec, loader=fast), attempt)
            return host, {**known, "parity": parity}
        host, known = self._only(replace(spec, loader=checked), attempt)
        return host, {**known, "parity": parity}

    def _only(self, spec: HostSpec, attempt: ProvisioningContext) -> tuple[str, dict[str, Any]]:
        attempt.report("Loading the model.")
        self.supplies.references.await_warm(spec, check=attempt.check_cancelled)
        key = self.hosts.start(spec)
        return key, self._ready(key, attempt)

    def _compared(self, spec: HostSpec, attempt: ProvisioningContext) -> tuple[str, dict[str, Any]]:
        """A host whose answers were held against TensorFlow's; without a key if they are no good or can't be had."""
        attempt.report("Loading the model, and checking its answers against TensorFlow's.")
        key = self.hosts.start(spec)

        def check() -> None:
            attempt.check_cancelled()
            self._look(key)

        try:
            folder = self.hosts.folder(spec.project, spec.model, spec.version)
            reference = self.supplies.references.compute(spec, folder, timeout_s=self.room.load_timeout_s, check=check)
            known = self._ready(key, attempt)
            parity = self.hosts.compare(key, reference, timeout_s=_ANSWER_S)
        except (ModelLoadError, EngineUnavailableError) as exc:
            parity = _unequal(str(exc))
        except BaseException:
            self.hosts.discard(key)
            raise
        if parity["within"]:
            return key, {**known, "parity": parity}
        self.hosts.discard(key)
        return "", {"parity": parity}

    def _ready(self, key: str, attempt: ProvisioningContext) -> dict[str, Any]:
        """Wait for a host, and return what it says of itself.

        `ModelLoadError`, with no process left, if it does not.
        """
        try:
            while (seen := self._look(key)).phase is HostPhase.STARTING:
                attempt.check_cancelled()
                self._sleep(_LOOK_S)
        except BaseException:
            self.hosts.discard(key)
            raise
        said = seen.ready
        return {name: said.get(name) for name in ("loader", "detail", "batching", "sample", "signatures")}

    def _look(self, key: str) -> HostStatus:
        seen = self.hosts.status(key)
        if seen is None or seen.phase is HostPhase.ENDED:
            raise ModelLoadError(as_load_error(seen.message if seen is not None else "The host is gone."))
        if why := seen.too_slow(self.room.load_timeout_s, time.monotonic()):
            raise ModelLoadError(as_load_error(why))
        return seen


def as_load_error(message: str) -> str:
    """In the form that clients know, whoever says it."""
    if message.endswith(")") and "(Error code: " in message:
        return message
    return f"Failed to load model: {message} (Error code: 0)"


def _telling(attempt: ProvisioningContext) -> Callable[[str], None]:
    def tell(line: str) -> None:
        attempt.check_cancelled()
        attempt.report(line)

    return tell


def _unequal(reason: str) -> dict[str, Any]:
    return {"difference": None, "within": False, "text": reason}


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageResolver:
    """Finds images. `tool` is the setting; `number` tells the number of a project."""

    tool: str
    number: Callable[[str], int]

    def resolve_new(
        self, version: Version, container: ServingContainer, tell: Callable[[str], None]
    ) -> ResolvedContainer:
        """What a new version runs. Blocks while the image is pulled; `tell` is told of it, and what it raises ends
        that. `FailedPreconditionError` if the image can't be had."""
        return self._to_run(version, container, resolve_image(container.image, tool=self.tool, tell=tell))

    def resolve_existing(self, version: Version, container: ServingContainer) -> ResolvedContainer:
        """What a version runs that was created before: the same image, whatever its name leads to now."""
        known = str(version.details["image"])
        try:
            found = resolve_image(known, tool=self.tool, tell=_silently)
        except FailedPreconditionError:
            found = resolve_image(container.image, tool=self.tool, tell=_silently)
            if found.id != known:
                raise FailedPreconditionError(
                    f"The image {container.image} is not the one any more that version {version.id} was created with, "
                    f"and that one was removed. Create the version again."
                ) from None
        return self._to_run(version, container, found)

    def _to_run(self, version: Version, container: ServingContainer, found: ResolvedImage) -> ResolvedContainer:
        return ResolvedContainer(
            container=container,
            tool=found.tool,
            image=found.id,
            env=aip_environment(version, container, number=self.number(version.project)),
            folder=model_folder(version),
        )


def _silently(line: str) -> None:
    """There is nobody to tell."""
