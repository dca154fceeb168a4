"""What the check of a rollout's responses accepts, and what it counts."""

from __future__ import annotations

import pytest

from trainshed.testing.reliability.rollouts import VersionsInForce, check_responses
from trainshed.testing.workloads.prediction_load import PredictionSeen

TRAFFIC = [
    VersionsInForce(1.0, 2.0, frozenset({"old"})),
    VersionsInForce(2.5, 4.0, frozenset({"old", "new"})),  # the change was sent at 2.0 and acknowledged at 2.5
    VersionsInForce(4.5, 9.0, frozenset({"new"})),
]


@pytest.mark.parametrize(
    ("seen", "counts"),
    [
        (PredictionSeen(1.1, 1.2, 200, "old"), []),
        (PredictionSeen(1.1, 1.2, 200, "new"), ["lost"]),
        (PredictionSeen(1.9, 2.1, 200, "new"), []),  # the change may be in force before its acknowledgement
        (PredictionSeen(3.0, 3.1, 200, "new"), []),
        (PredictionSeen(4.4, 5.0, 200, "old"), []),  # it was on its way before the acknowledgement
        (PredictionSeen(4.6, 5.0, 200, "old"), ["lost"]),
        (PredictionSeen(4.6, 5.0, 500, "an error"), ["5xx"]),
        (PredictionSeen(4.6, 5.0, 503, "a refusal"), ["lost"]),
        (PredictionSeen(4.6, 5.0, 404, "no version"), ["lost"]),
        (PredictionSeen(4.6, 5.0, 0, "ConnectionResetError()"), ["lost"]),
    ],
)
def test_a_response_is_from_a_version_that_was_in_force(seen: PredictionSeen, counts: list[str]) -> None:
    assert [each.count for each in check_responses([seen], TRAFFIC)] == counts
