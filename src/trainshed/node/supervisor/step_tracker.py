"""Training steps parsed from the output of replicas: the last step before a restart and the first one after.

Most lines have no step, so a line without the word is skipped by a substring test.
"""

from __future__ import annotations

import re

from ..process.exit_status import ExitStatus

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Optional

_STEP = re.compile(
    rb"(?<![a-z0-9])(?:global[ _])?step(?:\s*[:=#]\s*|\s+#?)(\d{1,3}(?:,\d{3}){1,3}|\d{1,12})(?![\d.]*\w)",
    re.IGNORECASE,
)
_RESTORED = re.compile(rb"restoring parameters from \S+-(\d{1,12})\s*$", re.IGNORECASE)


def parse_step(line: bytes) -> Optional[int]:
    """The step in a line, or the step of the checkpoint it names. Returns None if there is none."""
    match = None
    if b"estoring" in line:
        match = _RESTORED.search(line)
    if match is None and (b"tep" in line or b"TEP" in line):
        match = _STEP.search(line)
    return int(match.group(1).replace(b",", b"")) if match else None


class RestartCost:
    """One restart of the replica `name`, or of the gang because of it, and its cost in steps.

    `after_loss_of` is the replica whose loss made this one exit. It is empty if the exit was a loss itself. `hung`: the
    supervisor killed it for that.
    """

    __slots__ = ("after", "after_loss_of", "before", "gang", "hung", "name", "status")

    def __init__(
        self,
        name: str,
        status: ExitStatus,
        gang: bool,
        after_loss_of: str = "",
        before: Optional[int] = None,
        after: Optional[int] = None,
        hung: bool = False,
    ) -> None:
        self.name = name
        self.status = status
        self.gang = gang
        self.after_loss_of = after_loss_of
        self.before = before
        self.after = after
        self.hung = hung

    def facts(self) -> dict[str, Any]:
        """The facts of its journal event."""
        facts = {"name": self.name, "code": self.status.code, "signal": self.status.signal}
        return dict(facts, hung=self.hung, after_loss_of=self.after_loss_of, step_before=self.before)

    @property
    def reason(self) -> str:
        """Such as: killed by signal 9."""
        if self.hung:
            return "killed because it hung"
        how = self.status.how
        return "%s after %s was lost" % (how, self.after_loss_of) if self.after_loss_of else how

    @property
    def cause(self) -> str:
        """Such as: restarted worker-replica-1 (killed by signal 9)."""
        if not self.gang:
            return "restarted %s (%s)" % (self.name, self.reason)
        was = "was " if self.status.code is None else ""
        return "restarted the whole gang (%s %s%s)" % (self.name, was, self.reason)

    @property
    def cost(self) -> str:
        """Such as: resumed at step 1,204, 37 steps repeated. Empty until the first step after the restart."""
        if self.after is None:
            return ""
        message = "resumed at step {:,}".format(self.after)
        if self.before is None:
            return message
        repeated = max(0, self.before - self.after)
        return "%s, %s repeated" % (message, "1 step" if repeated == 1 else "{:,} steps".format(repeated))

    @property
    def sentence(self) -> str:
        return ", ".join(part for part in (self.cause, self.cost) if part)


def reporters(replicas: list[dict[str, Any]], restart: RestartCost) -> set[str]:
    """The replicas whose steps show the cost of a restart. A parameter server prints no steps."""
    types = {each["name"]: each["type"] for each in replicas}
    if not restart.gang and types[restart.name] != "ps":
        return {restart.name}
    return {name for name, kind in types.items() if kind not in ("ps", "evaluator")}


class StepTracker:
    """The last step of each replica, and the restarts without a first step yet. `resumed` is called when it comes."""

    def __init__(self, resumed: Callable[[RestartCost], None]) -> None:
        self._resumed = resumed
        self._last: dict[str, int] = {}
        self._pending: list[tuple[RestartCost, set[str]]] = []

    def watch(self, name: str) -> Callable[[list[bytes]], None]:
        """The callback for the output lines of this replica."""
        return lambda lines: self._parse(name, lines)

    def _parse(self, name: str, lines: list[bytes]) -> None:
        for line in lines:
            step = parse_step(line)
            if step is None:
                continue
            self._last[name] = step
            if self._pending:
                self._resume(name, step)

    def _resume(self, name: str, step: int) -> None:
        pending, self._pending = self._pending, []
        for restart, replicas in pending:
            if name in replicas:
                restart.after = step
                self._resumed(restart)
            else:
                self._pending.append((restart, replicas))

    def last(self, replicas: set[str]) -> Optional[int]:
        """The furthest of the last steps of these replicas. Returns None if there is none."""
        steps = [step for name, step in self._last.items() if name in replicas]
        return max(steps) if steps else None

    def restarted(self, restart: RestartCost, replicas: set[str]) -> None:
        """Track a restart: the next step of one of `replicas` is the first one after it."""
        if restart.gang:
            self._pending = []
        self._pending = [pending for pending in self._pending if pending[0].name != restart.name]
        self._pending.append((restart, replicas))
