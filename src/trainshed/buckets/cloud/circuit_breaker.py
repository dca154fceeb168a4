"""Circuit breaker for a cloud: bounds the time of each call, and fails fast while the cloud does not respond."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

from trainshed.errors import FailedPreconditionError, UnavailableError

CALL_TIMEOUT_S = 20.0  #: for one call
TRANSFER_TIMEOUT_S = 120.0  #: for a call that transfers some megabytes
TRIP_AFTER_S = 3.0  #: a failure that takes longer trips the breaker, because it blocks a server thread too long
OPEN_S = 5  #: how long the breaker stays open
_MAX_REASON_CHARACTERS = 300

P = ParamSpec("P")
T = TypeVar("T")


class CircuitBreaker:
    """The circuit breaker of the cloud bucket `bucket` at `url`. Thread-safe.

    While a cloud does not respond, one call at a time tries it. All others fail immediately and do not block threads
    that the rest of the server needs.
    """

    def __init__(
        self, bucket: str, url: str, loop: asyncio.AbstractEventLoop, *, failures: tuple[type[Exception], ...]
    ) -> None:
        """Calls run on `loop`. `failures` are the exceptions of a failed connection."""
        self._location = f"{url}, where gs://{bucket} is kept,"
        self._table = f"[buckets.{bucket}]"
        self._loop = loop
        self._failures: tuple[type[Exception], ...] = (*failures, OSError)  # includes TimeoutError
        self._lock = threading.Lock()
        self._open_until = 0.0  #: 0: closed, calls pass
        self._reason = ""

    def call(
        self, limit_s: float, work: Callable[P, Coroutine[Any, Any, T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Return the result of `work`. `FileNotFoundError` and `FileExistsError` are results too, and propagate.

        Raises `UnavailableError` if the connection fails or the cloud denies access.
        """
        started_s = self._admit_call(limit_s)
        coroutine = asyncio.wait_for(work(*args, **kwargs), limit_s)
        try:
            result = asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()
        except (FileNotFoundError, FileExistsError):
            self._close_circuit()
            raise
        except PermissionError as exc:
            self._close_circuit()
            raise UnavailableError(
                f"{self._location} does not let this server in: {_reason(exc)}. Look at the credentials in the "
                f"environment that the server was started in, and at what they are good for.",
                retry_after_s=OPEN_S,
            ) from exc
        except self._failures as exc:
            reason = _reason(exc) or f"it did not answer within {limit_s:.0f} s"
            if time.monotonic() - started_s > TRIP_AFTER_S:
                self._trip(reason)
            raise self._unavailable(reason) from exc
        self._close_circuit()
        return result

    def no_bucket(self, name: str) -> FailedPreconditionError:
        return FailedPreconditionError(
            f"{self._location} can't be used: there is no bucket {name} there. Make it, or correct {self._table} in "
            f"config.toml."
        )

    def _admit_call(self, limit_s: float) -> float:
        now = time.monotonic()
        with self._lock:
            if now < self._open_until:
                raise self._unavailable(self._reason)
            if self._open_until:  # this call tries; the others keep failing until it returns
                self._open_until = now + limit_s
        return now

    def _close_circuit(self) -> None:
        with self._lock:
            self._open_until = 0.0

    def _trip(self, reason: str) -> None:
        with self._lock:
            self._open_until = time.monotonic() + OPEN_S
            self._reason = reason

    def _unavailable(self, reason: str) -> UnavailableError:
        return UnavailableError(
            f"{self._location} can't be used now: {reason}. If that does not pass, look at the network and at the "
            f"credentials in the environment that the server was started in.",
            retry_after_s=OPEN_S,
        )


def _reason(exc: Exception) -> str:
    """A library's message on one line, without the full stop."""
    return " ".join(str(exc).split())[:_MAX_REASON_CHARACTERS].rstrip(".")
