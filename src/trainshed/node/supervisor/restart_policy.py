"""Restart policy: what the exit of one replica means for its gang. Pure functions: no processes, no clock.

docs/training.md has the rules. The supervisor calls `decide` once for each replica that exits on its own,
and carries out the decision.
"""

from __future__ import annotations

from .. import failure
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


class JobEnd:
    """How a job ends. `blame` is the replica at fault. `failure` is the reason, as in `failure.py`, or what is known
    besides the exit of that replica. `grace_s` is the time that replicas have between SIGTERM and SIGKILL."""

    __slots__ = ("blame", "failure", "grace_s", "outcome")

    def __init__(self, outcome: str, grace_s: float, known: Optional[dict[str, Any]] = None, blame: str = "") -> None:
        self.outcome = outcome
        self.grace_s = grace_s
        self.failure = known
        self.blame = blame


def failed(grace_s: float, cause: str, message: str = "") -> JobEnd:
    """The end of a job that none of its replicas ended."""
    return JobEnd(FAILED, grace_s, {"cause": cause, "message": message})


def over_time(spec: dict[str, Any]) -> JobEnd:
    """The end of a job that ran for its longest time."""
    over = {"cause": failure.TIME_LIMIT, "facts": {"limit_s": spec["max_running_s"]}}
    return JobEnd(CANCELLED, spec["grace_s"], over)


class RestartDecision:
    """What to do: one of the five actions above. `delay_s` belongs to RESTART, `outcome` and `known` to END. `known` is
    the part of the failure that tells of a limit of restarts."""

    __slots__ = ("delay_s", "known", "outcome", "word")

    def __init__(
        self, word: str, delay_s: float = 0.0, outcome: str = "", known: Optional[dict[str, Any]] = None
    ) -> None:
        self.word = word
        self.delay_s = delay_s
        self.outcome = outcome
        self.known = known


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
    facts = {"gang_restarts": history.gang_restarts, "replica_restarts": count, "gang_size": len(replicas)}
    return RestartDecision(END, outcome=FAILED, known={"facts": facts})


def all_reduce(replicas: list[Replica]) -> bool:
    """Whether the members talk to each other directly, so that none runs without the others."""
    types = {each["type"] for each in replicas}
    return "worker" in types and "ps" not in types
