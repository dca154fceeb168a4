"""Searches over HTTP: what is wrong in a body that steers one is named, and what a client knows is not sent again."""

from __future__ import annotations

import urllib.request
from contextlib import closing
from urllib.error import HTTPError

import pytest

from trainshed.store.database import Database
from trainshed.testing.processes.servers import Caller, RunningServer
from trainshed.testing.workloads.searches import write_search


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


def test_a_search_is_sent_again_only_when_it_has_changed(server: RunningServer) -> None:
    with closing(Database(server.home / "state.db")) as database:
        write_search(database, "wire-searches", "known", trials=4)

    def get(path: str, tag: str = "") -> tuple[int, str]:
        headers = {"authorization": f"Bearer {server.token}", "if-none-match": tag}
        url = f"{server.url}/trainshed/v1/projects/wire-searches/jobs/known{path}"
        try:
            with urllib.request.urlopen(urllib.request.Request(url, headers=headers)) as answer:
                return answer.status, answer.headers["etag"]
        except HTTPError as error:
            return error.code, error.headers["etag"]

    for path in ("", "/search"):
        status, tag = get(path)
        assert status == 200
        assert get(path, tag) == get(path, f'"other", W/{tag}') == (304, tag)
        assert get(path, '"other"') == (200, tag)
    tags = [get(path)[1] for path in ("", "/search")]
    assert get("/search?points=2", tags[1])[0] == 200
    body = {"labels": {"a": "b"}}
    server.call("PATCH", "/v1/projects/wire-searches/jobs/known?updateMask=labels", body)
    assert [get(path, tag)[0] for path, tag in zip(("", "/search"), tags, strict=True)] == [200, 200]
