"""The restarts of an attempt, as its journal tells of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import orjson

from trainshed.attempts.journal import read_lines
from trainshed.node.supervisor import step_tracker


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartRecord:
    """A replica that was started again, or a whole gang because of one."""

    time_us: int
    name: str  #: the replica that was lost
    reason: str  #: such as: killed by signal 9
    whole_gang: bool
    step_before: int | None  #: how far training had come; None if no line told
    step_after: int | None  #: the first step after it; None if none was told yet

    @property
    def sentence(self) -> str:
        """For people, without a full stop: restarted worker-replica-1 (killed by signal 9), resumed at step ..."""
        told = step_tracker.RestartCost(self.name, self.reason, self.whole_gang, self.step_before, self.step_after)
        return told.sentence


def restarts(attempt: Path) -> list[RestartRecord]:
    """All of them so far, the oldest first. None for an attempt that never was."""
    found: list[RestartRecord] = []
    for line in read_lines(attempt)[0]:
        if b"restarted" not in line and b"resumed" not in line:
            continue
        try:
            _follow(found, orjson.loads(line))
        except (orjson.JSONDecodeError, LookupError, TypeError):
            continue  # its writer did not live to finish it, or was no supervisor
    return found


def _follow(found: list[RestartRecord], event: dict[str, Any]) -> None:
    match event["event"]:
        case "replica_restarted" | "gang_restarted" as kind:
            restart = RestartRecord(
                time_us=int(event["t"]),
                name=str(event["name"]),
                reason=str(event["reason"]),
                whole_gang=kind == "gang_restarted",
                step_before=event["step_before"],
                step_after=None,
            )
            found.append(restart)
        case "resumed":
            for index in reversed(range(len(found))):
                if found[index].name == event["name"]:
                    found[index] = replace(found[index], step_after=int(event["step"]))
                    return
