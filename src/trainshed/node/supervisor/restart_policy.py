"""What the end of one replica means for all of them. Decisions only: nothing here touches a process or a clock.

The rules are in docs/training.md. `decide` is asked once for each replica that ended on its own, and its answer is
carried out by the supervisor.
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

REPLICA_RESTARTS = 5  #: of one replica, before the whole gang is started again
GANG_RESTARTS = 3  #: of one job, before it fails
BACKOFF_S = (0.0, 1.0, 2.0, 4.0, 8.0)  #: before the first, second, ... restart of a replica
CAUSE_WAIT_S = 2.0  #: how long the cause of a broken connection may come after its effect
PEER_LOSS_WINDOW_S = 60.0  #: how long after the loss of a replica another may end over the connection to it

GO_ON = "go on"
HOLD = "hold"  #: it may be the effect of a loss not seen yet: ask again when one is, or end the job after HOLD_S
RESTART = "restart"  #: this replica alone
RESTART_GANG = "restart gang"
END = "end"

#: Why a job ends that none of its replicas ended.
REAPER_KILLED = (
    "The guardian process of this job was killed, and its replicas were ended with it. "
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
    """Why a job ends. `blame` is the replica at fault; `message` says why, or what there is to add about the replica.
    `grace_s` is how long the replicas that still run have between SIGTERM and SIGKILL."""

    __slots__ = ("blame", "grace_s", "message", "outcome")

    def __init__(self, outcome: str, grace_s: float, message: str = "", blame: str = "") -> None:
        self.outcome = outcome
        self.grace_s = grace_s
        self.message = message
        self.blame = blame


class RestartDecision:
    """What to do: one of the five words above. `delay_s` belongs to RESTART; `outcome` and `message` to END."""

    __slots__ = ("delay_s", "message", "outcome", "word")

    def __init__(self, word: str, delay_s: float = 0.0, outcome: str = "", message: str = "") -> None:
        self.word = word
        self.delay_s = delay_s
        self.outcome = outcome
        self.message = message


class RestartHistory:
    """What the gang has been through: who was restarted how often, and when a replica was last lost, and which."""

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
        """The same, after `name` was lost."""
        return RestartHistory(self.restarts, self.gang_restarts, name, now_s)

    def after(self, name: str, step: RestartDecision) -> RestartHistory:
        """The same, after `step` was taken over `name`. With a new gang all counts of replicas begin again."""
        if step.word == RESTART:
            restarts = dict(self.restarts)
            restarts[name] = restarts.get(name, 0) + 1
            return RestartHistory(restarts, self.gang_restarts, self.lost, self.lost_s)
        if step.word == RESTART_GANG:
            return RestartHistory({}, self.gang_restarts + 1, self.lost, self.lost_s)
        return self


def decide(
    replicas: list[Replica], past: RestartHistory, name: str, end: ExitStatus, echo: bool, now_s: float
) -> RestartDecision:
    """What follows from the end of replica `name`.

    `echo`: its last words are of a broken connection. `past` knows of the loss already, if this is one.
    """
    replica = next(each for each in replicas if each["name"] == name)
    if end.ok:
        return RestartDecision(END, outcome=SUCCEEDED) if replica["primary"] else RestartDecision(GO_ON)
    if not end.lost:
        if not echo:
            return RestartDecision(END, outcome=FAILED)
        if now_s - past.lost_s > PEER_LOSS_WINDOW_S:
            return RestartDecision(HOLD)
    return _again(replicas, past, replica, end)


def _again(replicas: list[Replica], past: RestartHistory, replica: Replica, end: ExitStatus) -> RestartDecision:
    """How to go on without the replica: with a new copy of it, with a new gang, or not at all."""
    count = past.restarts.get(replica["name"], 0)
    gone = end.node_lost or (replica["primary"] and end.lost)  # on another node it has another address
    alone = replica["type"] == "evaluator" or (not all_reduce(replicas) and not gone)
    if alone and count < REPLICA_RESTARTS:
        return RestartDecision(RESTART, delay_s=BACKOFF_S[count])
    if past.gang_restarts < GANG_RESTARTS:
        return RestartDecision(RESTART_GANG)
    return RestartDecision(END, outcome=FAILED, message=_spent(replicas, past, replica, count))


def all_reduce(replicas: list[Replica]) -> bool:
    """Whether the members talk to each other directly, so that none can do without another."""
    types = {each["type"] for each in replicas}
    return "worker" in types and "ps" not in types


def _spent(replicas: list[Replica], past: RestartHistory, replica: Replica, count: int) -> str:
    whole = "The job" if len(replicas) == 1 else "The whole gang"
    said = "%s had been restarted %d times already, which is the limit." % (whole, past.gang_restarts)
    if count:
        said = "%s had been restarted %d times since the gang last was. %s" % (replica["name"], count, said)
    return said
