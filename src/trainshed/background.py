"""The background loop: one thread that runs passes until it is stopped, and what failed in one pass."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from trainshed.errors import DiskFullError, TrainshedError, UnavailableError

LOG = logging.getLogger("trainshed.background")

FIRST_BACKOFF_S = 0.1  #: after a pass that failed; doubled with each further one
MAX_BACKOFF_S = 5.0
JOIN_TIMEOUT_S = 30.0


class BackgroundLoop:
    """Runs `step` again and again on a thread of its own, until `stop`. Thread-safe.

    `step` returns the seconds until the next pass, which `wake` starts earlier. A pass that raises is logged, and the
    next one follows after a backoff: only `stop` ends the loop. `step` may call `stop`, and may wait on `stopping`.
    """

    def __init__(self, name: str, step: Callable[[], float]) -> None:
        self.stopping = threading.Event()  #: set by `stop`
        self._name = name
        self._step = step
        self._wakeup = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the first pass. Called once."""
        self._thread.start()

    def wake(self) -> None:
        """Start the next pass immediately, or a further one after the pass that runs."""
        self._wakeup.set()

    def pause(self, seconds: float) -> bool:
        """Wait inside of a pass. Returns whether that was cut short, because the loop was woken or stopped."""
        return self._wakeup.wait(seconds)

    def stop(self) -> None:
        """Start no further pass. Returns immediately. Idempotent."""
        self.stopping.set()
        self._wakeup.set()

    def join(self, timeout_s: float = JOIN_TIMEOUT_S) -> bool:
        """Blocks until the pass that runs has ended, or for `timeout_s`. Call it after `stop`.

        Returns whether the thread has ended. One that was never started has.
        """
        if self._thread.is_alive():
            self._thread.join(timeout_s)
        if self._thread.is_alive():
            LOG.warning("loop.not_ended name=%s timeout_s=%g", self._name, timeout_s)
            return False
        return True

    def _run(self) -> None:
        failures = 0
        while not self.stopping.is_set():
            self._wakeup.clear()
            if self.stopping.is_set():  # `stop` may have come before `clear`
                return
            try:
                pause_s = self._step()
                failures = 0
            except TrainshedError as exc:
                LOG.warning("loop.step_failed name=%s reason=%s", self._name, exc)
                failures += 1
            except Exception:  # the loop survives any single failure; each one is logged
                LOG.exception("loop.step_failed name=%s", self._name)
                failures += 1
            if failures:
                pause_s = min(FIRST_BACKOFF_S * 2 ** min(failures - 1, 10), MAX_BACKOFF_S)
            self._wakeup.wait(pause_s)


MIN_REFUSALS_OF_OUTAGE = 2  #: a single one may be the fault of its row


class PassFailures:
    """Logs failures of single resources, which the next pass tries again, and tells an outage of the database."""

    def __init__(self, log: logging.Logger, event: str) -> None:
        self._log = log
        self._event = event
        self._refusals: list[TrainshedError] = []
        self._names: set[str] = set()

    def __bool__(self) -> bool:
        return bool(self._names)

    @property
    def names(self) -> set[str]:
        """The names of all that failed."""
        return self._names

    def add(self, name: str, exc: Exception) -> None:
        """Log a failure under the name of its resource. Call it where the exception is handled."""
        self._names.add(name)
        if isinstance(exc, UnavailableError | DiskFullError):
            self._refusals.append(exc)
        if isinstance(exc, TrainshedError):
            self._log.warning("%s name=%s reason=%s", self._event, name, exc)
        else:
            self._log.exception("%s name=%s reason=%s", self._event, name, exc)

    def raise_outage(self) -> None:
        """Raise the last refusal of the database if it refused several. Call it if nothing else succeeded."""
        if len(self._refusals) >= MIN_REFUSALS_OF_OUTAGE:
            raise self._refusals[-1]
