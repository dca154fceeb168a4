"""A state folder with one model, and servers on it that deploy its versions, with scripted hosts."""

from __future__ import annotations

import shutil
import sys
import weakref
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, cast

from trainshed.buckets.backend import BackendRouter
from trainshed.buckets.file_backend import FileBackend
from trainshed.config import Home
from trainshed.control.deployments.completion import DeploymentStores
from trainshed.control.deployments.controller import DeploymentController, find_parity
from trainshed.control.deployments.model_files import ModelFileStore
from trainshed.control.deployments.provisioner import HostResources, ProvisionerDeps, VersionProvisioner
from trainshed.control.uri_resolver import UriResolver
from trainshed.domain.models.hosting import ServingState
from trainshed.domain.models.model import Model
from trainshed.domain.models.version import Version, VersionState
from trainshed.domain.models.version_details import VersionDetails
from trainshed.domain.objects import ObjectDraft
from trainshed.domain.operations import Operation, OperationType
from trainshed.domain.times import now_us
from trainshed.engines.hosts.spec import HostSpec
from trainshed.engines.local.hosts import LocalHostEngine
from trainshed.engines.local.package_installer import PackageInstaller
from trainshed.engines.local.reference_outputs import ReferenceOutputs
from trainshed.engines.local.warm import WarmProcesses
from trainshed.errors import NotFoundError
from trainshed.gateway.routes import Routes, VersionRoute
from trainshed.runtimes.environments import RuntimeInfo, Runtimes, RuntimeState
from trainshed.store.database import Database
from trainshed.store.models import ModelChange, ModelStore
from trainshed.store.operations import OperationStore
from trainshed.testing.eventually import eventually
from trainshed.testing.fakes.scripted_hosts import ship_scripted

PYTHON = Path(sys.executable)


class QuietTraffic:
    """Traffic without in-flight requests, unless a test sets some."""

    def __init__(self) -> None:
        self.waits: list[Collection[str]] = []
        self.used_us = 0
        self.in_flight = 0
        self.look: Callable[[], bool] = lambda: True
        self.seen: list[bool] = []

    def drained(self, keys: Collection[str], *, timeout_s: float) -> bool:
        self.waits.append(keys)
        self.seen.append(self.look())
        return True

    def load(self, keys: Collection[str]) -> int:
        return self.in_flight if keys else 0

    def last_used_us(self, project: str, model: str, version: str) -> int:
        return self.used_us


class OneRuntime:
    """A single runtime: the interpreter of the tests."""

    def __init__(self) -> None:
        self.built: Callable[[], None] = lambda: None

    def get(self, name: str) -> RuntimeInfo:
        return RuntimeInfo(
            name=name,
            python="3.11",
            summary="",
            state=RuntimeState.READY,
            fraction=1.0,
            text="",
            error="",
            path=PYTHON.parent.parent,
            size=0,
        )

    def ensure(self, name: str, progress: Callable[[float, str], None]) -> Path:
        progress(0.5, "Half of it")
        self.built()
        return PYTHON


