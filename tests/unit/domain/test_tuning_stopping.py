"""Early stopping: both rules on hand-made curves, and the guards before them."""

from __future__ import annotations

from trainshed.domain.tuning.stopping import Curve, gain_rule, median_rule


def curve(*values: float) -> Curve:
    return [(step, value) for step, value in enumerate(values, 1)]


FLAT = [curve(0.5, 0.5, 0.5, 0.5)] * 8
RISING = [curve(0.1, 0.2, 0.3, 0.8)] * 8


def test_the_median_rule_compares_with_running_averages() -> None:
    assert median_rule(curve(0.4, 0.4, 0.4), FLAT).stop
    assert not median_rule(curve(0.5, 0.1, 0.1), FLAT).stop  # its best value counts, and equal is not worse
    assert not median_rule(curve(0.21, 0.2, 0.2), RISING).stop  # the average until here is 0.2, not 0.35
    assert "median" in median_rule(curve(0.4, 0.4, 0.4), FLAT).reason


def test_the_gain_rule_waits_for_those_that_may_still_rise() -> None:
    assert gain_rule(curve(0.4, 0.4, 0.4), FLAT, best=0.5).stop
    assert not gain_rule(curve(0.1, 0.2, 0.31), RISING, best=0.8).stop  # the others gained 0.5 from here on
    assert gain_rule(curve(0.1, 0.2, 0.25), RISING, best=0.8).stop


def test_nothing_is_stopped_by_too_little() -> None:
    bad = curve(0.0, 0.0, 0.0)
    assert not median_rule(bad, FLAT[:4]).stop and median_rule(bad, FLAT[:5]).stop
    assert not gain_rule(bad, FLAT[:7], best=0.5).stop and gain_rule(bad, FLAT, best=0.5).stop
    assert not median_rule(bad[:2], FLAT).stop and not gain_rule(bad[:2], FLAT, best=0.5).stop
    assert not median_rule((), FLAT).stop
    late = [[(step + 10, value) for step, value in other] for other in FLAT]
    assert not median_rule(bad, late).stop  # no curve has a value until here
