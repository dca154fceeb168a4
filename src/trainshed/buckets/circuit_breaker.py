"""The way to a cloud: how long an answer may take, and what is said where none comes."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

from trainshed.errors import FailedPreconditionError, UnavailableError

CALL_TIMEOUT_S = 20.0  #: within which a question is answered, or fails
TRANSFER_TIMEOUT_S = 120.0  #: the same for one that takes some megabytes there or back
TRIP_AFTER_S = 3.0  #: what fails later than this holds a thread of the server for too long
OPEN_S = 5  #: after such a failure, until somebody tries again
_MAX_REASON = 300

P = ParamSpec("P")
T = TypeVar("T")


class CircuitBreaker:
    """To the place `url`, where the bucket `bucket` is kept. Threads may share it.

    A cloud that does not answer is asked by one at a time: the others are told at once, so that they don't hold
    threads which all else that the server does needs too.
    """

    def __init__(
        self, bucket: str, url: str, loop: asyncio.AbstractEventLoop, *, failures: tuple[type[Exception], ...]
    ) -> None:
        """Questions are asked on `loop`, and `failures` are what they raise if something is wrong on the way."""
        self._place = f"{url}, where gs://{bucket} is kept,"
        self._table = f"[buckets.{bucket}]"
        self._loop = loop
        self._failures: tuple[type[Exception], ...] = (*failures, OSError)  # TimeoutError is one
        self._lock = threading.Lock()
        self._shut_until = 0.0  #: 0: it is open
        self._reason = ""

    def call(
        self, limit_s: float, work: Callable[P, Coroutine[Any, Any, T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """What `work` brings. `FileNotFoundError` and `FileExistsError` are answers, and passed on.

        `UnavailableError` for all that goes wrong on the way, and if the cloud does not let us in.
        """
        begun = self._enter(limit_s)
        limited = asyncio.wait_for(work(*args, **kwargs), limit_s)
        try:
            found = asyncio.run_coroutine_threadsafe(limited, self._loop).result()
        except (FileNotFoundError, FileExistsError):
            self._close_circuit()
            raise
        except PermissionError as exc:
            self._close_circuit()
            raise UnavailableError(
                f"{self._place} does not let this server in: {_reason(exc)}. Look at the credentials in the "
                f"environment that the server was started in, and at what they are good for.",
                retry_after_s=OPEN_S,
            ) from exc
        except self._failures as exc:
            reason = _reason(exc) or f"it did not answer within {limit_s:.0f} s"
            if time.monotonic() - begun > TRIP_AFTER_S:
                self._trip(reason)
            raise self._unusable(reason) from exc
        self._close_circuit()
        return found

    def no_bucket(self, name: str) -> FailedPreconditionError:
        return FailedPreconditionError(
            f"{self._place} can't be used: there is no bucket {name} there. Make it, or correct {self._table} in "
            f"config.toml."
        )

    def _enter(self, limit_s: float) -> float:
        now = time.monotonic()
        with self._lock:
            if now < self._shut_until:
                raise self._unusable(self._reason)
            if self._shut_until:  # this one tries, and the others go on as before until it knows
                self._shut_until = now + limit_s
        return now

    def _close_circuit(self) -> None:
        with self._lock:
            self._shut_until = 0.0

    def _trip(self, reason: str) -> None:
        with self._lock:
            self._shut_until = time.monotonic() + OPEN_S
            self._reason = reason

    def _unusable(self, reason: str) -> UnavailableError:
        return UnavailableError(
            f"{self._place} can't be used now: {reason}. If that does not pass, look at the network and at the "
            f"credentials in the environment that the server was started in.",
            retry_after_s=OPEN_S,
        )


def _reason(exc: Exception) -> str:
    """What a library says, on one line and without the full stop."""
    return " ".join(str(exc).split())[:_MAX_REASON].rstrip(".")
