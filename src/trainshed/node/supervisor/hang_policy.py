"""Hang policy: which replicas of a gang hang, and for which one the others wait.

Pure functions: no processes, no clock.

docs/training.md has the rules. `HangWatch` calls them with what it observes, about once a second, and reports.
"""

from __future__ import annotations

from .restart_policy import all_reduce

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional

    Replica = dict[str, Any]  # as in spec.json
    Thread = dict[str, Any]  # its `name`, and its `frames` as [file, line, function], the innermost first

STOPPED = "stopped"  #: by a signal: the kernel does not run it
IDLE = "idle"  #: no step, no output and no CPU time

#: Why a replica seems to be the one that the others wait for.
BEHIND = "behind"  #: its last step is before theirs
OTHER_STACK = "other stack"  #: theirs are the same
QUIET_FIRST = "quiet first"

STOPPED_AFTER_S = 10.0  #: a process may be stopped for this long
GAP_MAX_S = 30.0  #: between two observations; after a longer gap, nothing is known of the time between
_QUIET_MAX_S = 60.0
_IDLE_CORES = 0.01  #: the threads of a framework that wait use less
_NOISE_CPU_S = 0.05
_QUIET_MARGIN_S = 3.0  #: between two replicas, so that one was quiet first: observations are a second apart
_PASSIVE = ("ps", "evaluator")  #: they may wait for the others as long as they like
_NEVER = float("inf")


class Observation:
    """What is known of a running replica at one moment. `pid` tells its incarnations apart. `cpu_s` is the CPU time
    of all its processes, and `output_s` the time of its last output."""

    __slots__ = ("cpu_s", "output_s", "pid", "step", "stopped")

    def __init__(self, pid: int, cpu_s: float, stopped: bool, output_s: float, step: Optional[int]) -> None:
        self.pid = pid
        self.cpu_s = cpu_s
        self.stopped = stopped
        self.output_s = output_s
        self.step = step


class Activity:
    """When a replica was active last, and since when it is stopped. Immutable."""

    __slots__ = ("active_s", "pid", "seen_s", "step", "stopped_s", "window")

    def __init__(
        self,
        pid: int,
        seen_s: float,
        active_s: float,
        stopped_s: float,
        window: tuple[float, float],
        step: Optional[int],
    ) -> None:
        self.pid = pid
        self.seen_s = seen_s
        self.active_s = active_s
        self.stopped_s = stopped_s
        self.window = window  # its begin, and the CPU time then
        self.step = step


class Hang:
    """A replica that hangs since `since_s`. `working`: the replicas that it may wait for, since they are active."""

    __slots__ = ("kind", "name", "since_s", "working")

    def __init__(self, name: str, kind: str, since_s: float, working: tuple[str, ...] = ()) -> None:
        self.name = name
        self.kind = kind
        self.since_s = since_s
        self.working = working


def quiet_after_s(timeout_s: float) -> float:
    """How long a replica may be inactive and still count as active."""
    return min(_QUIET_MAX_S, timeout_s / 2)


def observed(before: Optional[Activity], now: Observation, now_s: float, timeout_s: float) -> Activity:
    """The activity of a replica after one more observation."""
    stopped_s = now_s if now.stopped else _NEVER
    if before is None or before.pid != now.pid or now_s - before.seen_s > GAP_MAX_S:
        return Activity(now.pid, now_s, now_s, stopped_s, (now_s, now.cpu_s), now.step)
    active_s, window = max(before.active_s, now.output_s), before.window
    length_s = quiet_after_s(timeout_s)
    # An exited process can take its CPU time with it. That is activity too.
    if abs(now.cpu_s - window[1]) >= max(_NOISE_CPU_S, _IDLE_CORES * length_s):
        active_s, window = now_s, (now_s, now.cpu_s)
    elif now_s - window[0] >= length_s:
        window = (now_s, now.cpu_s)
    if before.stopped_s < _NEVER and not now.stopped:
        active_s = now_s  # it was continued
    return Activity(
        now.pid, now_s, active_s, min(stopped_s, before.stopped_s if now.stopped else _NEVER), window, now.step
    )


def find_hangs(
    replicas: list[Replica], activities: dict[str, Activity], timeout_s: float, now_s: float
) -> dict[str, Hang]:
    """The replicas that hang, by name. `activities` has those that run. A timeout of 0 finds none."""
    if timeout_s <= 0:
        return {}
    hangs, idle_s = {}, {}
    for each in replicas:
        activity = activities.get(each["name"])
        if activity is None:
            continue
        if now_s - activity.stopped_s >= min(STOPPED_AFTER_S, timeout_s):
            hangs[each["name"]] = Hang(each["name"], STOPPED, activity.stopped_s)
        elif each["type"] not in _PASSIVE and activity.stopped_s == _NEVER:
            idle_s[each["name"]] = now_s - activity.active_s
    working = tuple(name for name, seconds in idle_s.items() if seconds < quiet_after_s(timeout_s))
    overdue = {name for name, seconds in idle_s.items() if seconds >= timeout_s}
    if overdue and not working and all_reduce(replicas):
        overdue = set(idle_s)  # they wait for each other, so it is one hang
    for name in idle_s:
        if name in overdue:
            hangs[name] = Hang(name, IDLE, activities[name].active_s, working)
    return hangs


def may_restart(replicas: list[Replica], hang: Hang) -> bool:
    """Whether a restart may end this hang. Not if the replica may just wait for others that are active, unless it is a
    worker that the others do not depend on."""
    if not hang.working:
        return True
    replica = next(each for each in replicas if each["name"] == hang.name)
    return replica["type"] == "worker" and not replica["primary"] and not all_reduce(replicas)


def find_suspect(
    replicas: list[Replica], hangs: dict[str, Hang], activities: dict[str, Activity], stacks: dict[str, list[Thread]]
) -> tuple[str, str]:
    """The replica that the others of a synchronous group seem to wait for, and why. Two empty words if none can be
    named, or if the gang is none."""
    names = [each["name"] for each in replicas if each["name"] in hangs and each["type"] not in _PASSIVE]
    if len(names) < 2 or not all_reduce(replicas):
        return "", ""
    stopped = [name for name in names if hangs[name].kind == STOPPED]
    if stopped:
        return min(stopped, key=lambda name: hangs[name].since_s), STOPPED
    steps = {name: activities[name].step for name in names}
    known = sorted(step for step in steps.values() if step is not None)
    if len(known) == len(names) and known[0] < known[1]:
        return next(name for name in names if steps[name] == known[0]), BEHIND
    name = _other_stack({name: stacks.get(name, []) for name in names})
    if name:
        return name, OTHER_STACK
    first, second = sorted(names, key=lambda name: activities[name].active_s)[:2]
    if activities[second].active_s - activities[first].active_s >= _QUIET_MARGIN_S:
        return first, QUIET_FIRST
    return "", ""


def _other_stack(stacks: dict[str, list[Thread]]) -> str:
    """The replica whose first thread is elsewhere than those of all others, which are at the same place."""
    places = {name: [tuple(frame) for frame in threads[0]["frames"]] for name, threads in stacks.items() if threads}
    if len(places) < 3 or len(places) < len(stacks):
        return ""
    for name, place in places.items():
        others = [each for other, each in places.items() if other != name]
        if place != others[0] and all(each == others[0] for each in others):
            return name
    return ""
