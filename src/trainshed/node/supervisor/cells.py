"""The cells of an attempt's replicas, if its spec asks for a sandbox: secrets handed in, and limits reached."""

from __future__ import annotations

import math
import os
import signal

from .. import failure
from ..files import remove_folder
from ..process.sampler import oom_kills
from .secrets import AttemptSecrets

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any, Optional

    from ..process.exit_status import ExitStatus
    from ..sandbox.cell import Cell
    from ..sandbox.limits import CellLimits
    from ..sandbox.network.namespace import SandboxNetwork
    from .child import Child
    from .log_writer import ReplicaLog

_PRIVATE_FOLDER = "private"  #: in the attempt's folder: `/tmp`, `/var/tmp` and HOME of each replica


class Cells:
    """Makes a cell for each start of a replica."""

    def __init__(self, folder: str, spec: dict[str, Any], network: Optional[SandboxNetwork] = None) -> None:
        self._folder = folder
        self._network = network
        self._sandbox: Optional[dict[str, Any]] = spec.get("sandbox")
        self._isolation: str = spec.get("isolation", "")
        self._python = spec["python"]
        self._site = spec["site"]
        self._secrets = AttemptSecrets(folder)
        self.variables = self._secrets.variables
        self.mask = self._secrets.mask
        self._on_this_machine = not spec.get("cluster")
        self._limits: dict[str, CellLimits] = {}
        self._hits: dict[str, dict[str, Any]] = {}
        self._oom_kills = oom_kills()

    @property
    def notes(self) -> list[str]:
        """Lines for the job's log. Empty without a sandbox's setting."""
        notes = [(self._sandbox or {}).get(each, "") for each in ("note", "network_note", "limits_note")]
        return [note for note in (self._isolation, *notes) if note]

    def make(self, name: str, env: dict[str, str], log: ReplicaLog) -> Optional[Cell]:
        """The cell of a replica. Returns None if it runs without. What its user should know of it goes to `log`."""
        if self._sandbox is None or self._sandbox["level"] == "none":
            return None
        from ..sandbox import view  # late: attempts in containers and on a cluster do not need it
        from ..sandbox.cell import Cell

        shown = {
            **self._sandbox,
            "network": None,  # the gang shares one
            "counted": [
                os.path.join(self._folder, "work")
            ],  # what others of the project write in buckets is not its own
            "read_only": [
                *view.interpreter_paths(self._python),
                view.node_folder(),
                self._site,
                *self._sandbox["read_only"],
            ],
            "writable": [os.path.join(self._folder, "work"), *self._sandbox["writable"]],
        }
        cell = Cell.of(shown, os.path.join(self._folder, _PRIVATE_FOLDER, name), env.get("HOME", ""))
        if self._network is not None:
            cell.join_network(self._network)
        if cell.limits is not None:
            if name in self._limits:
                self._limits[name].close()
            cell.limits.open()
            if cell.limits.note:
                log.say(cell.limits.note, "WARNING")
            self._limits[name] = cell.limits
        return cell

    @property
    def look_at(self) -> float:
        """When `look` is due, in monotonic time."""
        return min([each.look_at for each in self._limits.values()] or [math.inf])

    def look(self, children: Iterable[Child], now_s: float) -> None:
        """Look at those of these replicas for which it is due, and kill them if they have more than they may."""
        if now_s < self.look_at:
            return
        for child in children:
            limits = self._limits.get(child.name)
            if limits is not None and now_s >= limits.look_at:
                limits.look(child.first, now_s)

    def exited(self, name: str, status: ExitStatus, tail: str) -> None:
        """A replica has exited. Records it if a limit ended it."""
        limits = self._limits.get(name)
        if limits is None:
            return
        limits.stop_looking()
        hit = limits.hit(status, tail)
        if hit is not None:
            self._hits[name] = hit
            status.limited = True

    def reason(self, name: str, status: ExitStatus) -> dict[str, Any]:
        """What ended a replica, as cause and facts of a failure, if a limit did or the machine had no memory left."""
        if name in self._hits:
            return self._hits[name]
        killed = self._on_this_machine and status.signal == signal.SIGKILL and oom_kills() > self._oom_kills
        return {"cause": failure.OUT_OF_MEMORY} if killed else {}

    def remove(self) -> None:
        """Remove the private folders, the secrets and the control groups. No replica may run any more."""
        self._secrets.remove()
        for limits in self._limits.values():
            limits.close()
        remove_folder(os.path.join(self._folder, _PRIVATE_FOLDER))
