"""The server's own backups: copies of a SQLite database on a timer."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trainshed.background import BackgroundLoop
from trainshed.store.sqlite import back_up, is_backup_due

LOG = logging.getLogger("trainshed.backup.timer")

MAX_PAUSE_S = 60.0  #: between two looks, so that a clock that was set does not stop the backups


class BackupTimer:
    """Copies the database at the start and then every `interval_s`, if it has changed, and keeps `keep` copies."""

    def __init__(self, database: Path, *, interval_s: float, keep: int) -> None:
        self._database = database
        self._interval_s = interval_s
        self._keep = keep
        self._loop = BackgroundLoop("backup", self.step)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Make backups inside the block, on a thread of its own."""
        self._loop.start()
        try:
            yield
        finally:
            self._loop.stop()
            self._loop.join()

    def step(self) -> float:
        """Make a backup if one is due. A failure is logged. Returns the seconds until the next look."""
        try:
            if is_backup_due(self._database, interval_s=self._interval_s):
                copy = back_up(self._database, keep=self._keep)
                LOG.info("database.copied path=%s", copy)
        except (sqlite3.Error, OSError) as exc:
            LOG.warning("database.not_copied path=%s reason=%s", self._database, exc)
        return min(self._interval_s, MAX_PAUSE_S)
