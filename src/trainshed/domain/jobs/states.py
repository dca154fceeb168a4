"""The states of a job and the legal transitions between them."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class JobState(StrEnum):
    """The API's job states."""

    QUEUED = "QUEUED"  #: stored; waits for admission
    PREPARING = "PREPARING"  #: its runtime, packages and processes are being set up
    RUNNING = "RUNNING"  #: the user's code runs in every replica
    CANCELLING = "CANCELLING"  #: cancellation was requested, or a limit ends it; some replicas still run
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


TERMINAL_STATES = frozenset({JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED})

TRANSITIONS: Mapping[JobState, frozenset[JobState]] = {
    JobState.QUEUED: frozenset({JobState.PREPARING, JobState.CANCELLED, JobState.FAILED}),
    JobState.PREPARING: TERMINAL_STATES
    | {JobState.RUNNING, JobState.CANCELLING},  # a short job may end before it is observed
    JobState.RUNNING: TERMINAL_STATES | {JobState.CANCELLING},
    JobState.CANCELLING: frozenset({JobState.CANCELLED, JobState.FAILED}),  #: FAILED if the server itself ends it
} | dict.fromkeys(TERMINAL_STATES, frozenset())
