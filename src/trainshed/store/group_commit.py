"""Group commit: concurrent writes share one transaction, and so one sync to disk."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from trainshed.errors import DiskFullError, UnavailableError
from trainshed.store.database import Database, Rider, Transaction, current_riders


@dataclass(slots=True, eq=False)
class _Write:
    work: Callable[[Transaction], object]
    riders: tuple[Rider, ...]
    ended: bool = False
    error: Exception | None = None


class GroupCommit:
    """Commits independent writes of several threads together. Thread-safe.

    A write commits immediately if no other one does. Those that come meanwhile wait, and one thread then commits all of
    them in one transaction.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._changed = threading.Condition()
        self._waiting: list[_Write] = []
        self._committing = False

    @property
    def waiting(self) -> int:
        """The number of writes that wait for the current commit to end."""
        return len(self._waiting)

    def run(self, work: Callable[[Transaction], object]) -> None:
        """Execute a write. It is durable on return. Raises what `work` raises; then nothing of it is written.

        `work` is executed again, alone, if a transaction that it shared was rolled back because of one of its writes.
        """
        write = _Write(work, current_riders())
        with self._changed:
            self._waiting.append(write)
            self._changed.wait_for(lambda: write.ended or not self._committing)
            group = [] if write.ended else self._waiting
            if group:
                self._waiting, self._committing = [], True
        if group:
            self._commit_group(group)
        if write.error is not None:
            raise write.error

    def _commit_group(self, group: Sequence[_Write]) -> None:
        try:
            try:
                self._commit(group)
            except Exception as exc:  # noqa: BLE001 - raised by the thread that waits for it
                self._commit_alone(group, exc)
        finally:
            with self._changed:
                for write in group:
                    if not write.ended:
                        write.error = UnavailableError("The write was interrupted. Try again.")
                    write.ended = True
                self._committing = False
                self._changed.notify_all()

    def _commit_alone(self, group: Sequence[_Write], error: Exception) -> None:
        """Commit each write in a transaction of its own, since it is unknown which of them failed.

        A database that is busy, full or unreachable fails all of them: each would wait for it as long as the group did.
        """
        if len(group) == 1 or isinstance(error, UnavailableError | DiskFullError):
            for write in group:
                write.error, write.ended = error, True
            return
        for write in group:
            try:
                self._commit([write])
            except Exception as exc:  # noqa: BLE001 - raised by the thread that waits for it
                write.error, write.ended = exc, True

    def _commit(self, group: Sequence[_Write]) -> None:
        riders = [rider for write in group for rider in write.riders]
        with self._database.write(riders=riders) as tx:
            for write in group:
                write.work(tx)
        for write in group:
            write.ended = True
