"""Early stopping: both rules on hand-made curves, and the guards before them."""

from __future__ import annotations

from trainshed.domain.tuning.early_stopping import Curve, CurvePoint, gain_rule, median_rule, should_stop


def curve(*values: float) -> Curve:
    return [CurvePoint(step, value) for step, value in enumerate(values, 1)]


FLAT = [curve(0.5, 0.5, 0.5, 0.5)] * 8
RISING = [curve(0.1, 0.2, 0.3, 0.8)] * 8


def test_the_median_rule_compares_with_running_averages() -> None:
    stop = median_rule(curve(0.4, 0.4, 0.4), FLAT)
    assert stop is not None
    assert "is 0.4; the median of the averages of 8 completed trials is 0.5" in stop.reason
    assert median_rule(curve(0.5, 0.1, 0.1), FLAT) is None  # its best value counts, and equal is not worse
    assert median_rule(curve(0.21, 0.2, 0.2), RISING) is None  # the average until here is 0.2, not 0.35


def test_the_gain_rule_waits_for_those_that_may_still_rise() -> None:
    assert gain_rule(curve(0.4, 0.4, 0.4), FLAT, best=0.5) is not None
    assert gain_rule(curve(0.1, 0.2, 0.31), RISING, best=0.8) is None  # the others gained 0.5 from here on
    assert gain_rule(curve(0.1, 0.2, 0.25), RISING, best=0.8) is not None


def test_nothing_is_stopped_by_too_little() -> None:
    bad = curve(0.0, 0.0, 0.0)
    assert median_rule(bad, FLAT[:4]) is None
    assert median_rule(bad, FLAT[:5]) is not None
    assert gain_rule(bad, FLAT[:7], best=0.5) is None
    assert gain_rule(bad, FLAT, best=0.5) is not None
    assert median_rule(bad[:2], FLAT) is None
    assert gain_rule(bad[:2], FLAT, best=0.5) is None
    assert median_rule((), FLAT) is None
    late = [[CurvePoint(step + 10, value) for step, value in other] for other in FLAT]
    assert median_rule(bad, late) is None  # no curve has a value until here


def test_a_trial_of_a_job_stops_if_both_rules_say_so() -> None:
    slow = curve(0.1, 0.15, 0.19)  # below the median, but the others gained 0.5 from here on
    assert median_rule(slow, RISING) is not None
    assert should_stop(slow, [*RISING[:7], curve(0.1, 0.2, 0.1, 0.9)]) is None
    assert should_stop(slow, RISING[:7]) is not None, "too few curves for the other rule"
    both = should_stop([CurvePoint(step, -value) for step, value in curve(3.0, 3.0, 3.0)], FLAT, sign=-1)
    assert both is not None
    assert "Its best value up to 3 is 3;" in both.reason
    assert "the best value is -0.5." in both.reason
