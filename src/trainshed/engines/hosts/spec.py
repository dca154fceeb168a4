"""The spec of a host: what it is started with, the container that it forwards to, and its spec file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainshed.artifacts.manifest import ArtifactManifest
from trainshed.artifacts.staging import Package
from trainshed.domain.access.secrets import Delivery
from trainshed.domain.models.version_container import ServingContainer
from trainshed.domain.names import LOCAL_ENGINE

FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedContainer:
    """The container of a version with its image resolved."""

    container: ServingContainer
    tool: Mapping[str, Any]  #: `ContainerTool.words`
    image: str  #: the id
    env: Mapping[str, str]  #: variables that the server sets, except for the port
    folder: str  #: the model folder in the container; empty: there are no files


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSpec:
    """One host of one version, fully resolved."""

    project: str
    model: str
    version: str
    instance: int
    python: Path  #: the runtime's interpreter
    model_dir: Path
    subfolder: str = ""  #: of `model_dir` that has the model; empty: itself
    loader: str
    prediction_class: str = ""
    site: str = ""  #: folder of the version's own installed packages
    explanation: Mapping[str, Any] = field(default_factory=dict)
    container: ResolvedContainer | None = None  #: the version's container, if it has one
    threads: int
    memory_bytes: int = 0  #: 0: no limit
    max_batch: int = 32
    batching: str = "auto"  #: `auto`, `exact` or `off`
    precision: str = "f32"  #: `f32` or `bf16`
    queue_limit: int = 256
    body_limit: int
    engine: str = LOCAL_ENGINE  #: where it runs
    runtime: str = ""  #: the name of the runtime that `python` belongs to; empty for a container
    machine: str = ""  #: the machine type, if the engine uses it
    alone: bool = False  #: it shares no resources with other hosts of the version
    packages: tuple[Package, ...] = ()  #: installed in `site`, if known
    secrets: Mapping[str, Delivery] = field(default_factory=dict)  #: that it gets, by name
    manifest: ArtifactManifest | None = None  #: what a remote host has to fetch


def render(spec: HostSpec, socket_path: Path | None, container: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The content of a host's spec file. Without `socket_path`, its standard input is the listening socket. `container`
    is what it runs, if its version is a container."""
    return {
        "format": FORMAT,
        "project": spec.project,
        "model": spec.model,
        "version": spec.version,
        "instance": spec.instance,
        "socket": str(socket_path or ""),
        "model_dir": str(spec.model_dir),
        "subfolder": spec.subfolder,
        "loader": spec.loader,
        "prediction_class": spec.prediction_class,
        "site": spec.site,
        "explanation": dict(spec.explanation),
        "container": dict(container or {}),
        "threads": spec.threads,
        "memory_bytes": spec.memory_bytes,
        "max_batch": spec.max_batch,
        "batching": spec.batching,
        "precision": spec.precision,
        "queue_limit": spec.queue_limit,
        "body_limit": spec.body_limit,
    }


def log_of(folder: Path, spec: HostSpec) -> Path:
    return folder / f"{spec.instance}.log"
