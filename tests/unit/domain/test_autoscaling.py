"""How many hosts a version has under load, by a clock that the test turns."""

from __future__ import annotations

from itertools import pairwise

import pytest

from trainshed.domain.models.autoscaling import (
    SAMPLE_INTERVAL_S,
    SCALE_DOWN_AFTER_S,
    SCALE_UP_AFTER_S,
    TARGET_IN_FLIGHT,
    HostLoad,
    HostRange,
    Scaling,
    hosts_that_fit,
    rescaled,
)

ANY = HostRange(minimum=1, maximum=32)
ROOM = 32
GIB = 1 << 30


class Version:
    """The decisions for a version whose hosts are ready at once, unless a test says otherwise."""

    def __init__(self, limits: HostRange = ANY) -> None:
        self.limits = limits
        self.now_s = 1000.0
        self.scaling = Scaling()
        self.numbers: list[int] = []  #: of hosts, after each look

    def run(self, in_flight: int, seconds: float, *, room: int = ROOM, ready: int | None = None) -> int:
        """Look at this load for so long. Returns the number of hosts after it."""
        end_s = self.now_s + seconds
        while True:
            hosts = self.limits.clamp(self.scaling.hosts) if ready is None else ready
            load = HostLoad(in_flight=in_flight, ready=hosts, room=room)
            self.scaling = rescaled(self.scaling, self.limits, load, now_s=self.now_s)
            self.numbers.append(self.scaling.hosts)
            if self.now_s >= end_s:
                return self.scaling.hosts
            self.now_s = min(end_s, self.now_s + SAMPLE_INTERVAL_S)


@pytest.mark.parametrize(
    ("in_flight", "wanted"),
    [
        (0, 1),
        (1, 1),
        (TARGET_IN_FLIGHT, 1),
        (TARGET_IN_FLIGHT + 1, 2),
        (3 * TARGET_IN_FLIGHT, 3),
        (3 * TARGET_IN_FLIGHT + 1, 4),
        (1000 * TARGET_IN_FLIGHT, 32),
    ],
)
def test_the_number_follows_the_requests_in_flight(in_flight: int, wanted: int) -> None:
    assert Version().run(in_flight, 10 * SCALE_UP_AFTER_S) == wanted


@pytest.mark.parametrize(("minimum", "maximum"), [(1, 1), (1, 4), (3, 3), (2, 5), (32, 32)])
@pytest.mark.parametrize("in_flight", [0, 1, 20, 10_000])
def test_the_number_is_always_within_the_limits(minimum: int, maximum: int, in_flight: int) -> None:
    version = Version(HostRange(minimum=minimum, maximum=maximum))
    version.run(in_flight, 60)
    version.run(0, 2 * SCALE_DOWN_AFTER_S)
    assert all(minimum <= number <= maximum for number in version.numbers)
    assert version.numbers[-1] == minimum


def test_a_load_must_last_before_hosts_are_added() -> None:
    version = Version()
    assert version.run(100, SCALE_UP_AFTER_S - 0.1) == 1
    assert version.run(100, 0.1) == 2


def test_peaks_with_pauses_add_nothing() -> None:
    version = Version()
    for _ in range(20):
        version.run(100, SCALE_UP_AFTER_S - SAMPLE_INTERVAL_S)
        version.run(0, 0)
        version.now_s += SAMPLE_INTERVAL_S
    assert set(version.numbers) == {1}


def test_it_at_most_doubles_at_once() -> None:
    version = Version()
    version.run(32 * TARGET_IN_FLIGHT, 60)
    steps = [(before, after) for before, after in pairwise(version.numbers) if before != after]
    assert steps == [(1, 2), (2, 4), (4, 8), (8, 16), (16, 32)]


def test_hosts_that_are_not_ready_are_waited_for() -> None:
    version = Version()
    version.run(100, SCALE_UP_AFTER_S)
    assert version.run(100, 600, ready=1) == 2
    assert version.run(100, 0, ready=2) == 4


def test_hosts_go_when_none_of_the_last_minutes_needed_them() -> None:
    version = Version()
    assert version.run(4 * TARGET_IN_FLIGHT, 60) == 4
    version.now_s += SAMPLE_INTERVAL_S
    assert version.run(0, SCALE_DOWN_AFTER_S - 0.1) == 4
    assert version.run(0, 0.1) == 1


def test_it_goes_down_to_the_most_that_was_needed_meanwhile() -> None:
    version = Version()
    version.run(4 * TARGET_IN_FLIGHT, 60)
    version.run(0, SCALE_DOWN_AFTER_S / 2)
    version.run(2 * TARGET_IN_FLIGHT, 0)
    version.now_s += SAMPLE_INTERVAL_S
    assert version.run(0, SCALE_DOWN_AFTER_S * 0.75) == 2
    assert version.run(0, SCALE_DOWN_AFTER_S) == 1


def test_a_load_that_comes_and_goes_does_not_flap() -> None:
    version = Version()
    for _ in range(30):
        version.run(3 * TARGET_IN_FLIGHT, 30)
        version.run(0, 60)
    assert sum(before != after for before, after in pairwise(version.numbers)) == 2  # 1, 2, 3


def test_no_more_are_added_than_fit() -> None:
    version = Version()
    assert version.run(100, 60, room=0) == 1
    assert version.scaling.waits_for_memory
    version.now_s += SAMPLE_INTERVAL_S
    assert version.run(100, 0, room=1) == 2
    assert not version.scaling.waits_for_memory
    version.now_s += SAMPLE_INTERVAL_S
    assert version.run(100, 0, room=1) == 3
    assert version.scaling.waits_for_memory
    version.run(0, 0, room=0)
    assert not version.scaling.waits_for_memory, "nothing is wanted any more"


def test_other_limits_apply_at_once() -> None:
    version = Version()
    version.run(8 * TARGET_IN_FLIGHT, 60)
    version.limits = HostRange(minimum=1, maximum=3)
    assert version.run(8 * TARGET_IN_FLIGHT, 0) == 3
    version.limits = HostRange(minimum=5, maximum=9)
    assert version.run(0, 0) == 5


def test_what_it_remembers_is_bounded() -> None:
    version = Version()
    for number in range(2000):
        version.run(number % 2 * 100, 0)
        version.now_s += SAMPLE_INTERVAL_S
    assert len(version.scaling.wanted) <= SCALE_DOWN_AFTER_S / SAMPLE_INTERVAL_S + 2


@pytest.mark.parametrize(
    ("available", "host", "fit"),
    [(8, 1, 7), (3, 1, 2), (1, 1, 0), (0, 1, 0), (5, 2, 2), (4, 0, 3)],
)
def test_an_eighth_of_the_memory_stays_free(available: int, host: int, fit: int) -> None:
    assert hosts_that_fit(available_bytes=available * GIB, total_bytes=8 * GIB, host_bytes=host * GIB) == fit
