"""How long a training was asked to be, how fast it goes, and series that stay small."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainshed.domain.jobs.progress import ProgressReport, StepRate, TrainingProgress, TrainingTarget, target_from_args
from trainshed.domain.time_series import TimeSeries

SECOND = 1_000_000


@pytest.mark.parametrize(
    ("args", "steps", "epochs"),
    [
        (["--train_steps=1000"], 1000, None),
        (["--train-steps", "1000", "--epochs", "3"], 1000, 3),
        (["--max-steps=7"], 7, None),
        (["--num-epochs=4", "--steps_per_epoch=50"], 200, 4),
        (["--epochs=4"], None, 4),
        (["--train_steps=0", "--epochs=2", "--steps_per_epoch=9"], None, 2),
        (["--train_steps=10", "--max_steps=20"], None, None),
        (["--train_steps=10", "--max_steps=10"], 10, None),
        (["--train_steps"], None, None),
        (["--train_steps=many"], None, None),
        (["--train_steps=-5"], None, None),
        (["train_steps=10", "10"], None, None),
        ([], None, None),
    ],
)
def test_the_length_is_taken_from_arguments_that_are_clear(
    args: list[str], steps: int | None, epochs: int | None
) -> None:
    assert target_from_args(args) == TrainingTarget(steps=steps, epochs=epochs)


def test_the_time_left_follows_from_the_last_reports() -> None:
    pace = StepRate()
    assert pace.rate is None
    for second in range(10):
        pace.add(second * SECOND, 100 + second * 20)
    standing = TrainingProgress(
        report=ProgressReport(time_us=9 * SECOND, step=280), target=TrainingTarget(steps=1280), rate=pace.rate
    )
    assert standing.fraction == pytest.approx(0.21875)
    assert standing.left_s == pytest.approx(50.0)


def test_steps_that_a_restart_threw_away_are_not_counted_as_progress() -> None:
    pace = StepRate()
    for time_s, step in ((0, 100), (10, 200), (20, 300), (40, 210), (50, 310)):
        pace.add(time_s * SECOND, step)
    assert pace.rate == pytest.approx((310 - 100) / 50)


def test_nothing_is_foretold_without_a_total_or_a_rate() -> None:
    told = ProgressReport(time_us=1, step=10)
    assert TrainingProgress(report=told, rate=5.0).left_s is None
    assert TrainingProgress(report=told, target=TrainingTarget(steps=100)).left_s is None
    assert (
        TrainingProgress(report=told, target=TrainingTarget(steps=5), rate=5.0).total_steps is None
    )  # it went past it
    assert (
        TrainingProgress(report=ProgressReport(time_us=1, epoch=2), target=TrainingTarget(steps=100), rate=5.0).left_s
        is None
    )


def test_a_trainer_that_falls_silent_is_noticed_by_its_own_habits() -> None:
    pace = StepRate()
    assert pace.silent(0)
    for minute in range(3):
        pace.add(minute * 60 * SECOND, minute)
    assert not pace.silent((2 * 60 + 170) * SECOND)
    assert pace.silent((2 * 60 + 190) * SECOND)


@given(values=st.lists(st.floats(0, 1000), min_size=1, max_size=300), limit=st.integers(2, 20))
def test_a_series_stays_small_and_keeps_its_mean_its_peak_and_its_end(values: list[float], limit: int) -> None:
    mean, peak = TimeSeries(limit=limit), TimeSeries(limit=limit, peak=True)
    for number, value in enumerate(values):
        mean.add(number, value, step=number * 2)
        peak.add(number, value)
    assert len(mean) <= limit
    assert mean.mean == pytest.approx(sum(values) / len(values))
    assert mean.max == peak.max == max(values) == max(point.value for point in peak)
    assert mean.last is not None
    assert (mean.last.time_us, mean.last.step) == (len(values) - 1, 2 * len(values) - 2)
    times = [point.time_us for point in mean]
    assert times == sorted(set(times))
    assert len(mean.points(2)) <= 2


def test_points_of_a_long_series_are_as_far_apart_at_its_start_as_at_its_end() -> None:
    series = TimeSeries(limit=10)
    for number in range(1000):
        series.add(number, float(number))
    gaps = [b.time_us - a.time_us for a, b in zip(list(series), list(series)[1:], strict=False)]
    assert max(gaps[:-1]) == min(gaps[:-1])
    assert next(iter(series)).value == pytest.approx(63.5)


def test_weights_count_in_the_mean() -> None:
    series = TimeSeries()
    series.add(1, 1.0, weight=1)
    series.add(2, 4.0, weight=2)
    assert series.mean == pytest.approx(3.0)
