"""What the server tells of a job over time: its log, where it stands, what it measured."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from trainshed.client.context import ClientContext, own_job_path
from trainshed.domain.jobs.job import TERMINAL_STATES, JobState

WAIT_S = 20.0  #: how long the server may hold a request that has nothing to tell yet
LOOK_S = 1.0
_STATS_LOOKS = 100  #: each reads on where the last one ended


def entries(
    here: ClientContext, job: str, *, query: dict[str, Any] | None = None, follow: bool, pause_s: float | None = None
) -> Iterator[dict[str, Any]]:
    """The job's log entries in order; with `follow` until the job has ended and all of them are out.

    `pause_s` asks every so many seconds; without it the server answers as soon as there is something.
    """
    path = f"{own_job_path(here, job)}/logs"
    wait_s = WAIT_S if follow and pause_s is None else None
    asked = {**(query or {}), "wait_s": wait_s, "after": None}
    while True:
        page = here.client.call("GET", path, query=asked)
        yield from page["entries"]
        if page["ended"] or not (follow or page["more"]):
            return
        # `tail` is of what was there at first, and a duration counts from the first question
        asked |= {"after": page["next"], "tail": None, "since": page.get("since")}
        if not follow and "end" in page:
            asked["until"] = page["end"]  # a fast writer is ahead of any reader: what there is by now must do
        if pause_s and not page["entries"] and not page["more"]:
            time.sleep(pause_s)


def progress_updates(here: ClientContext, job: str, interval_s: float) -> Iterator[dict[str, Any]]:
    """The job's progress at each interval, as soon as its state changes, and at its end."""
    path = own_job_path(here, job)
    state, due_s = "", 0.0
    while state not in TERMINAL_STATES:
        found: dict[str, Any] = here.client.call("GET", f"{path}/progress")
        now_s = time.monotonic()
        if found["state"] != state or now_s >= due_s:
            due_s = now_s + interval_s
            state = found["state"]
            quiet = state == JobState.RUNNING or state in TERMINAL_STATES
            found["waiting"] = "" if quiet else here.client.call("GET", path)["waiting"]
            yield found
        if state not in TERMINAL_STATES:
            time.sleep(min(LOOK_S, interval_s))


def stats(here: ClientContext, job: str, points: int) -> dict[str, Any]:
    """The series of a job, once the server has read all of them."""
    for _ in range(_STATS_LOOKS):
        found: dict[str, Any] = here.client.call("GET", f"{own_job_path(here, job)}/stats", query={"points": points})
        if found["complete"]:
            break
    return found
