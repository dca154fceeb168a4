"""The report of a hang: its facts for the journal, and the sentence and stack that people read."""

from __future__ import annotations

from .. import journal
from . import hang_policy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator, Optional

_EVIDENCE = {
    hang_policy.STOPPED: "it is stopped",
    hang_policy.BEHIND: "its last step is before theirs",
    hang_policy.OTHER_STACK: "its stack differs from theirs, which are the same",
    hang_policy.QUIET_FIRST: "it was the first to make no output and use no CPU time",
}


class HangReport:
    """One hang of the replica `name`.

    `seconds` is its length when it was reported, `pid` the process (0 on a node), `state` the kernel's letter for it,
    `step` the last step. `working` are active replicas that it may wait for. `suspect` is the replica that a
    synchronous group seems to wait for, with the `evidence` of `hang_policy`; empty if none can be named. `restart`:
    it is killed, so that it restarts. `stack` has its Python threads. Without it, `stack_error` says why, and
    `threads` has name, state and kernel function of each.
    """

    __slots__ = journal.EVENTS[journal.REPLICA_HUNG]

    def __init__(self, facts: dict[str, Any]) -> None:
        self.name: str = facts["name"]
        self.kind: str = facts["kind"]
        self.seconds: float = facts["seconds"]
        self.pid: int = facts["pid"]
        self.state: str = facts["state"]
        self.step: Optional[int] = facts["step"]
        self.working: list[str] = facts["working"]
        self.suspect: str = facts["suspect"]
        self.evidence: str = facts["evidence"]
        self.restart: bool = facts["restart"]
        self.stack: list[dict[str, Any]] = facts["stack"]
        self.threads: list[list[str]] = facts["threads"]
        self.stack_error: str = facts["stack_error"]

    @property
    def sentence(self) -> str:
        """Such as: worker-replica-1 hangs: no step, no output and no CPU time for 10 min."""
        return " ".join([self._what, *self._why, *(["It is restarted."] if self.restart else [])])

    @property
    def _what(self) -> str:
        length = duration(self.seconds)
        if self.kind == hang_policy.STOPPED:
            return "%s is stopped by a signal, for %s already." % (self.name, length)
        step = "" if self.step is None else " after step {:,}".format(self.step)
        return "%s hangs%s: no step, no output and no CPU time for %s." % (self.name, step, length)

    @property
    def _why(self) -> Iterator[str]:
        if self.state == "D":
            yield "It is blocked in the kernel, most often by a device or a file system that does not respond."
        if self.working:
            verb = "is" if len(self.working) == 1 else "are"
            yield "%s %s active, so it may be waiting for that." % (", ".join(self.working), verb)
        reason = _EVIDENCE.get(self.evidence, "")
        if self.suspect == self.name and self.kind != hang_policy.STOPPED:
            yield "It seems to be the one that the others wait for: %s." % reason
        elif self.suspect == self.name:
            yield "The others wait for it."
        elif self.suspect:
            yield "%s seems to be the one that the others wait for: %s." % (self.suspect, reason)

    @property
    def stack_lines(self) -> list[str]:
        """The stack of each thread, as Python prints tracebacks, or else what the kernel knows of the threads."""
        if not self.stack:
            lines = ["The stack is not known: %s." % self.stack_error] if self.stack_error else []
            return lines + ["Thread %s: state %s, in %s" % tuple(each) for each in self.threads]
        lines = []
        for thread in self.stack:
            lines.append("Thread %s (most recent call last):" % thread["name"])
            lines.extend('  File "%s", line %d, in %s' % tuple(frame) for frame in reversed(thread["frames"]))
        return lines


def duration(seconds: float) -> str:
    """Such as: 45 s, 10 min, 3 h."""
    for unit, length in (("h", 3600), ("min", 60)):
        if seconds >= 2 * length or (unit == "min" and seconds >= length):
            return "%d %s" % (seconds // length, unit)
    return "%d s" % seconds
