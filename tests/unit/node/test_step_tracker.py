"""Steps in lines, and restarts in words."""

from __future__ import annotations

import pytest

from trainshed.node.process.exit_status import ExitStatus
from trainshed.node.supervisor.step_tracker import RestartCost, StepTracker, parse_step

KILLED = ExitStatus(None, 9)


@pytest.mark.parametrize(
    ("line", "step"),
    [
        ("step 1204", 1204),
        ("step: 1204", 1204),
        ("step 1,204 of 5,000", 1204),
        ("step 1,204,567", 1204567),
        ("step 3,loss 0.2", 3),
        ("step=1204 loss=0.1", 1204),
        ("global step 1204", 1204),
        ("Saving dict for global step 1204: accuracy = 0.9, global_step = 1204", 1204),
        ("INFO:tensorflow:loss = 0.3, step = 1204 (0.731 sec)", 1204),
        ("Step #1204", 1204),
        ("STEP 7", 7),
        ("Train [master/0], step 104: loss: 0.2 (7.484 sec) 14.0 global steps/s, 14.0 local steps/s", 104),
        ("Step 12/100", 12),
        ("We are at step 12.", 12),
        ("INFO:tensorflow:Restoring parameters from /steps/model.ckpt-1204", 1204),
        ("global_step/sec: 14.5", None),
        ("14.0 global steps/s", None),
        ("200/200 - 3s 5ms/step - loss: 0.1", None),
        ("a footstep 4", None),
        ("in 30 steps", None),
        ("step 1.5", None),
        ("step 12.5", None),
        ("step 3s", None),
        ("Restoring parameters from model", None),
        ("Epoch 3/10", None),
        ("step", None),
        ("", None),
    ],
)
def test_the_step_of_a_line(line: str, step: int | None) -> None:
    assert parse_step(line.encode()) == step


@pytest.mark.parametrize(
    ("restart", "sentence"),
    [
        (
            RestartCost("worker-replica-1", KILLED, False),
            "restarted worker-replica-1 (killed by signal 9)",
        ),
        (
            RestartCost("worker-replica-1", KILLED, False, "", 1241, 1204),
            "restarted worker-replica-1 (killed by signal 9), resumed at step 1,204, 37 steps repeated",
        ),
        (
            RestartCost("worker-replica-1", KILLED, False, "", 1241, 1240),
            "restarted worker-replica-1 (killed by signal 9), resumed at step 1,240, 1 step repeated",
        ),
        (
            RestartCost("ps-replica-0", KILLED, False, "", 1241, 1250),
            "restarted ps-replica-0 (killed by signal 9), resumed at step 1,250, 0 steps repeated",
        ),
        (
            RestartCost("ps-replica-0", KILLED, False, "", None, 3),
            "restarted ps-replica-0 (killed by signal 9), resumed at step 3",
        ),
        (
            RestartCost("worker-replica-0", KILLED, True, "", 10, 0),
            "restarted the whole gang (worker-replica-0 was killed by signal 9), resumed at step 0, 10 steps repeated",
        ),
        (
            RestartCost("worker-replica-0", ExitStatus(1), True, "ps-replica-0"),
            "restarted the whole gang (worker-replica-0 exited with 1 after ps-replica-0 was lost)",
        ),
    ],
)
def test_a_restart_in_words(restart: RestartCost, sentence: str) -> None:
    assert restart.sentence == sentence


def test_a_restart_is_resumed_by_the_first_step_of_a_replica_that_may_tell() -> None:
    resumed: list[tuple[str, int | None]] = []
    progress = StepTracker(lambda restart: resumed.append((restart.name, restart.after)))
    master, worker = progress.watch("m"), progress.watch("w")
    master([b"step 100", b"nothing"])
    worker([b"step 90"])
    assert (progress.last({"m", "w"}), progress.last({"w"}), progress.last({"p"})) == (100, 90, None)
    progress.restarted(RestartCost("w", KILLED, False, before=90), {"w"})
    progress.restarted(RestartCost("p", KILLED, False, before=100), {"m", "w"})
    master([b"no news", b"step 80", b"step 81"])
    assert resumed == [("p", 80)]
    worker([b"step 82", b"step 83"])
    assert resumed == [("p", 80), ("w", 82)]
    assert progress.last({"m", "w"}) == 83


def test_a_restart_that_is_restarted_is_not_resumed() -> None:
    resumed: list[tuple[int | None, int | None]] = []
    progress = StepTracker(lambda restart: resumed.append((restart.status.signal, restart.after)))
    progress.restarted(RestartCost("w", ExitStatus(None, 1), False), {"w"})
    progress.restarted(RestartCost("w", ExitStatus(None, 2), False), {"w"})
    progress.restarted(RestartCost("v", ExitStatus(None, 3), True), {"w", "v"})
    progress.watch("w")([b"step 1", b"step 2"])
    assert resumed == [(3, 1)]
