"""How often running jobs are looked at: more often while one has just started, since short ones end soon."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sized

YOUNG_JOB_S = 2.0  #: since the last launch
YOUNG_JOB_POLLS = 5  #: in place of one, while a job is young
MAX_POLLED_FASTER = 16  #: attempts in all; with more, polling would cost too much


class PollInterval:
    """The seconds between two polls of the engines."""

    def __init__(self, poll_s: float) -> None:
        self._poll_s = poll_s
        self._last_launch = -math.inf  # by the monotonic clock

    def note_launch(self) -> None:
        self._last_launch = time.monotonic()

    def seconds(self, observed: Mapping[str, Sized]) -> float:
        """Return the interval while these attempts are observed, by engine."""
        young = time.monotonic() - self._last_launch < YOUNG_JOB_S
        few = sum(map(len, observed.values())) <= MAX_POLLED_FASTER
        return self._poll_s / YOUNG_JOB_POLLS if young and few else self._poll_s
