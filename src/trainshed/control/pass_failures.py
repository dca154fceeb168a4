"""Failures of single jobs or versions in one pass of a controller."""

from __future__ import annotations

import logging

from trainshed.errors import DiskFullError, TrainshedError, UnavailableError

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
