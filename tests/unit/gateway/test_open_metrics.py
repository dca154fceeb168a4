"""The OpenMetrics text format, as the parser of Prometheus' own client reads it."""

from __future__ import annotations

import math
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from trainshed.gateway.open_metrics import Histogram, MetricFamily, MetricKind, Sample, render


def parsed(family: MetricFamily) -> Any:
    [read] = text_string_to_metric_families(render([family]).decode())  # type: ignore[no-untyped-call]  # it has no types
    return read


def test_a_histogram_counts_up_to_each_edge() -> None:
    times = Histogram((0.1, 1.0))
    for value in (0.05, 0.1, 0.5, 7.0):
        times.add(value)
    family = MetricFamily(
        name="a_seconds", kind=MetricKind.HISTOGRAM, help="h", samples=list(times.samples({"x": "y"})), unit="seconds"
    )
    read = parsed(family)
    buckets = {sample.labels["le"]: sample.value for sample in read.samples if sample.name == "a_seconds_bucket"}
    assert buckets == {"0.1": 2, "1.0": 3, "+Inf": 4}
    assert {sample.name: sample.value for sample in read.samples if "le" not in sample.labels} == {
        "a_seconds_count": 4,
        "a_seconds_sum": 7.65,
    }
    assert (read.type, read.unit) == ("histogram", "seconds")


@pytest.mark.parametrize("value", [0.0, 3, 1e-07, 1e300, -2.5, math.inf, -math.inf])
@pytest.mark.parametrize("label", ["", "m", 'a"b', "a\\b", "a\nb", "x{y}=1,z", "ü"], ids=range(7))
def test_every_label_and_every_number_is_read_as_it_was(label: str, value: float) -> None:
    family = MetricFamily(name="a", kind=MetricKind.GAUGE, help=label, samples=[Sample("", {"l": label}, value)])
    read = parsed(family)
    [sample] = read.samples
    assert sample.labels == {"l": label}
    assert sample.value == value


def test_what_is_no_number_is_written_too() -> None:
    family = MetricFamily(name="a", kind=MetricKind.GAUGE, help="", samples=[Sample("", {}, math.nan)])
    read = parsed(family)
    assert math.isnan(read.samples[0].value)
