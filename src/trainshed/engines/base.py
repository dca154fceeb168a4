"""What an engine is: the place where the replicas of a job run."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from trainshed.artifacts.staging import Package
from trainshed.domain.jobs.reconcile import ObservedAttempt


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaContainer:
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
class ContainerSettings:
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
    container: ReplicaContainer | None = None
    machine: str = ""  #: its machine type, where that matters
    gpus: int = 0  #: beside those of the machine


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteSpec:
    """What a machine other than the server's needs to have to run a replica. All of it is JSON."""

    runtime: Mapping[str, Any]  #: from which an environment is built there: name, key, python, lock, stands_for
    packages: tuple[Mapping[str, Any], ...]  #: uri, sha256 and url of each
    kit: Mapping[str, Any]  #: files and tokens; goes into no log and no command line


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptSpec:
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
    containers: ContainerSettings | None = None  #: if each replica has one
    elsewhere: RemoteSpec | None = None  #: for replicas that run on other machines


@dataclass(frozen=True, slots=True, kw_only=True)
class GangRequest:
    """One attempt as far as it is known before it is prepared: enough to ask for room."""

    project: str
    job: str
    attempt: int
    folder: Path  #: the attempt's own, which may not be there yet
    machines: Mapping[str, str]  #: the machine type of each replica, by its name; empty: any will do
    gpus: Mapping[str, int] = field(default_factory=dict)  #: beside those of the machines, by the replica's name


@dataclass(frozen=True, slots=True)
class Reserved:
    """There is room, and it is kept for the gang until it is released."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """There is no room now."""

    blocks_queue: bool = True  #: those behind it in the queue wait too, so that it is not overtaken for ever


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """What an engine's attempts run on does not answer. They are left as they are until it does."""

    engine: str  #: which place, such as "The Ray cluster at HOST:PORT"
    since_us: int


class Engine(Protocol):
    """Runs gangs somewhere. Raises `EngineUnavailableError`, and no other error, when it cannot."""

    def reserve(self, gang: GangRequest, others: Sequence[GangRequest]) -> Reserved | Pending:
        """Ask for room for a whole gang. `others` have theirs already. Returns at once, and may be repeated."""

    def pending_reason(self, gang: GangRequest, others: Sequence[GangRequest]) -> str:
        """What a gang that waits for room is told about it, to end a sentence. Asks for nothing."""

    def reservations(self) -> Collection[Path]:
        """The attempts that room was asked for and that it was not taken back from, by folder: also by an earlier
        server. Where the rows of jobs say all there is to say, there are none.
        """

    def release(self, attempt: Path) -> None:
        """Give the attempt's room back, and what of it still runs there. Returns at once, and may be repeated."""

    def outage(self) -> Outage | None:
        """Since when the place where attempts run does not answer; None: it does."""

    def launch(self, launch: AttemptSpec) -> None:
        """Start the attempt's supervisor; it lives from then on without us. Same attempt twice: started once."""

    def observe(self, attempts: Collection[Path]) -> Mapping[Path, ObservedAttempt]:
        """One question for many attempts, by folder. Each of them is in the answer."""

    def cancel(self, attempt: Path) -> None:
        """Ask for the attempt to end. Returns at once; one that ended, or never was, is left alone."""

    def kill(self, attempt: Path, replica: str, number: int) -> None:
        """Have a signal sent to a replica, to see what happens. Returns at once; one not running is left alone."""
