"""Logged requests: whole objects, nothing lost that was added before a flush, bounded memory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from trainshed.buckets.file_backend import FileBackend
from trainshed.buckets.uploads import UploadSessions
from trainshed.domain.models.hosting import ServingState
from trainshed.domain.objects import ListQuery
from trainshed.domain.work_budget import WorkBudget, WorkLimits, unlimited
from trainshed.errors import NotFoundError, RequestCancelledError
from trainshed.gateway import request_log
from trainshed.gateway.request_log import LoggedExchange, RequestLogWriter
from trainshed.gateway.routes import RequestLogTarget, VersionRoute
from trainshed.services.models import replays
from trainshed.services.models.replays import LoggedRequests
from trainshed.services.storage.objects import Objects
from trainshed.serving.frames import FrameKind

LOG = RequestLogTarget(bucket="logs", folder="requests", share=1.0)
START_US = 1_800_000_000_000_000


class Clock:
    def __init__(self) -> None:
        self.now = START_US

    def __call__(self) -> int:
        self.now += 1_000_000
        return self.now


def version(name: str = "v1", model: str = "m") -> VersionRoute:
    return VersionRoute(project="p", model=model, version=name, state=ServingState.READY, log=LOG)


@pytest.fixture
def tree(tmp_path: Path) -> FileBackend:
    made = FileBackend(tmp_path / "buckets", tmp_path / "uploads")
    made.make_bucket("logs")
    return made


def owner(bucket: str) -> str:
    if bucket != "logs":
        raise NotFoundError(f"no bucket {bucket}")
    return "p"


@pytest.fixture
def logged(tree: FileBackend, tmp_path: Path) -> LoggedRequests:
    return LoggedRequests(Objects(tree, UploadSessions(tmp_path / "uploads"), owner=owner), owner=owner)


def lines(tree: FileBackend) -> list[tuple[str, list[dict[str, Any]]]]:
    """The objects by name, with their lines."""
    found = []
    for item in tree.list("logs", ListQuery()).items:
        with tree.open("logs", item.name) as reader:
            found.append((item.name, [json.loads(line) for line in reader.read(0).splitlines()]))
    return found


def test_lines_are_in_the_documented_form(tree: FileBackend, logged: LoggedRequests) -> None:
    logs = RequestLogWriter(logged.write, clock=Clock())
    logs.add(version(), LOG, LoggedExchange(b'{"instances": [1]}', b'{"predictions": [2]}', 0.0123456))
    logs.add(version(), LOG, LoggedExchange(b"\xff", "é".encode(), 1))
    assert lines(tree) == []
    logs.flush()
    [(name, [first, second])] = lines(tree)
    assert name.startswith("requests/m/2027-01-15/080001-000000-v1-")
    assert name.endswith(".jsonl")
    assert first == {
        "model": "m",
        "model_version": "v1",
        "time": "2027-01-15T08:00:01.000000Z",
        "raw_data": '{"instances": [1]}',
        "raw_prediction": '{"predictions": [2]}',
        "latency_ms": 12.346,
    }
    assert (second["raw_data"], second["raw_prediction"]) == ("�", "é")
    logs.flush()
    assert len(lines(tree)) == 1


def test_a_request_of_another_protocol_is_read_as_one(tree: FileBackend, logged: LoggedRequests) -> None:
    logs = RequestLogWriter(logged.write, clock=Clock())
    logs.add(version(), LOG, LoggedExchange(b'{"inputs": [1]}', b'{"outputs": [2]}', 0, FrameKind.TF_SERVING))
    logs.add(version(), LOG, LoggedExchange(b'{"instances": [1]}', b'{"predictions": [2]}', 0))
    logs.flush()
    [(_, [first, second])] = lines(tree)
    assert (first["protocol"], "protocol" in second) == ("tensorflow-serving", False)
    read = [request.kind for request in logged.newest_first("p", LOG, "m", unlimited())]
    assert read == [FrameKind.PREDICT, FrameKind.TF_SERVING]


def test_every_version_has_objects_of_its_own(tree: FileBackend, logged: LoggedRequests) -> None:
    logs = RequestLogWriter(logged.write, clock=Clock())
    for name in ("v1", "v2", "v1"):
        logs.add(version(name), LOG, LoggedExchange(b"{}", b"{}", 0))
    logs.flush()
    assert [len(found) for _, found in lines(tree)] == [2, 1]


def test_the_end_writes_what_is_left(tree: FileBackend, logged: LoggedRequests) -> None:
    logs = RequestLogWriter(logged.write)
    logs.start()
    logs.add(version(), LOG, LoggedExchange(b"{}", b"{}", 0))
    logs.stop()
    assert len(lines(tree)) == 1


def test_a_bucket_that_is_anothers_now_gets_nothing(
    tree: FileBackend, logged: LoggedRequests, caplog: pytest.LogCaptureFixture
) -> None:
    logs = RequestLogWriter(logged.write)
    stranger = VersionRoute(project="q", model="m", version="v1", state=ServingState.READY, log=LOG)
    logs.add(stranger, LOG, LoggedExchange(b"{}", b"{}", 0))
    logs.add(version(), RequestLogTarget(bucket="gone", folder="", share=1), LoggedExchange(b"{}", b"{}", 0))
    logs.add(version(), LOG, LoggedExchange(b"{}", b"{}", 0))
    logs.flush()
    assert len(lines(tree)) == 1
    assert caplog.text.count("requestlog.lost") == 2


def test_memory_is_bounded(
    tree: FileBackend, logged: LoggedRequests, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_log, "MAX_BUFFERED_BYTES", 25)
    logs = RequestLogWriter(logged.write)
    for _ in range(5):
        logs.add(version(), LOG, LoggedExchange(b"12345", b"12345", 0))
    logs.flush()
    assert "count=3" in caplog.text
    logs.add(version(), LOG, LoggedExchange(b"12345", b"12345", 0))
    logs.flush()
    assert sum(len(found) for _, found in lines(tree)) == 3


def test_the_newest_are_found_first_over_days_and_versions(logged: LoggedRequests) -> None:
    clock = Clock()
    logs = RequestLogWriter(logged.write, clock=clock)
    for number in range(6):
        logs.add(version(f"v{number % 2}"), LOG, LoggedExchange(str(number).encode(), b"{}", 0))
        logs.add(version(model="other"), LOG, LoggedExchange(b"other", b"{}", 0))
        logs.flush()
        clock.now += 12 * 3600 * 1_000_000
    assert [each.request for each in logged.newest_first("p", LOG, "m", unlimited())] == list("543210")
    assert list(logged.newest_first("p", LOG, "absent", unlimited())) == []
    with pytest.raises(NotFoundError):
        list(logged.newest_first("q", LOG, "m", unlimited()))


def test_a_replay_reads_within_its_budget_and_no_object_that_the_gateway_cannot_have_written(
    logged: LoggedRequests, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    logs = RequestLogWriter(logged.write, clock=clock)
    for number in range(4):
        logs.add(version(), LOG, LoggedExchange((b"x" * 2000 if number == 3 else str(number).encode()), b"{}", 0))
        logs.flush()
        clock.now += 24 * 3600 * 1_000_000
    monkeypatch.setattr(replays, "MAX_OBJECT_BYTES", 2000)
    assert [each.request for each in logged.newest_first("p", LOG, "m", unlimited())] == list("210")
    one_object = WorkBudget(WorkLimits(max_bytes=1, max_seconds=600))
    assert [each.request for each in logged.newest_first("p", LOG, "m", one_object)] == ["2"]
    gone = unlimited()
    gone.cancel()
    with pytest.raises(RequestCancelledError):
        list(logged.newest_first("p", LOG, "m", gone))
