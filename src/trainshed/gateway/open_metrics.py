"""The OpenMetrics text format: families of samples, histograms, and how they are written. No I/O."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

CONTENT_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"


class MetricKind(StrEnum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"
    INFO = "info"


@dataclass(frozen=True, slots=True)
class Sample:
    """One value. `suffix` is what follows the name of its family, such as `_total`."""

    suffix: str
    labels: Mapping[str, str]
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricFamily:
    """All samples of one name."""

    name: str
    kind: MetricKind
    help: str
    samples: Sequence[Sample]
    unit: str = ""  #: the last word of the name, if it is a unit


class Histogram:
    """Counts by upper edge, and the sum. One thread adds; readers on other threads may miss the latest value."""

    def __init__(self, edges: Sequence[float]) -> None:
        self.edges = tuple(edges)
        self.counts = [0] * (len(self.edges) + 1)
        self.sum = 0.0

    def add(self, value: float) -> None:
        self.counts[bisect_left(self.edges, value)] += 1
        self.sum += value

    def samples(self, labels: Mapping[str, str]) -> Iterator[Sample]:
        return histogram_samples(self.edges, self.counts, self.sum, labels)


def histogram_samples(
    edges: Sequence[float], counts: Sequence[int], total: float, labels: Mapping[str, str]
) -> Iterator[Sample]:
    """The samples of a histogram. `counts` has one number for each edge and one for what is above them."""
    below = 0
    for edge, count in zip((*edges, math.inf), counts, strict=True):
        below += count
        yield Sample("_bucket", {**labels, "le": number(edge)}, below)
    yield Sample("_count", labels, below)
    yield Sample("_sum", labels, total)


def render(families: Iterable[MetricFamily]) -> bytes:
    """Write families in the OpenMetrics text format."""
    lines = []
    for family in families:
        lines.append(f"# TYPE {family.name} {family.kind}")
        if family.unit:
            lines.append(f"# UNIT {family.name} {family.unit}")
        lines.append(f"# HELP {family.name} {_escaped(family.help)}")
        lines += [f"{family.name}{each.suffix}{_labels(each.labels)} {number(each.value)}" for each in family.samples]
    return "\n".join([*lines, "# EOF", ""]).encode()


def number(value: float) -> str:
    """A number as the format has it."""
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return "NaN" if math.isnan(value) else repr(value)


def _labels(labels: Mapping[str, str]) -> str:
    pairs = ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())
    return f"{{{pairs}}}" if pairs else ""


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
