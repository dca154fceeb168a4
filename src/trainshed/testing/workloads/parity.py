"""Whether two runs are the same training: how they ended, what they wrote and logged, and how they learned."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Curve = Sequence[tuple[float, float]]  #: steps, or epochs, and values

#: How far apart two curves may be whatever the noise is, as a fraction of the range of the first.
MIN_TOLERANCE = 0.15
NOISE_FACTOR = 2.0  #: how many times the noise between two runs on one engine is allowed between two engines
_FLAT_RANGE = 0.25  #: a curve with a range below this fraction of its highest value is mostly noise
_POINTS = 8
_WINDOW = 3  #: values that are averaged
_FROM_START = 0.2  #: the first part of a curve is left out: it falls so fast that one step more or less counts

_FILE_PATTERNS = (
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
    """The distance of a curve between two engines, and between two runs on one engine."""

    name: str
    noise: float
    measured: float

    @property
    def allowed(self) -> float:
        return max(MIN_TOLERANCE, NOISE_FACTOR * self.noise)

    @property
    def ok(self) -> bool:
        return self.measured <= self.allowed


def plain_file(name: str) -> str:
    """Normalize the name of a file: without times, steps and names of machines."""
    for pattern, instead in _FILE_PATTERNS:
        name = pattern.sub(instead, name)
    return name


def plain_text(text: str, job: str) -> str:
    """Normalize a sentence: without the job's name, and without amounts of time and memory."""
    return _AMOUNT.sub("N", text.replace(job, "JOB"))


def happened(journal: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return the events of a journal in order, where the order is deterministic.

    Replicas that are started one after the other are one event. Replicas other than the master exit in any order, so
    they come last, by name.
    """
    events = [(str(each["event"]), str(each.get("name", ""))) for each in journal]
    others = sorted({name for event, name in events if event == "replica_exited" and not name.startswith("master")})
    ordered = [(event, name) for event, name in events if not (event == "replica_exited" and name in others)]
    lines = []
    for event, group in itertools.groupby(ordered, key=lambda each: each[0]):
        names = sorted(name for _, name in group if name)
        lines.append(f"{event} {' '.join(names)}".strip())
    return (*lines, *(f"replica_exited {name}" for name in others))


def differences(here: Outcome, there: Outcome) -> list[Difference]:
    """Return the differences between two runs, without their curves."""
    result = []
    if here.state != there.state:
        result.append(Difference(what="state", here=here.state, there=there.state))
    for name in sorted(here.files ^ there.files):
        result.append(_sided("file", name, here=name in here.files))
    if here.events != there.events:
        result += _differing_events(here.events, there.events)
    return result


def _differing_events(here: Sequence[str], there: Sequence[str]) -> list[Difference]:
    either = dict.fromkeys([*here, *there])
    only = [_sided("event", text, here=text in here) for text in either if (text in here) != (text in there)]
    if only:
        return only
    return [Difference(what="order of events", here=" > ".join(here), there=" > ".join(there))]


def _sided(what: str, text: str, *, here: bool) -> Difference:
    return Difference(what=what, here=text if here else "", there="" if here else text)


def curve_distances(first: Outcome, again: Outcome, other: Outcome) -> list[CurveDistance]:
    """Compare each curve of the first run: `again` is of the same engine, `other` of the other one."""
    return [
        CurveDistance(
            name=name,
            noise=distance(curve, again.curves.get(name, ())),
            measured=distance(curve, other.curves.get(name, ())),
        )
        for name, curve in sorted(first.curves.items())
    ]


def distance(here: Curve, there: Curve) -> float:
    """Return the mean difference of two curves, relative to the range of the first. Infinite if one is missing.

    For one that hardly moves, such as an accuracy between 0.92 and 0.98, a part of its height is the range.
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
    range_ = max(max(values) - min(values), _FLAT_RANGE * max(map(abs, values)))
    steps = [begin + (end - begin) * number / (_POINTS - 1) for number in range(_POINTS)]
    deviations = [abs(_at(_smooth(here), step) - _at(_smooth(there), step)) for step in steps]
    return sum(deviations) / len(deviations) / (range_ or 1.0)


def _smooth(curve: Curve) -> list[tuple[float, float]]:
    """Average each value with its neighbours."""
    half = _WINDOW // 2
    smooth = []
    for number, (step, _) in enumerate(curve):
        near = curve[max(0, number - half) : number + half + 1]
        smooth.append((step, sum(value for _, value in near) / len(near)))
    return smooth


def _at(curve: Curve, step: float) -> float:
    """Interpolate the value at a step."""
    for (left, low), (right, high) in itertools.pairwise(curve):
        if left <= step <= right:
            return low if right == left else low + (high - low) * (step - left) / (right - left)
    return curve[0][1] if step < curve[0][0] else curve[-1][1]
