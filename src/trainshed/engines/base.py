"""The engine contract: what launches and observes the attempts of jobs, and the specs it gets."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from trainshed.artifacts.staging import Package
from trainshed.domain.jobs.reconcile import ObservedAttempt


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaContainer:
    """A container that a replica runs in place of the job's module."""

    image: str
    command: tuple[str, ...]  #: empty: the image's own
    args: tuple[str, ...]
    cpus: float  #: at most
    memory_bytes: int
    pull: bool = True  #: whether the image may be pulled if the machine does not have it


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """A folder of this machine that is mounted into a container."""

    source: Path
    target: Path  #: path in the container
    read_only: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerSettings:
    """Settings that all containers of a gang share."""

    tool: str  #: auto, podman or docker
    read_only: bool  #: the files of the image
    mounts: tuple[Mount, ...] = ()
    secret_variables: tuple[str, ...] = ()  #: whose values the supervisor has


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """One process of a gang. The primary one decides how the job ends."""

    name: str  #: such as master-replica-0
    type: str
    index: int
    primary: bool
    env: Mapping[str, str] = field(default_factory=dict)  #: variables of this replica only: TF_CONFIG
    container: ReplicaContainer | None = None
    machine: str = ""  #: its machine type, if the engine uses it
    gpus: int = 0  #: in addition to those of the machine type


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteSpec:
    """What a remote node needs to run a replica. All of it is JSON."""

    runtime: Mapping[str, Any]  #: the recipe of its environment: name, key, python, lock, stands_for
    packages: tuple[Mapping[str, Any], ...]  #: uri, sha256 and url of each
    credentials: Mapping[str, Any]  #: files and tokens; must not appear in logs or command lines


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptSpec:
    """One attempt at a job, fully resolved."""

    project: str
    job: str
    attempt: int
    folder: Path  #: the attempt's own; its supervisor writes here
    python: Path  #: the runtime's interpreter
    module: str
    args: tuple[str, ...]
    packages: tuple[Package, ...]
    site: Path  #: folder of installed packages, shared by jobs with the same packages and runtime
    replicas: tuple[Replica, ...]
    env: Mapping[str, str]
    grace_s: float
    max_running_s: float
    log_limit_bytes: int
    hang_timeout_s: float = (
        0.0  #: without step, output and CPU time, until a replica hangs; 0: hangs are not looked for
    )
    hang_restart: bool = False  #: whether a replica that hangs is killed, so that it restarts
    backoff_factor: float = 1.0  #: of the pauses before a replica's restarts
    warm: bool = True  #: whether it may start from a warm process
    containers: ContainerSettings | None = None  #: if each replica has one
    remote: RemoteSpec | None = None  #: for remote replicas
    readable: tuple[Path, ...] = ()  #: what replicas in a sandbox can read besides their runtime and packages
    writable: tuple[Path, ...] = ()  #: what they can write besides their working folder


@dataclass(frozen=True, slots=True, kw_only=True)
class GangRequest:
    """An attempt before it is prepared, with what admission needs."""

    project: str
    job: str
    attempt: int
    folder: Path  #: the attempt's own, which may not exist yet
    machines: Mapping[str, str]  #: the machine type of each replica, by its name; empty: any
    gpus: Mapping[str, int] = field(default_factory=dict)  #: in addition to those of the machine types, by replica name


@dataclass(frozen=True, slots=True)
class Reserved:
    """The gang has its capacity until it is released."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """There is no capacity now."""

    blocks_queue: bool = True  #: it could fit: it waits for others to end, and is passed over if a later one starts
    full: bool = False  #: no other gang fits either


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """An engine's cluster does not respond. Its attempts stay as they are until it does."""

    engine: str  #: its name, such as "The Ray cluster at HOST:PORT"
    since_us: int


class Engine(Protocol):
    """Runs gangs. Raises only `EngineUnavailableError`."""

    def reserve(
        self, gang: GangRequest, others: Sequence[GangRequest], ahead: Sequence[GangRequest] = ()
    ) -> Reserved | Pending:
        """Request capacity for a whole gang. `others` have theirs already. Returns immediately. Idempotent.

        The gangs `ahead` wait for theirs, and nothing may overtake them: they get what becomes free.
        """

    def pending_reason(self, gang: GangRequest, others: Sequence[GangRequest]) -> str:
        """Why a gang is pending, to end a sentence. Requests nothing."""

    def reservations(self) -> Collection[Path]:
        """Folders of the attempts with a reservation, including those of an earlier server. Empty if the rows
        of jobs are the only record."""

    def release(self, attempt: Path) -> None:
        """Release the attempt's capacity and kill what still runs there. Returns immediately. Idempotent."""

    def outage(self) -> Outage | None:
        """The current outage. Returns None if the engine responds."""

    def launch(self, spec: AttemptSpec) -> None:
        """Start the attempt's supervisor, which then runs independently of the server. Idempotent."""

    def observe(self, attempts: Collection[Path]) -> Mapping[Path, ObservedAttempt]:
        """Observe many attempts, by folder, in one call. The result has each of them."""

    def cancel(self, attempt: Path) -> None:
        """Request the attempt's end. Returns immediately. Ignores attempts that have ended or were never started."""

    def kill(self, attempt: Path, replica: str, number: int) -> None:
        """Send a signal to a replica, for fault injection. Returns immediately. Ignores replicas that do not run."""
