"""The words for limits that user code reached."""

from __future__ import annotations

import pytest

from trainshed.domain.jobs.failure import FailureCause
from trainshed.domain.jobs.limit_words import limit_remedy, limit_words

MEMORY, PROCESSES = FailureCause.OUT_OF_MEMORY, FailureCause.TOO_MANY_PROCESSES
FILES, FILE = FailureCause.TOO_MANY_OPEN_FILES, FailureCause.FILE_TOO_LARGE
DISK = FailureCause.DISK_LIMIT


@pytest.mark.parametrize(
    ("cause", "facts", "words"),
    [
        (MEMORY, {"used": 15_800_000_000, "limit": 16_000_000_000}, "out of memory: 15.8 of 16 GB"),
        (MEMORY, {"used": 99_900_000, "limit": 100_000_000}, "out of memory: 99.9 of 100 MB"),
        (MEMORY, {}, ""),  # of the machine
        (PROCESSES, {"used": 4096, "limit": 4096}, "too many processes: 4,096 of 4,096"),
        (FILES, {"limit": 1024}, "too many open files: the limit of a process is 1,024"),
        (FILE, {"limit": 256_000_000_000}, "file too large: the limit is 256 GB"),
        (DISK, {"used": 20_100_000_000, "limit": 20_000_000_000}, "too much on the disk: 20.1 of 20 GB"),
        (FailureCause.REPLICA_EXITED, {"limit": 3}, ""),
    ],
)
def test_facts_become_words(cause: FailureCause, facts: dict[str, object], words: str) -> None:
    assert limit_words(cause, facts) == words
    assert bool(limit_remedy(cause)) == (cause is not FailureCause.REPLICA_EXITED)
