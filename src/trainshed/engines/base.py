"""What an engine is: the place where the replicas of a job run."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from trainshed.domain.plan import Sighting


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """What a replica runs in place of the job's module."""

    image: str
    command: tuple[str, ...]  #: empty: the image's own
    args: tuple[str, ...]
    cpus: float  #: no more than these
    memory_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """A folder of this machine that a container sees."""

    source: Path
    target: Path  #: where it sees it
    read_only: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Containers:
    """What the containers of a gang have in common."""

    tool: str  #: auto, podman or docker
    read_only: bool  #: the files of the image
    mounts: tuple[Mount, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """One process of a gang. The primary one decides how the job ends."""

    name: str  #: such as master-replica-0
    type: str
    index: int
    primary: bool
    env: Mapping[str, str] = field(default_factory=dict)  #: what differs from one replica to the next: TF_CONFIG
    container: Container | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """A file that the job's environment is made of."""

    uri: str  #: as the user wrote it, for the log
    path: Path
    sha256: str  #: of its content; `site` is named by it, so nothing else may be installed there


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """One attempt at a job, with nothing left to decide."""

    project: str
    job: str
    attempt: int
    folder: Path  #: the attempt's own; what its supervisor writes goes here
    python: Path  #: the runtime's interpreter
    module: str
    args: tuple[str, ...]
    packages: tuple[Package, ...]
    site: Path  #: where the packages are installed, shared by jobs with the same packages and runtime
    replicas: tuple[Replica, ...]
    env: Mapping[str, str]
    grace_s: float
    max_running_s: float
    log_limit_bytes: int
    warm: bool = True  #: whether it may run in a process that has the runtime's framework imported
    containers: Containers | None = None  #: if each replica has one


class Engine(Protocol):
    """Starts gangs somewhere. Raises `EngineDown`, and no other error, when it cannot."""

    def launch(self, launch: Launch) -> None:
        """Start the attempt's supervisor; it lives from then on without us. Same attempt twice: started once."""

    def observe(self, attempts: Collection[Path]) -> Mapping[Path, Sighting]:
        """One question for many attempts, by folder. Each of them is in the answer."""

    def cancel(self, attempt: Path) -> None:
        """Ask for the attempt to end. Returns at once; one that ended, or never was, is left alone."""

    def kill(self, attempt: Path, replica: str, number: int) -> None:
        """Have a signal sent to a replica, to see what happens. Returns at once; one not running is left alone."""
