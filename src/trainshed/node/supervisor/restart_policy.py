"""Restart policy: what the exit of one replica means for its gang. Pure functions: no processes, no clock.

docs/training.md has the rules. The supervisor calls `decide` once for each replica that exits on its own,
and carries out the decision.
"""

from __future__ import annotations

from ..process.exit_status import ExitStatus

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional

    Replica = dict[str, Any]  # as in spec.json

SUCCEEDED = "SUCCEEDED"
FAILED = "FAILED"
CANCELLED = "CANCELLED"

MAX_REPLICA_RESTARTS = 5  #: of one replica, before the whole gang is restarted
MAX_GANG_RESTARTS = 3  #: of one job, before it fails
BACKOFF_S = (0.0, 1.0, 2.0, 4.0, 8.0)  #: before the first, second, ... restart of a replica
CAUSE_WAIT_S = 2.0  #: how much later than its effect the cause of a broken connection may be observed
PEER_LOSS_WINDOW_S = 60.0  #: how long after the loss of a replica a peer may fail over its connection to it

GO_ON = "go on"
HOLD = "hold"  #: maybe a peer's loss, not observed yet: decide again after a loss, or end the job after CAUSE_WAIT_S
RESTART = "restart"  #: this replica alone
RESTART_GANG = "restart gang"
END = "end"

#: Why a job ends that none of its replicas ended.
REAPER_KILLED = (
    "The reaper process of this job was killed, and its replicas were ended with it. "
    "Nothing is wrong with the job itself: submit it again under a new name."
)
STOPPED = (
    "The supervisor of this job was told to stop (SIGTERM), as when the machine shuts down, and ended its replicas. "
    "Nothing is wrong with the job itself: submit it again under a new name."
)
TOO_LONG = (
    "The job ran longer than its maxRunningTime of %g s and was cancelled. "
    "Raise scheduling.maxRunningTime if it needs longer."
)


class JobEnd:
    """Why a job ends. `blame` is the replica at fault. `message` is the reason, or an addition about the replica.
    `grace_s` is the time that running replicas have between SIGTERM and SIGKILL."""

    __slots__ = ("blame", "grace_s", "message", "outcome")

    def __init__(self, outcome: str, grace_s: float, message: str = "", blame: str = "") -> None:
        self.outcome = outcome
        self.grace_s = grace_s
        self.message = message
        self.blame = blame


class RestartDecision:
    """What to do: one of the five actions above. `delay_s` belongs to RESTART, `outcome` and `message` to END."""

    __slots__ = ("delay_s", "message", "outcome", "word")

    def __init__(self, word: str, delay_s: float = 0.0, outcome: str = "", message: str = "") -> None:
        self.word = word
        self.delay_s = delay_s
        self.outcome = outcome
        self.message = message


class RestartHistory:
    """The restarts of each replica and of the gang, and which replica was lost last, and when."""

    __slots__ = ("gang_restarts", "lost", "lost_s", "restarts")

    def __init__(
        self,
        restarts: Optional[dict[str, int]] = None,
        gang_restarts: int = 0,
        lost: str = "",
        lost_s: float = float("-inf"),
    ) -> None:
        self.restarts = restarts or {}
        self.gang_restarts = gang_restarts
        self.lost = lost
        self.lost_s = lost_s

    def losing(self, name: str, now_s: float) -> RestartHistory:
        """The history after the loss of `name`."""
        return RestartHistory(self.restarts, self.gang_restarts, name, now_s)

    def after(self, name: str, decision: RestartDecision) -> RestartHistory:
        """The history after `decision` on `name`. A gang restart resets the counts of all replicas."""
        if decision.word == RESTART:
            restarts = dict(self.restarts)
            restarts[name] = restarts.get(name, 0) + 1
            return RestartHistory(restarts, self.gang_restarts, self.lost, self.lost_s)
        if decision.word == RESTART_GANG:
            return RestartHistory({}, self.gang_restarts + 1, self.lost, self.lost_s)
        return self


def decide(
    replicas: list[Replica], history: RestartHistory, name: str, status: ExitStatus, peer_loss: bool, now_s: float
) -> RestartDecision:
    """Decide what follows from the exit of replica `name`.

    `peer_loss`: its log tail ends in a broken connection. If this exit is a loss, `history` includes it already.
    """
    replica = next(each for each in replicas if each["name"] == name)
    if status.ok:
        return RestartDecision(END, outcome=SUCCEEDED) if replica["primary"] else RestartDecision(GO_ON)
    if not status.lost:
        if not peer_loss:
            return RestartDecision(END, outcome=FAILED)
        if now_s - history.lost_s > PEER_LOSS_WINDOW_S:
            return RestartDecision(HOLD)
    return _restart(replicas, history, replica, status)


def _restart(replicas: list[Replica], history: RestartHistory, replica: Replica, status: ExitStatus) -> RestartDecision:
    """Restart the replica, restart the gang, or fail the job."""
    count = history.restarts.get(replica["name"], 0)
    address_lost = status.node_lost or (replica["primary"] and status.lost)  # on another node it has another address
    restartable = replica["type"] == "evaluator" or (not all_reduce(replicas) and not address_lost)
    if restartable and count < MAX_REPLICA_RESTARTS:
        return RestartDecision(RESTART, delay_s=BACKOFF_S[count])
    if history.gang_restarts < MAX_GANG_RESTARTS:
        return RestartDecision(RESTART_GANG)
    return RestartDecision(END, outcome=FAILED, message=_limit_message(replicas, history, replica, count))


def all_reduce(replicas: list[Replica]) -> bool:
    """Whether the members talk to each other directly, so that none runs without the others."""
    types = {each["type"] for each in replicas}
    return "worker" in types and "ps" not in types


def _limit_message(replicas: list[Replica], history: RestartHistory, replica: Replica, count: int) -> str:
    subject = "The job" if len(replicas) == 1 else "The whole gang"
    message = "%s had been restarted %d times already, which is the limit." % (subject, history.gang_restarts)
    if count:
        message = "%s had been restarted %d times since the gang last was. %s" % (replica["name"], count, message)
    return message
