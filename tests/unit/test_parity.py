"""How two runs are compared: what counts as a difference, and what does not."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from trainshed.testing.workloads.parity import (
    Outcome,
    curve_distances,
    differences,
    distance,
    happened,
    plain_file,
    plain_text,
)

RUN = Outcome(
    state="SUCCEEDED",
    files=frozenset({"model.ckpt-N.index", "eval/events.out.tfevents.*"}),
    events=("preparing", "replica_started master-replica-0 ps-replica-0", "running", "ended"),
    curves={"loss": [(step, 2.0 / (1 + step)) for step in range(0, 100, 5)]},
    seconds=10.0,
)


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("j/events.out.tfevents.1789374611.host-1.77.0.v2", "j/events.out.tfevents.*.v2"),
        ("j/eval/events.out.tfevents.1789374611.laptop", "j/eval/events.out.tfevents.*"),
        ("j/model.ckpt-412.data-00000-of-00001", "j/model.ckpt-N.data-00000-of-00001"),
        ("j/export/Servo/1789374611/variables/variables.index", "j/export/Servo/TIME/variables/variables.index"),
        ("j/workertemp_0/saved_model.pb", "j/workertemp_0/saved_model.pb"),
    ],
)
def test_names_of_files_lose_times_steps_and_machines(name: str, plain: str) -> None:
    assert plain_file(name) == plain


def test_sentences_lose_names_of_jobs_and_amounts() -> None:
    assert plain_text("Job a_1 ran for 12.5 s.", "a_1") == plain_text("Job b_2 ran for 1,203 s.", "b_2")
    assert plain_text("Job a_1 has succeeded.", "a_1") != plain_text("Job a_1 has failed.", "a_1")


def test_the_order_of_starts_and_of_the_ends_of_others_does_not_count() -> None:
    one = [
        {"event": "replica_started", "name": "master-replica-0"},
        {"event": "replica_started", "name": "ps-replica-0"},
        {"event": "running"},
        {"event": "replica_exited", "name": "worker-replica-0"},
        {"event": "replica_exited", "name": "master-replica-0"},
        {"event": "stopping"},
        {"event": "replica_exited", "name": "ps-replica-0"},
    ]
    other = [one[1], one[0], one[2], one[4], one[5], one[6], one[3]]
    assert happened(one) == happened(other)
    assert happened(one) != happened([one[2], *one[:2], *one[3:]])  # running before the start


def test_the_same_run_has_no_differences() -> None:
    assert differences(RUN, RUN) == []
    [curve] = curve_distances(RUN, RUN, RUN)
    assert (curve.noise, curve.measured, curve.ok) == (0.0, 0.0, True)


def test_each_difference_is_told_with_its_side() -> None:
    other = replace(
        RUN,
        state="FAILED",
        files=RUN.files - {"model.ckpt-N.index"} | {"core"},
        events=(*RUN.events[:3], "gang_restarted", "ended"),
    )
    told = [str(each) for each in differences(RUN, other)]
    assert told == [
        "state: SUCCEEDED | FAILED",
        "file: nothing | core",
        "file: model.ckpt-N.index | nothing",
        "event: nothing | gang_restarted",
    ]


def test_the_same_events_in_another_order_are_a_difference() -> None:
    [found] = differences(RUN, replace(RUN, events=tuple(reversed(RUN.events))))
    assert found.what == "order of events"


def test_a_curve_that_does_not_fall_is_not_within_noise() -> None:
    flat = replace(RUN, curves={"loss": [(step, 2.0) for step in range(0, 100, 5)]})
    [curve] = curve_distances(RUN, RUN, flat)
    assert not curve.ok


def test_a_curve_that_wobbles_is_within_noise() -> None:
    wobbling = {"loss": [(step, value * (1.1 if step % 2 else 0.9)) for step, value in RUN.curves["loss"]]}
    [curve] = curve_distances(RUN, RUN, replace(RUN, curves=wobbling))
    assert 0 < curve.measured < curve.allowed


def test_a_curve_that_hardly_moves_is_held_to_its_height() -> None:
    flat, off = [(0, 0.92), (50, 0.98), (100, 0.97)], [(0, 0.97), (50, 0.94), (100, 0.96)]
    assert distance(flat, off) < 0.15
    assert distance(flat, [(0, 0.5), (50, 0.5), (100, 0.5)]) > 1


def test_a_missing_curve_is_not_within_noise() -> None:
    [curve] = curve_distances(RUN, RUN, replace(RUN, curves={}))
    assert math.isinf(curve.measured)
    assert not curve.ok


def test_curves_that_share_no_steps_are_far_apart() -> None:
    assert math.isinf(distance([(0, 1.0), (10, 0.5)], [(20, 1.0), (30, 0.5)]))