class Shed:
    """A state folder with one model, and servers on it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.home = Home(path / "home")
        self.home.path.mkdir()
        self.database = Database(self.home.database)
        weakref.finalize(self, self.database.close)  # not in `close`: tests read after it, and open again
        self.database.migrate()
        self.models = ModelStore(self.database)
        self.operations = OperationStore(self.database)
        self.tree = FileBackend(self.home.buckets, self.home.uploads)
        self.tree.make_bucket("bucket")
        self.models.add(Model(project="p", id="m", body={}, created_us=now_us()))
        self.runtime = OneRuntime()
        self.traffic = QuietTraffic()
        self.routes = Routes()
        self.references = 0
        self.expected: list[Path] = []
        self.load_timeout_s = 120.0
        self.sleep_after_s = 900.0

    def open(self) -> None:
        """Start what a server starts."""
        ship = lambda: ship_scripted(self.path / "node")  # noqa: E731
        self.hosts = LocalHostEngine(self.home, ship=ship)
        self.pins = ModelFileStore(self.home.models, self.tree, used=self.models.files_used)
        references = ReferenceOutputs(WarmProcesses(self.home, modules={}, ship=ship), ship=ship)
        self.deployments = DeploymentController(
            DeploymentStores(models=self.models, operations=self.operations),
            VersionProvisioner(
                ProvisionerDeps(
                    home=self.home,
                    model_files=self.pins,
                    runtimes=cast(Runtimes, self.runtime),
                    installer=PackageInstaller(uv=Path(shutil.which("uv") or "uv"), ship=ship),
                    references=_CountingReferences(self, references),
                    uri_resolver=UriResolver(
                        buckets=self.home.buckets, backend=BackendRouter(self.tree, {}), owner=self._owner
                    ),
                    find_parity=find_parity(self.models),
                ),
                self.hosts,
                HostResources(
                    cpus=2,
                    memory_bytes=8 << 30,
                    load_timeout_s=self.load_timeout_s,
                    body_limit=1 << 20,
                    available_bytes=lambda: 4 << 30,
                ),
            ),
            self.routes,
            self.traffic,
            sleep_after_s=self.sleep_after_s,
            drain_s=5.0,
        )
        self.pins.sweep()
        self.hosts.open(self.deployments.wake)
        self.deployments.start()

    def close(self) -> None:
        self.deployments.stop()
        self.deployments.join()
        self.hosts.close()

    def _owner(self, bucket: str) -> str:
        if bucket != "bucket":
            raise NotFoundError(f"There is no bucket {bucket}.")
        return "p"

    def put(self, name: str, data: bytes) -> None:
        with self.tree.stage() as staged:
            staged.write(data)
            self.tree.commit(staged, ObjectDraft(bucket="bucket", name=name))

    def create(self, name: str, *behaviour: str, saved_model: bool = True, **body: Any) -> Version:
        self.put(f"{name}/behaviour", " ".join(behaviour).encode())
        self.put(f"{name}/saved_model.pb" if saved_model else f"{name}/model.bst", b"model")
        return self.create_from(name, f"gs://bucket/{name}", **body)

    def create_from(self, name: str, uri: str, **body: Any) -> Version:
        version = Version(
            project="p",
            model="m",
            id=name,
            body={"deploymentUri": uri, **body},
            details=VersionDetails(runtime="2.21"),
            created_us=now_us(),
        )
        operation_id = OperationType.CREATE_VERSION.id("m", name, now_us=now_us())
        added, _ = self.models.add_version(version, Operation.begin("p", operation_id, {}, now_us=now_us()))
        self.deployments.wake()
        return added

    def delete(self, name: str) -> None:
        operation = Operation.begin("p", f"delete_{name}", {}, now_us=now_us())

        def decide(model: Model, versions: Any) -> ModelChange:
            [version] = [each for each in versions if each.id == name]
            return ModelChange(version=version.to(VersionState.DELETING, operation=operation.id), operation=operation)

        self.models.change("p", "m", decide)
        self.deployments.wake()

    def rescale(self, nodes: int) -> Operation:
        """Change the number of hosts of the only version."""
        operation = Operation.begin("p", f"update_m-{nodes}", {}, now_us=now_us())

        def decide(model: Model, versions: Any) -> ModelChange:
            [version] = versions
            changed = version.with_body({**version.body, "manualScaling": {"nodes": nodes}}, operation.id)
            return ModelChange(version=changed, operation=operation)

        self.models.change("p", "m", decide)
        self.deployments.publish("p", "m")
        self.deployments.wake()
        return operation

    def until(self, name: str, state: VersionState = VersionState.READY) -> Version:
        version = eventually(
            lambda: self.models.version("p", "m", name), lambda version: version.state is not VersionState.CREATING
        )
        assert version.state is state, version
        return version

    def route(self, name: str) -> VersionRoute:
        return self.routes.models["p", "m"].versions[name]

    def until_route(self, name: str, state: ServingState) -> VersionRoute:
        published = eventually(
            lambda: self.routes.models["p", "m"].versions.get(name),
            lambda route: route is not None and route.state is state,
        )
        assert published is not None
        return published

    def behave(self, version: Version, *behaviour: str) -> None:
        """Change the behaviour of the next hosts of a version."""
        path = self.pins.folder("p", version.files) / "behaviour"
        path.unlink()
        path.write_text(" ".join(behaviour))


class _CountingReferences:
    def __init__(self, shed: Shed, references: ReferenceOutputs) -> None:
        self._shed = shed
        self._references = references

    def compute(self, spec: HostSpec, folder: Path, *, timeout_s: float, check: Callable[[], None]) -> Path:
        self._shed.references += 1
        return self._references.compute(spec, folder, timeout_s=timeout_s, check=check)

    def await_warm(self, spec: HostSpec, *, check: Callable[[], None]) -> None:
        self._references.await_warm(spec, check=check)

    def expect(self, python: Path) -> None:
        self._shed.expected.append(python)
