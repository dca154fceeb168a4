"""Start order of a gang's replicas.

A TensorFlow worker that starts before the master's model is ready sleeps for 30 s before it checks again. If a trainer
would do that, its workers start when the master is about to build its model. They start at most MAX_DELAY_S after the
master, because a master may also wait for its workers.
"""

from __future__ import annotations

import json
import os
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    Replica = dict[str, Any]  # as in spec.json

MAX_DELAY_S = 2.0  #: after the other replicas, whatever the master does
CHECK_INTERVAL_S = 0.02
_NEVER = float("inf")
_SCAN_MAX_BYTES = 32 << 20
#: What makes workers wait for the master, and the argument with which a trainer sets the wait itself.
_WORKER_WAIT = re.compile(
    rb"MonitoredTrainingSession|WorkerSessionCreator|SessionManager|train\.Supervisor|[Ee]stimator"
)
_WAIT_ARGUMENT = b"recovery_wait_secs"
_TABLES = ("/proc/net/tcp", "/proc/net/tcp6")
_ESTABLISHED = "01"


def connected(ports: set[int], tables: tuple[str, ...] = _TABLES) -> bool:
    """Whether any process on this machine has a connection to one of these ports."""
    for table in tables:
        if not os.path.exists(table):  # a kernel without IPv6
            continue
        with open(table) as file:
            next(file)
            for line in file:
                fields = line.split()
                if fields[3] == _ESTABLISHED and int(fields[2].rpartition(":")[2], 16) in ports:
                    return True
    return False


def workers_would_sleep(site: str) -> bool:
    """Whether the packages in the folder `site` hold a trainer whose workers would sleep through the start."""
    budget, would_wait = _SCAN_MAX_BYTES, False
    for folder, _, names in os.walk(site):
        for name in names:
            path = os.path.join(folder, name)
            if not name.endswith(".py") or not os.path.isfile(path):
                continue
            with open(path, "rb") as file:
                source = file.read(budget)
            budget -= len(source)
            if _WAIT_ARGUMENT in source or budget <= 0:
                return False
            would_wait = would_wait or _WORKER_WAIT.search(source) is not None
    return would_wait


class StartOrder:
    """The replicas of a gang that are not started yet. `ready` says whether the master is connected to the ports of
    the parameter servers. TensorFlow connects when its graph is built, just before it sets the first values."""

    def __init__(self, ready: Callable[[set[int]], bool] = connected) -> None:
        self.check_at = _NEVER  #: when to call `due` next
        self._ready = ready
        self._delayed: list[Replica] = []
        self._ports: set[int] = set()
        self._deadline_s = _NEVER

    def begin(self, replicas: list[Replica], site: str, now_s: float) -> list[Replica]:
        """Returns the replicas to start immediately. `site` is the folder of installed packages.
        A second call starts over."""
        self.clear()
        self._ports = _server_ports(replicas)
        if self._ports and workers_would_sleep(site):
            self._delayed = [each for each in replicas if each["type"] == "worker"]
            self._deadline_s = now_s + MAX_DELAY_S
            self.check_at = now_s + CHECK_INTERVAL_S if self._delayed else _NEVER
        return [each for each in replicas if each not in self._delayed]

    def due(self, now_s: float) -> list[Replica]:
        """Returns the replicas that are due and forgets them."""
        if now_s < self.check_at:
            return []
        if now_s < self._deadline_s and not self._ready(self._ports):
            self.check_at = min(now_s + CHECK_INTERVAL_S, self._deadline_s)
            return []
        delayed = self._delayed
        self.clear()
        return delayed

    def clear(self) -> None:
        """Forget all delayed replicas."""
        self._delayed, self.check_at = [], _NEVER


def _server_ports(replicas: list[Replica]) -> set[int]:
    """Ports of the gang's parameter servers."""
    if not any(each["type"] == "ps" for each in replicas):
        return set()
    cluster = json.loads(replicas[0]["env"].get("TF_CONFIG", "{}")).get("cluster", {})
    return {int(address.rpartition(":")[2]) for address in cluster.get("ps", ())}
