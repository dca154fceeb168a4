"""Training steps, as the lines that replicas print tell of them: how far a gang had come before a restart, and after.

Most lines are no news, so a line without the word is not looked at twice.
"""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Optional

_STEP = re.compile(
    rb"(?<![a-z0-9])(?:global[ _])?step(?:\s*[:=#]\s*|\s+#?)(\d{1,3}(?:,\d{3}){1,3}|\d{1,12})(?![\d.]*\w)",
    re.IGNORECASE,
)
_RESTORED = re.compile(rb"restoring parameters from \S+-(\d{1,12})\s*$", re.IGNORECASE)


def parse_step(line: bytes) -> Optional[int]:
    """The step that a line tells of, or that a checkpoint it tells of was made at; None if there is none."""
    found = None
    if b"estoring" in line:
        found = _RESTORED.search(line)
    if found is None and (b"tep" in line or b"TEP" in line):
        found = _STEP.search(line)
    return int(found.group(1).replace(b",", b"")) if found else None


class RestartCost:
    """One restart: of the replica `name`, or of the gang because of it, and what it cost."""

    __slots__ = ("after", "before", "gang", "name", "reason")

    def __init__(
        self, name: str, reason: str, gang: bool, before: Optional[int] = None, after: Optional[int] = None
    ) -> None:
        self.name = name
        self.reason = reason
        self.gang = gang
        self.before = before
        self.after = after

    @property
    def cause(self) -> str:
        """Such as: restarted worker-replica-1 (killed by signal 9)."""
        if not self.gang:
            return "restarted %s (%s)" % (self.name, self.reason)
        was = "" if self.reason.startswith("exited") else "was "
        return "restarted the whole gang (%s %s%s)" % (self.name, was, self.reason)

    @property
    def cost(self) -> str:
        """Such as: resumed at step 1,204, 37 steps repeated. Nothing while it is not known."""
        if self.after is None:
            return ""
        said = "resumed at step {:,}".format(self.after)
        if self.before is None:
            return said
        repeated = max(0, self.before - self.after)
        return "%s, %s repeated" % (said, "1 step" if repeated == 1 else "{:,} steps".format(repeated))

    @property
    def sentence(self) -> str:
        return ", ".join(part for part in (self.cause, self.cost) if part)


class StepTracker:
    """The last step of each replica, and the restarts that wait for a first one. `resumed` is told when it comes."""

    def __init__(self, resumed: Callable[[RestartCost], None]) -> None:
        self._resumed = resumed
        self._last: dict[str, int] = {}
        self._waiting: list[tuple[RestartCost, set[str]]] = []

    def watch(self, name: str) -> Callable[[list[bytes]], None]:
        """What to call with the lines that this replica prints."""
        return lambda lines: self._see(name, lines)

    def _see(self, name: str, lines: list[bytes]) -> None:
        for line in lines:
            step = parse_step(line)
            if step is None:
                continue
            self._last[name] = step
            if self._waiting:
                self._resume(name, step)

    def _resume(self, name: str, step: int) -> None:
        waiting, self._waiting = self._waiting, []
        for restart, tellers in waiting:
            if name in tellers:
                restart.after = step
                self._resumed(restart)
            else:
                self._waiting.append((restart, tellers))

    def last(self, tellers: set[str]) -> Optional[int]:
        """The furthest of the steps that these replicas told of last."""
        known = [step for name, step in self._last.items() if name in tellers]
        return max(known) if known else None

    def restarted(self, restart: RestartCost, tellers: set[str]) -> None:
        """From now on a step that one of these tells of is one after this restart."""
        if restart.gang:
            self._waiting = []
        self._waiting = [waiting for waiting in self._waiting if waiting[0].name != restart.name]
        self._waiting.append((restart, tellers))
