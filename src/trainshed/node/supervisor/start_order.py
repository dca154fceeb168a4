"""Who of a gang starts first.

A worker of TensorFlow's that comes before the master's model is ready sleeps for 30 s before it asks again. So where a
trainer would do that, workers start when the master is about to make its model, and never much later than the master:
a master may just as well wait for its workers.
"""

from __future__ import annotations

import json
import os
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    Replica = dict[str, Any]  # as in spec.json

MAX_DELAY_S = 2.0  #: after the others, whatever the master does
LOOK_S = 0.02
_NEVER = float("inf")
_SCAN_LIMIT = 32 << 20
#: What makes workers wait for the master, and the argument by which a trainer says for itself how long.
_WAITS = re.compile(rb"MonitoredTrainingSession|WorkerSessionCreator|SessionManager|train\.Supervisor|[Ee]stimator")
_TUNED = b"recovery_wait_secs"
_TABLES = ("/proc/net/tcp", "/proc/net/tcp6")
_ESTABLISHED = "01"


def connected(ports: set[int], tables: tuple[str, ...] = _TABLES) -> bool:
    """Whether anyone on this machine has a connection to one of these ports."""
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
    left, waits = _SCAN_LIMIT, False
    for folder, _, names in os.walk(site):
        for name in names:
            path = os.path.join(folder, name)
            if not name.endswith(".py") or not os.path.isfile(path):
                continue
            with open(path, "rb") as file:
                source = file.read(left)
            left -= len(source)
            if _TUNED in source or left <= 0:
                return False
            waits = waits or _WAITS.search(source) is not None
    return waits


class StartOrder:
    """The replicas of a gang that are not started yet. `ready` is asked whether the master has come to the ports of the
    parameter servers: TensorFlow goes there when its graph is built, just before it sets the first values."""

    def __init__(self, ready: Callable[[set[int]], bool] = connected) -> None:
        self.look_at = _NEVER  #: when to ask `due` next
        self._ready = ready
        self._waiting: list[Replica] = []
        self._ports: set[int] = set()
        self._latest = _NEVER

    def begin(self, replicas: list[Replica], site: str, now_s: float) -> list[Replica]:
        """Those to start at once. `site` is the folder of installed packages. Begins anew if asked again."""
        self.clear()
        self._ports = _server_ports(replicas)
        if self._ports and workers_would_sleep(site):
            self._waiting = [each for each in replicas if each["type"] == "worker"]
            self._latest = now_s + MAX_DELAY_S
            self.look_at = now_s + LOOK_S if self._waiting else _NEVER
        return [each for each in replicas if each not in self._waiting]

    def due(self, now_s: float) -> list[Replica]:
        """Those whose time has come; from then on they are no longer held here."""
        if now_s < self.look_at:
            return []
        if now_s < self._latest and not self._ready(self._ports):
            self.look_at = min(now_s + LOOK_S, self._latest)
            return []
        waiting = self._waiting
        self.clear()
        return waiting

    def clear(self) -> None:
        """Start none of them any more."""
        self._waiting, self.look_at = [], _NEVER


def _server_ports(replicas: list[Replica]) -> set[int]:
    """Where the gang's parameter servers listen."""
    if not any(each["type"] == "ps" for each in replicas):
        return set()
    cluster = json.loads(replicas[0]["env"].get("TF_CONFIG", "{}")).get("cluster", {})
    return {int(address.rpartition(":")[2]) for address in cluster.get("ps", ())}
