"""What a host is started with: its spec, the container that it forwards to, and the file it reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainshed.artifacts.manifest import ArtifactManifest
from trainshed.artifacts.staging import Package
from trainshed.domain.jobs.job import LOCAL_ENGINE
from trainshed.domain.models.version_container import ServingContainer

FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedContainer:
    """The container of a version with its image found."""

    container: ServingContainer
    tool: Mapping[str, Any]  #: `ContainerTool.words`
    image: str  #: the id
    env: Mapping[str, str]  #: what the server sets, but for the port
    folder: str  #: where the files of the version are inside; empty: there are none


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSpec:
    """One host of one version, with nothing left to decide."""

    project: str
    model: str
    version: str
    instance: int
    python: Path  #: the runtime's interpreter
    model_dir: Path
    loader: str
    prediction_class: str = ""
    site: str = ""  #: where the version's own packages are installed
    explanation: Mapping[str, Any] = field(default_factory=dict)
    container: ResolvedContainer | None = None  #: what serves the version, if it brings that along
    threads: int
    memory_bytes: int = 0  #: 0: as much as there is
    max_batch: int = 32
    queue_limit: int = 256
    body_limit: int
    engine: str = LOCAL_ENGINE  #: where it runs
    runtime: str = ""  #: the name of the runtime that `python` belongs to; empty for a container
    machine: str = ""  #: the machine type, where that matters
    alone: bool = False  #: other hosts of the version take nothing of what it has
    packages: tuple[Package, ...] = ()  #: what is installed in `site`, if that is known
    provisions: ArtifactManifest | None = None  #: what a host on another machine has to fetch


def render(spec: HostSpec, socket_path: Path, order: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """What a host works by; `order` is what it shall run, if its version is a container."""
    return {
        "format": FORMAT,
        "project": spec.project,
        "model": spec.model,
        "version": spec.version,
        "instance": spec.instance,
        "socket": str(socket_path),
        "model_dir": str(spec.model_dir),
        "loader": spec.loader,
        "prediction_class": spec.prediction_class,
        "site": spec.site,
        "explanation": dict(spec.explanation),
        "container": dict(order or {}),
        "threads": spec.threads,
        "memory_bytes": spec.memory_bytes,
        "max_batch": spec.max_batch,
        "queue_limit": spec.queue_limit,
        "body_limit": spec.body_limit,
    }


def log_of(folder: Path, spec: HostSpec) -> Path:
    return folder / f"{spec.instance}.log"
