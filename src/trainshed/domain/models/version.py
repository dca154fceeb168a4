"""A version of a model: its states, the legal moves between them, and its form in the API."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from trainshed.domain.etags import etag
from trainshed.domain.jobs.job import LOCAL_ENGINE
from trainshed.domain.times import rfc3339
from trainshed.errors import FailedPreconditionError, InvalidArgumentError


class VersionState(StrEnum):
    """The API's own words."""

    CREATING = "CREATING"  #: its files are copied, its host is started and asked for the first time
    READY = "READY"  #: it answers
    UPDATING = "UPDATING"  #: it answers, while it gets more hosts or fewer
    FAILED = "FAILED"  #: it can't be served; `error` says why
    DELETING = "DELETING"  #: it takes no new requests and ends those that it has


HOSTED, HOSTED_CONTAINER = "version", "version in a container"  #: what an engine may be able to host

#: states in which requests are answered
SERVING = frozenset({VersionState.READY, VersionState.UPDATING})

NEXT: Mapping[VersionState, frozenset[VersionState]] = {
    VersionState.CREATING: frozenset({VersionState.READY, VersionState.FAILED}),
    VersionState.READY: frozenset({VersionState.UPDATING, VersionState.DELETING}),
    VersionState.UPDATING: frozenset({VersionState.READY}),
    VersionState.FAILED: frozenset({VersionState.DELETING}),
    VersionState.DELETING: frozenset(),  # what comes behind it is no row at all
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestLogging:
    """A share of the requests to a version is kept in a bucket."""

    folder: str  #: gs://BUCKET/FOLDER
    share: float  #: 0 to 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """One version as the control plane knows it. A value: `to` returns a new one."""

    project: str
    model: str
    id: str
    body: Mapping[str, Any]  #: the parts of the API's Version that the user wrote, but for name and labels
    labels: Mapping[str, str] = field(default_factory=dict)
    state: VersionState = VersionState.CREATING
    error: str = ""
    files: str = ""  #: the content hash of its copied files; empty until they are copied
    #: what the API has no field for: `runtime`, `engine` and `notes` from its creation on; `loader`, `detail`,
    #: `parity`, `sample`, `signatures` and `size` when it is READY
    details: Mapping[str, Any] = field(default_factory=dict)
    operation: str = ""  #: the id of the operation that creates, updates or deletes it; empty if none does
    created_us: int
    generation: int = 1  #: grows with each write; the etag is made of it

    @property
    def name(self) -> str:
        return f"projects/{self.project}/models/{self.model}/versions/{self.id}"

    @property
    def serving(self) -> bool:
        return self.state in SERVING

    @property
    def runtime(self) -> str:
        """The runtime that hosts it, such as "2.21"; empty for a container, which needs none."""
        return str(self.details["runtime"])

    @property
    def engine(self) -> str:
        """Where its hosts run, chosen when it was created."""
        return str(self.details.get("engine", LOCAL_ENGINE))

    @property
    def framework(self) -> str:
        """`TENSORFLOW`, `SCIKIT_LEARN` or `XGBOOST` if the user said so; empty: the files tell."""
        return str(self.body.get("framework", ""))

    @property
    def nodes(self) -> int:
        """How many hosts it has while it is awake or can't sleep. 0: it sleeps when nobody calls."""
        if "manualScaling" in self.body:
            return int(self.body["manualScaling"].get("nodes", 1))
        return int(self.body.get("autoScaling", {}).get("minNodes", 1))

    @property
    def request_logging(self) -> RequestLogging | None:
        given = self.body.get("requestLoggingConfig", {})
        share = float(given.get("samplingPercentage", 0))
        return RequestLogging(folder=given["bigqueryTableName"], share=share) if share else None

    def with_body(self, body: Mapping[str, Any], operation: str) -> Version:
        """This version with another body. One that answers is UPDATING, by that operation, if it has other `nodes` now.

        `FailedPreconditionError` if these are to change while they are still being made to match the last change.
        """
        changed = replace(self, body=body)
        if changed.nodes == self.nodes or not self.serving:
            return changed
        if self.state is VersionState.UPDATING:
            raise FailedPreconditionError(
                f"The hosts of version {self.id} are being changed already. Try again in a moment."
            )
        return changed.to(VersionState.UPDATING, operation=operation)

    def to(self, state: VersionState, *, error: str = "", operation: str = "", **known: Any) -> Version:
        """This version in its next state; `known` are more fields to set, such as `files` and `details`.

        `FailedPreconditionError` if it cannot get there from where it is.
        """
        if state not in NEXT[self.state]:
            raise FailedPreconditionError(f"Version {self.id} is {self.state} and can't become {state}.")
        return replace(self, state=state, error=error, operation=operation, **known)


def version_body(version: Version, *, default: bool, last_use_us: int | None = None) -> dict[str, Any]:
    """A version in the API's own form. `last_use_us`: when it last answered, if it ever did."""
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
    """The runtime to look for, empty strings for the default one, and what the user should know about it."""

    runtime_version: str
    python_version: str
    note: str = ""


def serving_runtime(runtime_version: str, python_version: str) -> RuntimeRequest:
    """What to host a version on that asks for this runtime. Hosts need a Python of today: 1.x can train, not serve.

    `InvalidArgumentError` for the runtime without any framework.
    """
    if runtime_version == "python":
        raise InvalidArgumentError(
            "The runtime python holds no framework, and hosts need what the others hold. Leave this field out.",
            field="version.runtime_version",
        )
    if not re.fullmatch(r"[01]\.[0-9]{1,3}", runtime_version):
        return RuntimeRequest(runtime_version=runtime_version, python_version=python_version)
    return RuntimeRequest(
        runtime_version="",
        python_version="",
        note=f"Runtime {runtime_version} is for training. Versions that ask for it are served by the newest runtime, "
        f"which loads SavedModels of TensorFlow 1.",
    )
