"""Lines that trainers print, and what they tell."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainshed.attempts.progress_lines import ProgressParser, folder_in_line
from trainshed.domain.jobs.progress import ProgressReport


def told(report: ProgressReport | None) -> dict[str, Any] | None:
    if report is None:
        return None
    names = (name for name in ProgressReport.__slots__ if name != "time_us")
    return {name: getattr(report, name) for name in names if getattr(report, name) is not None}


def read(*lines: str) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    """What the last of these lines tells of training and of an evaluation."""
    reader = ProgressParser()
    found: tuple[ProgressReport | None, ProgressReport | None] = (None, None)
    for line in lines:
        found = reader.read(1, line)
    return told(found[0]), told(found[1])


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "Train [master/0], step 104: loss: 1.825, accuracy: 0.450 (7.484 sec) "
            "14.0 global steps/s, 13.5 local steps/s",
            {"step": 104, "loss": 1.825, "accuracy": 0.45, "global_rate": 14.0, "local_rate": 13.5},
        ),
        ("loss = 0.10381, step = 1204 (3.2 sec)", {"step": 1204, "loss": 0.10381}),
        ("global_step/sec: 31.25", {"global_rate": 31.25}),
        (
            "step 300 of 1000 (30 %): loss = 0.5012, 143 steps/s",
            {"step": 300, "total_steps": 1000, "loss": 0.5012, "global_rate": 143.0},
        ),
        (
            "Train [chief/0], epoch 3/8, step 1204: loss: 0.1, accuracy: 0.9, 12.5 steps/s",
            {"step": 1204, "epoch": 3, "total_epochs": 8, "loss": 0.1, "accuracy": 0.9, "global_rate": 12.5},
        ),
        (
            "End of epoch [chief/0], epoch 2/8, step 200: loss: 0.1, accuracy: 0.9, 12.5 steps/s",
            {
                "step": 200,
                "total_steps": 800,
                "epoch": 2,
                "total_epochs": 8,
                "loss": 0.1,
                "accuracy": 0.9,
                "global_rate": 12.5,
            },
        ),
        ("Train Epoch: 3 [640/60000 (1%)]\tLoss: 2.25", {"epoch": 3, "loss": 2.25}),
        ("loss: nan, step: 7", {"step": 7, "loss": pytest.approx(float("nan"), nan_ok=True)}),
        ("Restoring parameters from gs://b/model.ckpt-1204", {"step": 1204}),
        ("the loss of a friend", None),
        ("the stepmother: 12 children", None),
        ("glossary: 12", None),
        ("my_loss: 3", None),
        ("loss: 12%", None),
        ("Epoch time is 3.5 s", None),
    ],
)
def test_a_line_of_training(line: str, expected: dict[str, Any] | None) -> None:
    assert read(line) == (expected, None)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("Eval, step 104: loss: 0.125, accuracy: 0.975", {"step": 104, "loss": 0.125, "accuracy": 0.975}),
        (
            "Saving dict for global step 1000: accuracy = 0.96, global_step = 1000, loss = 0.11",
            {"step": 1000, "accuracy": 0.96, "loss": 0.11},
        ),
        (
            "Final metrics after 5000 steps, loss: 0.03, accuracy: 0.992",
            {"step": 5000, "accuracy": 0.992, "loss": 0.03},
        ),
        ("Test accuracy: 0.9896", {"accuracy": 0.9896}),
        ("Evaluation [10/100]", None),
    ],
)
def test_a_line_of_an_evaluation(line: str, expected: dict[str, Any] | None) -> None:
    assert read(line) == (None, expected)


KERAS = {"epoch": 3, "total_epochs": 8, "step": 1056, "total_steps": 3744}


@pytest.mark.parametrize(
    "line",
    [
        "120/468 [======>.......................] - ETA: 3s - loss: 0.3000 - accuracy: 0.9000",
        "120/468 ━━━━━━━━━━ 2s 8ms/step - accuracy: 0.9000 - loss: 0.3000",
        r"\x1b[1m120/468\x1b[0m \x1b[32m━━\x1b[0m\x1b[37m━━\x1b[0m \x1b[1m2s\x1b[0m 8ms/step"
        " - accuracy: 0.9000 - loss: 0.3000",
        r"\x08\x08\x08120/468 [===>...] - ETA: 3s - loss: 0.3000 - accuracy: 0.9000",
    ],
)
def test_the_progress_bars_of_keras(line: str) -> None:
    found, evaluation = read("Epoch 3/8", line)
    rates = {"global_rate": 125.0, "local_rate": 125.0} if "8ms" in line else {}
    assert found == KERAS | {"loss": 0.3, "accuracy": 0.9} | rates
    assert evaluation is None


def test_the_one_line_that_keras_writes_for_an_epoch_has_the_validation_too() -> None:
    line = "468/468 - 3s - 7ms/step - accuracy: 0.9000 - loss: 0.3000 - val_accuracy: 0.9500 - val_loss: 0.2000"
    found, evaluation = read("Epoch 3/8", line)
    assert found is not None
    assert (found["step"], found["total_steps"], found["loss"], found["accuracy"]) == (1404, 3744, 0.3, 0.9)
    assert evaluation == {"step": 1404, "epoch": 3, "loss": 0.2, "accuracy": 0.95}


def test_bars_after_the_last_epoch_are_an_evaluation() -> None:
    fit = ("Epoch 1/1", "100/100 - 3s - 7ms/step - loss: 0.3000")
    assert read(*fit, "50/313 ━━━━ 1s 3ms/step - accuracy: 0.5 - loss: 9.0") == (None, None)
    assert read(*fit, "313/313 ━━━━ 1s 3ms/step - accuracy: 0.9875 - loss: 0.04") == (
        None,
        {"accuracy": 0.9875, "loss": 0.04},
    )
    assert read("50/313 ━━━━ 1s 3ms/step") == (None, None), "a prediction is no training"


def test_keras_tells_of_the_last_batch_twice() -> None:
    bar = "16/16 [==============================] - ETA: 0s - loss: 0.67 - accuracy: 0.59"
    end = "16/16 [==============================] - 0s 20ms/step - loss: 0.66 - accuracy: 0.6 - val_loss: 0.7"
    found, evaluation = read("Epoch 2/2", bar, end)
    assert found is not None
    assert (found["step"], found["loss"], found["global_rate"]) == (32, 0.66, 50.0)
    assert evaluation == {"step": 32, "epoch": 2, "loss": 0.7}
    first = " 1/16 [>.............................] - ETA: 3s - loss: 0.6680"
    assert read("Epoch 2/2", bar, end, first, "16/16 [=====] - 0s 7ms/step - loss: 0.5") == (None, {"loss": 0.5})


def test_a_first_epoch_of_unknown_length_has_no_total() -> None:
    found, _ = read("Epoch 1/5", "57/Unknown 3s 8ms/step - loss: 0.5")
    assert found is not None
    assert found["step"] == 57
    assert "total_steps" not in found


@pytest.mark.parametrize(
    ("line", "folder"),
    [
        ("Saving checkpoints for 0 into gs://b/model/model.ckpt.", "gs://b/model"),
        ("Saving checkpoints for 0 into /home/buckets/b/model/model.ckpt.", "/home/buckets/b/model"),
        ("Writing summaries to '/x/train/events.out.tfevents.12.host'", "/x/train"),
        ("wrote model.ckpt", None),
        ("/model.ckpt", None),
        ("relative/model.ckpt-7", None),
    ],
)
def test_folders_that_lines_name(line: str, folder: str | None) -> None:
    assert folder_in_line(line) == folder


@given(st.lists(st.text(max_size=200) | st.from_regex(r"(Epoch|step|loss|\d+)[ :=/]+[\d./e+naif]*.*"), max_size=6))
def test_no_line_does_harm(lines: list[str]) -> None:
    reader = ProgressParser()
    for line in lines:
        reader.read(1, line)
        folder_in_line(line)
