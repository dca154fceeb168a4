"""Counters by the minute, with a clock that the test moves."""

from __future__ import annotations

import pytest

from trainshed.gateway.metrics import LATENCY_EDGES_S, Totals, VersionMetrics

NAME = ("p", "m", "v1")


class Clock:
    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def metrics(clock: Clock) -> VersionMetrics:
    return VersionMetrics(clock=clock)


def test_answers_are_counted_by_the_minute(metrics: VersionMetrics, clock: Clock) -> None:
    for _ in range(99):
        metrics.of(NAME).add(0.010, ok=True)
    metrics.of(NAME).add(2.0, ok=False)
    clock.now += 60
    metrics.of(NAME).add(0.5, ok=True)
    body = metrics.traffic("p", "m")["v1"]
    assert (body["count"], body["errors"]) == (101, 1)
    assert [minute["count"] for minute in body["minutes"]] == [100, 1]
    assert body["minutes"][0]["time"] == "2027-01-15T08:00:00Z"
    assert body["minutes"][0]["p50Ms"] == pytest.approx(10, rel=0.09)
    assert body["minutes"][0]["p99Ms"] == pytest.approx(10, rel=0.09)
    assert body["minutes"][1]["p99Ms"] == pytest.approx(500, rel=0.09)
    assert body["lastRequestTime"] == "2027-01-15T08:01:00.000000Z"


@pytest.mark.parametrize("seconds", [0.0, 0.00005, 0.001, 0.1, 59.0])
def test_a_time_is_told_to_the_class_it_falls_in(metrics: VersionMetrics, seconds: float) -> None:
    metrics.of(NAME).add(seconds, ok=True)
    told = metrics.traffic("p", "m")["v1"]["p50Ms"] / 1000
    assert seconds <= told <= max(seconds * 1.09, 0.0001)


def test_what_is_longer_ago_than_an_hour_is_forgotten(metrics: VersionMetrics, clock: Clock) -> None:
    metrics.of(NAME).add(0.01, ok=True)
    clock.now += 59 * 60
    assert metrics.traffic("p", "m")["v1"]["count"] == 1
    clock.now += 60
    assert metrics.traffic("p", "m")["v1"]["count"] == 0
    for _ in range(200):
        metrics.of(NAME).add(0.01, ok=True)
        clock.now += 60
    assert len(metrics.traffic("p", "m")["v1"]["minutes"]) == 59


def test_traffic_is_that_of_one_model(metrics: VersionMetrics) -> None:
    for name in (NAME, ("p", "m", "v2"), ("p", "other", "v1"), ("q", "m", "v1")):
        metrics.of(name).add(0.01, ok=True)
    assert list(metrics.traffic("p", "m")) == ["v1", "v2"]
    assert metrics.traffic("p", "absent") == {}


def test_a_version_that_is_gone_leaves_nothing_to_one_of_its_name(metrics: VersionMetrics, clock: Clock) -> None:
    metrics.of(NAME).add(0.01, ok=True)
    assert metrics.last_used_us(*NAME) == int(clock.now * 1_000_000)
    metrics.retain(set())
    assert metrics.last_used_us(*NAME) == 0
    assert metrics.traffic("p", "m") == {}


def test_totals_are_those_since_the_start(metrics: VersionMetrics, clock: Clock) -> None:
    metrics.of(NAME).add(0.01, ok=True)
    clock.now += 7200
    metrics.of(NAME).add(0.03, ok=False)
    totals = metrics.totals()[NAME]
    assert (totals.count, totals.errors) == (2, 1)
    assert totals.seconds == pytest.approx(0.04)


@pytest.mark.parametrize("seconds", [0.0, 0.0001, 0.0002, 0.00021, 0.007, 1.0, 99.0, 1000.0])
def test_a_latency_is_counted_below_the_next_edge(metrics: VersionMetrics, seconds: float) -> None:
    metrics.of(NAME).add(seconds, ok=True)
    counts = metrics.totals()[NAME].latencies()
    assert len(counts) == len(LATENCY_EDGES_S) + 1
    [bucket] = [at for at, count in enumerate(counts) if count]
    upper = (*LATENCY_EDGES_S, float("inf"))[bucket]
    lower = LATENCY_EDGES_S[bucket - 1] if bucket else -1.0
    assert lower * 0.999999 < seconds <= upper * 1.000001


def test_totals_can_be_added_up(metrics: VersionMetrics) -> None:
    metrics.of(NAME).add(0.01, ok=True)
    metrics.of(("p", "m", "v2")).add(0.02, ok=False)
    together = Totals.sum(metrics.totals().values())
    assert (together.count, together.errors, sum(together.latencies())) == (2, 1, 2)
