"""The lines of a log, as the command line and the Python client show them."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from trainshed.client.job_format import entry_lines
from trainshed.sdk.records import LogLine

ENTRY = {
    "insertId": "1",
    "time": "2026-11-15T21:17:35.999999Z",
    "severity": "INFO",
    "replica": "master-replica-0",
    "message": "a\nb",
}


@pytest.fixture(params=[("UTC", "21:17:35 +0000"), ("Etc/GMT-2", "23:17:35 +0200")])
def head(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """What a line begins with in a time zone."""
    zone, clock = request.param
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    yield f"INFO\t2026-11-15 {clock}\tmaster-replica-0\t\t"
    monkeypatch.undo()
    time.tzset()


def test_log_lines_look_like_gclouds(head: str) -> None:
    assert list(entry_lines(ENTRY)) == [head + "a", head + "b"]
    assert list(entry_lines(ENTRY, whole=True)) == [head + "a\nb"]


def test_a_line_of_the_python_client_is_the_one_that_the_command_line_shows(head: str) -> None:
    assert str(LogLine.read(ENTRY)) == head + "a\nb"
