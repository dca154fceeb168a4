"""The end of the server: what a signal stops, and the time after which the process ends whatever its threads do."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Sequence

from trainshed.api.acceptor import Acceptor
from trainshed.api.gateways.processes import GatewayProcesses
from trainshed.api.uvicorn_adapter import Listener

LOG = logging.getLogger("trainshed.server")
SHUTDOWN_GRACE_S = 35.0  #: from the first signal to the end of the process, whatever its threads do
AT_ONCE_GRACE_S = 2.0  #: from the second one


class ExitDeadline:
    """Ends the process when its time is over. A thread that blocks can keep neither the event loop nor an exit up."""

    def __init__(self, end: Callable[[int], object] = os._exit) -> None:
        self._end = end
        self._lock = threading.Lock()
        self._deadline: float | None = None

    def set(self, seconds: float) -> None:
        """End the process after `seconds`, unless an earlier end is set. Returns immediately."""
        with self._lock:
            deadline = time.monotonic() + seconds
            if self._deadline is not None and self._deadline <= deadline:
                return
            self._deadline = deadline
        threading.Thread(target=self._wait, args=(seconds,), name="exit-deadline", daemon=True).start()

    def _wait(self, seconds: float) -> None:
        time.sleep(seconds)
        threads = sorted(thread.name for thread in threading.enumerate() if not thread.daemon)
        LOG.warning("server.exit_forced after_s=%g threads=%s", seconds, ",".join(threads))
        self._end(1)


class Shutdown:
    """Stops the server at a signal: with its grace at the first one, at once at the next."""

    def __init__(
        self, acceptors: Sequence[Acceptor], listeners: Sequence[Listener], gateways: GatewayProcesses | None = None
    ) -> None:
        self.signals = 0
        self._acceptors = acceptors
        self._listeners = listeners
        self._gateways = gateways
        self._deadline = ExitDeadline()

    def begin(self) -> None:
        """Handle a signal."""
        self.signals += 1
        self._deadline.set(SHUTDOWN_GRACE_S if self.signals == 1 else AT_ONCE_GRACE_S)
        for acceptor in self._acceptors:
            acceptor.stop()
        if self._gateways is not None:
            self._gateways.stop(at_once=self.signals > 1)
        for listener in self._listeners:
            listener.stop(at_once=self.signals > 1)
