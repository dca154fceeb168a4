"""A version of a model: its states, the legal transitions, and its form in the API."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from trainshed.domain.models.autoscaling import HostRange
from trainshed.domain.models.version_details import ServedModel, VersionDetails
from trainshed.domain.patches import etag
from trainshed.domain.times import rfc3339
from trainshed.errors import FailedPreconditionError, InvalidArgumentError


class VersionState(StrEnum):
    """The API's version states."""

    CREATING = "CREATING"  #: its files are copied, and its first host is started and warmed up
    READY = "READY"  #: it serves requests
    UPDATING = "UPDATING"  #: it serves requests while its number of hosts changes
    FAILED = "FAILED"  #: it cannot be served; `error` has the reason
    DELETING = "DELETING"  #: it takes no new requests and drains in-flight ones


HOSTED_VERSION, HOSTED_CONTAINER = "version", "version in a container"  #: what an engine can support for hosts

#: states in which requests are served
F32 = "f32"  #: the precision of a version that asks for no other
SERVING_STATES = frozenset({VersionState.READY, VersionState.UPDATING})

TRANSITIONS: Mapping[VersionState, frozenset[VersionState]] = {
    VersionState.CREATING: frozenset({VersionState.READY, VersionState.FAILED}),
    VersionState.READY: frozenset({VersionState.UPDATING, VersionState.DELETING}),
    VersionState.UPDATING: frozenset({VersionState.READY}),
    VersionState.FAILED: frozenset({VersionState.DELETING}),
    VersionState.DELETING: frozenset(),  # then the row is deleted
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestLogging:
    """Where a sample of a version's requests is logged."""

    folder: str  #: gs://BUCKET/FOLDER
    share: float  #: 0 to 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """One version as the control plane knows it. Immutable: `to` returns a new one."""

    project: str
    model: str
    id: str
    body: Mapping[str, Any]  #: the parts of the API's Version that the user wrote, without name and labels
    labels: Mapping[str, str] = field(default_factory=dict)
    state: VersionState = VersionState.CREATING
    error: str = ""
    files: str = ""  #: content hash of its snapshot; empty until the files are copied
    details: VersionDetails
    operation: str = ""  #: id of the operation that creates, updates or deletes it; empty if there is none
    created_us: int
    generation: int = 1  #: incremented by each write; the etag encodes it
    order_us: int = field(default=0, compare=False)  #: position in the order of creation; assigned by the store

    @property
    def name(self) -> str:
        return f"projects/{self.project}/models/{self.model}/versions/{self.id}"

    @property
    def serving(self) -> bool:
        return self.state in SERVING_STATES

    @property
    def runtime(self) -> str:
        """The runtime of its hosts, such as "2.21". Empty for a container, which needs none."""
        return self.details.runtime

    @property
    def engine(self) -> str:
        """The engine of its hosts, chosen at creation."""
        return self.details.engine

    @property
    def served(self) -> ServedModel:
        """The model as its hosts load it. Raises `FailedPreconditionError` if the version was never READY."""
        if self.details.served is None:
            raise FailedPreconditionError(f"Version {self.id} is {self.state}, and was never READY.")
        return self.details.served

    @property
    def framework(self) -> str:
        """A value of `FRAMEWORKS` as requested. Empty: detected from the files."""
        return str(self.body.get("framework", ""))

    @property
    def nodes(self) -> int:
        """The least number of hosts. 0: it sleeps while it gets no requests."""
        return _nodes(self.body)

    @property
    def host_range(self) -> HostRange:
        """The fewest and the most hosts while it is awake."""
        return _host_range(self.body)

    @property
    def batching(self) -> str:
        """`auto`, `exact` or `off`: how equal answers must be for requests to be batched."""
        return str(self.body.get("servingOptions", {}).get("batching", "AUTO")).lower()

    @property
    def precision(self) -> str:
        """`f32` or `bf16`: of the numbers that the model computes with."""
        return str(self.body.get("servingOptions", {}).get("precision", F32)).lower()

    @property
    def request_logging(self) -> RequestLogging | None:
        config = self.body.get("requestLoggingConfig", {})
        share = float(config.get("samplingPercentage", 0))
        return RequestLogging(folder=config["bigqueryTableName"], share=share) if share else None

    def with_body(self, body: Mapping[str, Any], operation: str) -> Version:
        """This version with another body. If `nodes` changes while it serves, it becomes UPDATING by `operation`.

        Raises `FailedPreconditionError` if `nodes` changes during an update.
        """
        updated = replace(self, body=body)
        if updated.nodes == self.nodes or not self.serving:
            return updated
        if self.state is VersionState.UPDATING:
            raise FailedPreconditionError(
                f"The hosts of version {self.id} are being changed already. Try again in a moment."
            )
        return updated.to(VersionState.UPDATING, operation=operation)

    def to(self, state: VersionState, *, error: str = "", operation: str = "", **changes: Any) -> Version:
        """Return this version after a transition. `changes` are further fields, such as `files` and `details`.

        Raises `FailedPreconditionError` if the transition is illegal.
        """
        if state not in TRANSITIONS[self.state]:
            raise FailedPreconditionError(f"Version {self.id} is {self.state} and can't become {state}.")
        return replace(self, state=state, error=error, operation=operation, **changes)


def version_body(version: Version, *, default: bool, last_use_us: int | None = None) -> dict[str, Any]:
    """The API's Version. `last_use_us` is the time of its last response; None if it has had no request."""
    body: dict[str, Any] = {"name": version.name, **version.body, "createTime": rfc3339(version.created_us)}
    body |= {"state": version.state.value, "etag": etag(version.generation)}
    if default:
        body["isDefault"] = True
    if last_use_us is not None:
        body["lastUseTime"] = rfc3339(last_use_us)
    if version.error:
        body["errorMessage"] = version.error
    if version.labels:
        body["labels"] = version.labels
    return body


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeRequest:
    """A requested runtime and a note about it for the user. Empty strings mean the default."""

    runtime_version: str
    python_version: str
    note: str = ""


def serving_runtime(runtime_version: str, python_version: str, framework: str = "") -> RuntimeRequest:
    """The runtime to serve a version with. Hosts need a current Python: runtimes 1.x can train but not serve.

    A version that names PyTorch and no runtime is served by that of PyTorch.

    Raises `InvalidArgumentError` for the runtime without a framework.
    """
    if runtime_version == "python":
        raise InvalidArgumentError(
            "The runtime python holds no framework, and hosts need what the others hold. Leave this field out.",
            field="version.runtime_version",
        )
    if not runtime_version and framework == "PYTORCH":
        return RuntimeRequest(runtime_version="torch", python_version=python_version)
    if not re.fullmatch(r"[01]\.[0-9]{1,3}", runtime_version):
        return RuntimeRequest(runtime_version=runtime_version, python_version=python_version)
    return RuntimeRequest(
        runtime_version="",
        python_version="",
        note=f"Runtime {runtime_version} is for training. Versions that ask for it are served by the newest runtime, "
        f"which loads SavedModels of TensorFlow 1.",
    )


def hosts_of(body: Mapping[str, Any]) -> int:
    """Return the most hosts that a version with this body can have."""
    return _host_range(body).maximum


def _nodes(body: Mapping[str, Any]) -> int:
    if "manualScaling" in body:
        return int(body["manualScaling"].get("nodes", 1))
    return int(body.get("autoScaling", {}).get("minNodes", 1))


def _host_range(body: Mapping[str, Any]) -> HostRange:
    minimum = max(1, _nodes(body))
    maximum = int(body.get("autoScaling", {}).get("maxNodes", minimum))
    return HostRange(minimum=minimum, maximum=max(minimum, maximum))
