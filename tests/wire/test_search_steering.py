"""Bodies that steer a search over HTTP: what has the wrong type is refused by its name."""

from __future__ import annotations

import pytest

from trainshed.testing.processes.servers import Caller, RunningServer


@pytest.mark.parametrize(
    ("method", "body", "named"),
    [
        ("changeSearch", {"maxTrials": "many"}, "max_trials"),
        ("changeSearch", {"maxParallelTrials": 1.5}, "max_parallel_trials"),
        ("changeSearch", {"maxTrials": True}, "max_trials"),
        ("tryPoint", {}, "hyperparameters"),
        ("tryPoint", {"hyperparameters": ["units"]}, "hyperparameters"),
    ],
)
def test_a_value_of_the_wrong_type_is_named(
    server: RunningServer, method: str, body: dict[str, object], named: str
) -> None:
    path = f"/trainshed/v1/projects/trainshed/jobs/nowhere:{method}"
    status, answer = Caller(server.url)("POST", path, token=server.token, body=body)
    assert (status, named in answer["error"]["message"]) == (400, True), answer
