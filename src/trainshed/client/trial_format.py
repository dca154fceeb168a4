"""A tuning job as text and as rows: how far its search is, and what each trial does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainshed.client.job_format import duration, number
from trainshed.domain.jobs.states import TERMINAL_STATES, JobState
from trainshed.domain.times import parse_rfc3339

COLUMNS = ("trial", "state", "value", "step", "time", "hyperparameters")


def ended_count(search: Mapping[str, Any]) -> int:
    """Return how many trials of a search have ended."""
    return sum(trial["state"] in TERMINAL_STATES for trial in search["trials"])


def search_facts(search: Mapping[str, Any]) -> str:
    """Describe a search: 5 of 20 trials ended, 2 run, 1 failed, best accuracy 0.931 (trial 3)."""
    trials = search["trials"]
    states = [trial["state"] for trial in trials]
    parts = [f"{ended_count(search)} of {search['maxTrials']} trials ended"]
    if running := states.count(JobState.RUNNING):
        parts.append(f"{running} {'runs' if running == 1 else 'run'}")
    if failed := states.count(JobState.FAILED):
        parts.append(f"{failed} failed")
    if best := next((trial for trial in trials if trial["trial"] == search["best"]), None):
        parts.append(f"best {search['metric']} {number(best['finalMetric']['value'])} (trial {best['trial']})")
    return ", ".join(parts)


def best_first(search: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Order trials by their final value. Those without one come last, by number."""
    sign = -1 if search["goal"] == "MAXIMIZE" else 1

    def order(trial: Mapping[str, Any]) -> tuple[bool, float, int]:
        final = trial["finalMetric"]
        return final is None, sign * final["value"] if final else 0.0, trial["trial"]

    return sorted(search["trials"], key=order)


def watch_order(search: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Order trials for a view: those that have not ended, the newest first, then the others, the best first."""
    running = [trial for trial in search["trials"] if trial["state"] not in TERMINAL_STATES]
    ended = [trial for trial in best_first(search) if trial["state"] in TERMINAL_STATES]
    return running[::-1] + ended


def trial_row(trial: Mapping[str, Any]) -> dict[str, str]:
    """Format a trial as the cells of COLUMNS."""
    metric = trial["finalMetric"] or trial["lastMetric"]
    attempts = f", started {trial['attempt']}×" if trial["attempt"] > 1 else ""
    return {
        "trial": str(trial["trial"]),
        "state": ("stopped early" if trial["stoppedEarly"] else trial["state"]) + attempts,
        "value": number(metric["value"]) if metric else "-",
        "step": f"{metric['step']:,}" if metric else "-",
        "time": _running_time(trial),
        "hyperparameters": values_text(trial["hyperparameters"]),
    }


def values_text(values: Mapping[str, str]) -> str:
    """Format hyperparameters: rate=0.0312 units=64. Fractions are cut to four digits."""
    return " ".join(f"{name}={_short(text)}" for name, text in values.items())


def _short(text: str) -> str:
    try:
        return f"{float(text):.4g}" if "." in text or "e" in text else text
    except ValueError:
        return text  # a category


def _running_time(trial: Mapping[str, Any]) -> str:
    """Return how long a trial that has ended has run; for one that runs, until its last value."""
    metric = trial["lastMetric"]
    end = trial["endTime"] or (metric["time"] if metric else None)
    if not trial["startTime"] or not end:
        return "-"
    return duration(max(0.0, (parse_rfc3339(end) - parse_rfc3339(trial["startTime"])) / 1e6))
