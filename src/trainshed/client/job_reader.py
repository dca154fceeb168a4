"""Reading a job over time: its log, its progress, its metrics."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from trainshed.client.context import ClientContext, native_job_path
from trainshed.client.transport import segment
from trainshed.domain.jobs.states import TERMINAL_STATES, JobState

LONG_POLL_TIMEOUT_S = 20.0  #: how long the server may hold a request without entries
PROGRESS_INTERVAL_S = 1.0
_MAX_STATS_CALLS = 100  #: each call continues where the last one ended


def entries(
    context: ClientContext, job: str, *, query: dict[str, Any] | None = None, follow: bool, pause_s: float | None = None
) -> Iterator[dict[str, Any]]:
    """Yield the job's log entries in order; with `follow`, until the job has ended and all of them are out.

    With `pause_s` it polls at that interval. Without it the server holds each request until there are entries.
    """
    path = f"{native_job_path(context, job)}/logs"
    wait_s = LONG_POLL_TIMEOUT_S if follow and pause_s is None else None
    parameters = {**(query or {}), "waitSeconds": wait_s, "cursor": None}
    while True:
        page = context.client.call("GET", path, query=parameters)
        yield from page["entries"]
        if page["ended"] or not (follow or page["more"]):
            return
        # `tail` and a relative `since` apply to the first request only
        parameters |= {"cursor": page["cursor"], "tail": None, "since": page.get("since")}
        if not follow and "end" in page:
            parameters["until"] = page["end"]  # stop at the current end: a fast writer stays ahead of any reader
        if pause_s and not page["entries"] and not page["more"]:
            time.sleep(pause_s)


def progress_updates(context: ClientContext, job: str, interval_s: float) -> Iterator[dict[str, Any]]:
    """Yield the job's progress at each interval, at each change of state, and at its end."""
    path = native_job_path(context, job)
    state, due_s = "", 0.0
    while state not in TERMINAL_STATES:
        status: dict[str, Any] = context.client.call("GET", f"{path}/progress")
        now_s = time.monotonic()
        if status["state"] != state or now_s >= due_s:
            due_s = now_s + interval_s
            state = status["state"]
            not_pending = state == JobState.RUNNING or state in TERMINAL_STATES
            status["waiting"] = "" if not_pending else context.client.call("GET", path)["waiting"]
            yield status
        if state not in TERMINAL_STATES:
            time.sleep(min(PROGRESS_INTERVAL_S, interval_s))


def tunes(context: ClientContext, job: str) -> bool:
    """Return whether a job is a tuning job. Raises `NotFoundError` if there is none of this name."""
    body = context.client.call("GET", context.ml(f"jobs/{segment(job)}"))
    return "hyperparameters" in body.get("trainingInput", {})


def trial_updates(context: ClientContext, job: str, interval_s: float) -> Iterator[dict[str, Any]]:
    """Yield a tuning job with its trials at each interval, when a trial starts or ends, and at its end.

    `error` is why it failed, `waiting` what its trials wait for.
    """
    path = native_job_path(context, job)
    before: list[Any] = []
    due_s = 0.0
    while not before or before[0] not in TERMINAL_STATES:
        status: dict[str, Any] = context.client.call("GET", f"{path}/trials")
        states = [status["state"], *(trial["state"] for trial in status["trials"])]
        now_s = time.monotonic()
        if states != before or now_s >= due_s:
            due_s, before = now_s + interval_s, states
            details = context.client.call("GET", path)
            yield status | {"error": details["job"].get("errorMessage", ""), "waiting": details["waiting"]}
        if before[0] not in TERMINAL_STATES:
            time.sleep(min(PROGRESS_INTERVAL_S, interval_s))


def stats(context: ClientContext, job: str, points: int) -> dict[str, Any]:
    """Return the metrics of a job, once the server has read all of them."""
    for _ in range(_MAX_STATS_CALLS):
        result: dict[str, Any] = context.client.call(
            "GET", f"{native_job_path(context, job)}/stats", query={"points": points}
        )
        if result["complete"]:
            break
    return result
