"""Whether two runs are the same training: how they ended, what they wrote and told, and how they learned."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Curve = Sequence[tuple[float, float]]  #: steps, or epochs, and values

#: How far apart two curves may be whatever the noise is, as a part of the way from the first value to the last.
FLOOR = 0.15
NOISE_TIMES = 2.0  #: how often the noise between two runs on one engine is allowed between two engines
_FLAT = 0.25  #: a curve that goes less than this part of its highest value hardly moves: chance is most of its way
_POINTS = 8
_WINDOW = 3  #: values that are averaged
_FROM_START = 0.2  #: the first part of a curve is left out: it falls so fast there that a step more or less counts

_PLAIN = (
    (re.compile(r"events\.out\.tfevents\.\d+\.[^/]*?(\.v2)?$"), r"events.out.tfevents.*\1"),
    (re.compile(r"ckpt-\d+"), "ckpt-N"),
    (re.compile(r"\d{9,}"), "TIME"),
)
_AMOUNT = re.compile(r"\d[\d,]*(\.\d+)? ?(s|seconds|min|MiB|GB)\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One run, without what differs between any two: times, process ids, names of machines."""

    state: str
    files: frozenset[str]
    events: tuple[str, ...]  #: what happened, in order
    curves: Mapping[str, Curve]
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """What one run has and the other has not."""

    what: str
    here: str
    there: str

    def __str__(self) -> str:
        return f"{self.what}: {self.here or 'nothing'} | {self.there or 'nothing'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveDistance:
    """How far a curve of the other engine is from that of this one, and how far two of this one are from each other."""

    name: str
    noise: float
    measured: float

    @property
    def allowed(self) -> float:
        return max(FLOOR, NOISE_TIMES * self.noise)

    @property
    def ok(self) -> bool:
        return self.measured <= self.allowed


def plain_file(name: str) -> str:
    """The name of a file without times, steps and names of machines."""
    for pattern, instead in _PLAIN:
        name = pattern.sub(instead, name)
    return name


def plain_text(text: str, job: str) -> str:
    """A sentence without the job's name, and without amounts of time and memory."""
    return _AMOUNT.sub("N", text.replace(job, "JOB"))


def happened(journal: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """The events of a journal in order, as far as the order is a rule.

    Replicas that are started one after the other are one event. Those that end besides the master do so when they
    like, so they come last, by name.
    """
    told = [(str(each["event"]), str(each.get("name", ""))) for each in journal]
    others = sorted({name for event, name in told if event == "replica_exited" and not name.startswith("master")})
    kept = [(event, name) for event, name in told if not (event == "replica_exited" and name in others)]
    lines = []
    for event, group in itertools.groupby(kept, key=lambda each: each[0]):
        names = sorted(name for _, name in group if name)
        lines.append(f"{event} {' '.join(names)}".strip())
    return (*lines, *(f"replica_exited {name}" for name in others))


def differences(here: Outcome, there: Outcome) -> list[Difference]:
    """In what two runs are not the same, but for their curves."""
    found = []
    if here.state != there.state:
        found.append(Difference(what="state", here=here.state, there=there.state))
    for name in sorted(here.files ^ there.files):
        found.append(_sided("file", name, here=name in here.files))
    if here.events != there.events:
        found += _differing_events(here.events, there.events)
    return found


def _differing_events(here: Sequence[str], there: Sequence[str]) -> list[Difference]:
    either = dict.fromkeys([*here, *there])
    only = [_sided("event", text, here=text in here) for text in either if (text in here) != (text in there)]
    if only:
        return only
    return [Difference(what="order of events", here=" > ".join(here), there=" > ".join(there))]


def _sided(what: str, text: str, *, here: bool) -> Difference:
    return Difference(what=what, here=text if here else "", there="" if here else text)


def curve_distances(first: Outcome, again: Outcome, other: Outcome) -> list[CurveDistance]:
    """For each curve of the first run: `again` is of the same engine, `other` of the other one."""
    return [
        CurveDistance(
            name=name,
            noise=distance(curve, again.curves.get(name, ())),
            measured=distance(curve, other.curves.get(name, ())),
        )
        for name, curve in sorted(first.curves.items())
    ]


def distance(here: Curve, there: Curve) -> float:
    """The mean difference of two curves, as a part of the way that the first one goes. Infinite if one is missing.

    One that hardly moves, as an accuracy between 0.92 and 0.98, is held to a part of its height instead.
    """
    if not here or not there:
        return float("inf")
    if len(here) == 1 or len(there) == 1:
        return abs(here[-1][1] - there[-1][1]) / (abs(here[-1][1]) or 1.0)
    begin, end = max(here[0][0], there[0][0]), min(here[-1][0], there[-1][0])
    if begin >= end:
        return float("inf")
    begin += (end - begin) * _FROM_START
    values = [value for _, value in here]
    way = max(max(values) - min(values), _FLAT * max(map(abs, values)))
    places = [begin + (end - begin) * number / (_POINTS - 1) for number in range(_POINTS)]
    apart = [abs(_at(_smooth(here), place) - _at(_smooth(there), place)) for place in places]
    return sum(apart) / len(apart) / (way or 1.0)


def _smooth(curve: Curve) -> list[tuple[float, float]]:
    """Each value with those around it."""
    half = _WINDOW // 2
    smooth = []
    for number, (step, _) in enumerate(curve):
        near = curve[max(0, number - half) : number + half + 1]
        smooth.append((step, sum(value for _, value in near) / len(near)))
    return smooth


def _at(curve: Curve, step: float) -> float:
    """The value at a step, on a line between those around it."""
    for (left, low), (right, high) in itertools.pairwise(curve):
        if left <= step <= right:
            return low if right == left else low + (high - low) * (step - left) / (right - left)
    return curve[0][1] if step < curve[0][0] else curve[-1][1]
