"""What the journal of an attempt tells of each replica: whether it runs, and how it ended if it does not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import orjson

from trainshed.attempts.journal import read_lines


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaStatus:
    """One word or a few, for people: waiting, running, done, stopped, exit status 1, killed by signal 9."""

    state: str = "waiting"
    restarts: int = 0


def replica_states(attempt: Path, names: Iterable[str]) -> Mapping[str, ReplicaStatus]:
    """Each replica as it is now. Nothing but `waiting` for an attempt that never was."""
    found = dict.fromkeys(names, ReplicaStatus())
    stopping = False
    for line in read_lines(attempt)[0]:
        try:
            event = orjson.loads(line)
            stopping = stopping or event["event"] == "stopping"
            name = event.get("name")
            if name in found:
                found[name] = _after(found[name], event, stopping)
        except (orjson.JSONDecodeError, LookupError, TypeError, AttributeError):
            continue  # its writer did not live to finish it, or was no supervisor
    return found


def _after(seen: ReplicaStatus, event: Mapping[str, Any], stopping: bool) -> ReplicaStatus:
    match event["event"]:
        case "replica_started":
            restarts = seen.restarts if seen.state == "waiting" else seen.restarts + 1
            return ReplicaStatus(state="running", restarts=restarts)
        case "replica_exited":
            return replace(seen, state=_ending(event, stopping))
    return seen


def _ending(event: Mapping[str, Any], stopping: bool) -> str:
    if event["code"] == 0:
        return "done"
    if stopping:
        return "stopped"
    return f"killed by signal {event['signal']}" if event["signal"] else f"exit status {event['code']}"
