"""The compiled filter of log entries matches what the filter itself matches."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainshed.domain.filters.parser import parse
from trainshed.domain.filters.server import SERVER
from trainshed.domain.logs import LogEntry, insert_id
from trainshed.services.logs.entry_filter import EntryFilter

TERMS = (
    *("loss", "STEP", '"loss 0"', "master", "2025", "00:0", '"-0001-"', "e", "1", "ml_job", '"a\\0b"', "nowhere"),
    *("jsonPayload.message:loss", 'jsonPayload.message="loss 0.5"', "jsonPayload.message!=loss", "jsonPayload:LOSS"),
    *('jsonPayload.message=~"^loss [0-9]"', 'jsonPayload.message!~"step|grad"', 'jsonPayload.message=~"(?i)STEP$"'),
    *("jsonPayload.message:*", "jsonPayload.message=los*", "jsonPayload.message>lost", "json_payload.message:step"),
    *("severity>=WARNING", "severity=info", "resource.labels.task_name:master", 'resource.labels.job_id="other"'),
    *("labels:job_id", 'labels."ml.googleapis.com/task_name"="ps-0"', "textPayload:*", "absent.field!=1"),
    *('timestamp>"2025-11-13T02:13:21Z"', 'timestamp<="2025-11-13T02:13:21.5Z"', 'receiveTimestamp="2025-11-13"'),
    *("timestamp:2025", 'insertId>"001763000001"', "jsonPayload.created>1763000001", 'timestamp=~"^2025"'),
)
MESSAGES = ("loss 0.5", "Loss 1", "step", "STEP 2 grad", "", "a\0b", "Straße", "master", "1763000000")

entries = st.builds(
    lambda seconds, message, replica, severity: LogEntry(
        project="proj",
        job="job",
        time_us=1_763_000_000_000_000 + seconds * 500_000,
        replica=replica,
        severity=severity,
        message=message,
        insert_id=insert_id(1_763_000_000_000_000 + seconds * 500_000, attempt=1, position=seconds),
    ),
    st.integers(0, 5),
    st.sampled_from(MESSAGES),
    st.sampled_from(["master-replica-0", "ps-0"]),
    st.sampled_from(["INFO", "WARNING"]),
)
filters = st.recursive(
    st.sampled_from(TERMS),
    lambda inner: st.one_of(
        inner.map(lambda text: f"NOT ({text})"),
        st.lists(inner, min_size=1, max_size=4).map(lambda parts: "(" + " OR ".join(parts) + ")"),
        st.lists(inner, min_size=1, max_size=4).map(lambda parts: "(" + " AND ".join(parts) + ")"),
    ),
    max_leaves=8,
)


@given(text=filters, lines=st.lists(entries, min_size=1, max_size=5))
def test_it_matches_what_the_filter_matches(text: str, lines: list[LogEntry]) -> None:
    parsed = parse(text, SERVER)
    compiled = EntryFilter(parsed)
    assert [compiled.matches(entry) for entry in lines] == [parsed.matches(entry.body()) for entry in lines]


@pytest.mark.parametrize("term", TERMS)
def test_every_kind_of_term(term: str) -> None:
    parsed = parse(term, SERVER)
    compiled = EntryFilter(parsed)
    for number, message in enumerate(MESSAGES):
        time_us = 1_763_000_000_000_000 + number * 400_000
        entry = LogEntry(
            project="proj",
            job="job",
            time_us=time_us,
            replica="master-replica-0",
            severity="INFO",
            message=message,
            insert_id=insert_id(time_us, attempt=1, position=number),
        )
        assert compiled.matches(entry) == parsed.matches(entry.body()), message
