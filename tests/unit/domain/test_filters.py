"""The server's filters: what matches, what is refused and where, and what can be known without looking."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainshed.domain.filters.parser import Filter
from trainshed.domain.filters.parser import parse as parse_dialect
from trainshed.domain.filters.server import SERVER
from trainshed.domain.times import rfc3339
from trainshed.errors import InvalidArgumentError

MAX_CHARACTERS, MAX_TERMS = SERVER.max_characters, SERVER.max_terms

JOB: dict[str, Any] = {
    "jobId": "rnn_census",
    "state": "FAILED",
    "labels": {"team": "a", "cost_centre": "7"},
    "createTime": "2026-02-01T00:00:00Z",
    "trainingInput": {"args": ["--steps", "10"], "workerCount": 3, "useChiefInTfConfig": True},
}
ENTRY: dict[str, Any] = {
    "timestamp": "2026-02-01T00:00:00.000001000Z",
    "insertId": "005",
    "severity": "ERROR",
    "resource": {"type": "ml_job", "labels": {"job_id": "J", "task_name": "master-replica-0"}},
    "labels": {"ml.googleapis.com/task_name": "master-replica-0"},
    "jsonPayload": {"message": 'Loss is "NaN" at step 7', "created": 1769904000.000001},
}


def parse(text: str) -> Filter:
    return parse_dialect(text, SERVER)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", True),
        ("  \n ", True),
        ("state=FAILED", True),
        ("state=failed", False),
        ("jobId=rnn* AND state=FAILED", True),
        ("jobId=*census", True),
        ("jobId=*nn_c*", True),
        ("jobId=cnn*", False),
        ("jobId!=cnn*", True),
        ('jobId="rnn*"', False),
        ("jobId:CENSUS", True),
        ("jobId:iris", False),
        ("job_id:rnn", True),
        ("labels.team=a", True),
        ("labels.team=b", False),
        ("labels.cost_centre=7", True),
        ("labels.team:*", True),
        ("labels.colour:*", False),
        ("labels:team", True),
        ('createTime>"2026-01-01T00:00:00Z"', True),
        ("createTime>2026-01-01T00:00:00Z", True),
        ('createTime="2026-02-01T01:00:00+01:00"', True),
        ('createTime="2026-02-01T01:30:00.000000+0130"', True),
        ("createTime<2026-02-01", False),
        ("endTime<2030-01-01", False),
        ("trainingInput.args=--steps", True),
        ("trainingInput.workerCount>=3", True),
        ("trainingInput.workerCount<10", True),
        ("trainingInput.useChiefInTfConfig=true", True),
        ("trainingInput.missing!=1", False),
        ("NOT trainingInput.missing=1", True),
    ],
)
def test_list_filters(text: str, expected: bool) -> None:
    assert parse(text).matches(JOB) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('resource.type="ml_job" resource.labels.job_id="J"', True),
        ('resource.type="ml_job"\nresource.labels.job_id="K"', False),
        ('(resource.type="ml_job" OR resource.type="cloudml_job") AND resource.labels.job_id="J"', True),
        ('resource.type=("ml_job" OR "cloudml_job")', True),
        ('resource.type=("a" OR "b")', False),
        ('labels."ml.googleapis.com/task_name"="master-replica-0"', True),
        ("labels.'ml.googleapis.com/task_name'=master-replica-0", True),
        ('labels.ml.googleapis.com/task_name="master-replica-0"', True),
        ('(resource.labels.task_name="ps" OR labels.task_name="ps")', False),
        ("severity>=WARNING", True),
        ("severity>=warning", True),
        ("severity>ERROR", False),
        ("severity!=ERROR", False),
        ("severity<600", True),
        ('timestamp="2026-02-01T00:00:00.000001Z"', True),
        ('timestamp>="2026-02-01T00:00:00.000001001Z"', False),
        ('timestamp<"2026-02-01T00:00:00.000001001Z"', True),
        (
            '((timestamp="2026-02-01T00:00:00.000001Z" AND insertId>"004") OR timestamp>"2026-02-01T00:00:00.000001Z")',
            True,
        ),
        (
            '((timestamp="2026-02-01T00:00:00.000001Z" AND insertId>"005") OR timestamp>"2026-02-01T00:00:00.000001Z")',
            False,
        ),
        ("nan", True),
        ("loss step", True),
        ("loss accuracy", False),
        ("loss -accuracy", True),
        ('"is \\"nan\\" at"', True),
        ("jsonPayload.message:nan", True),
        ('jsonPayload.message=~"step [0-9]+$"', True),
        ('jsonPayload.message=~"^step"', False),
        ('jsonPayload.message!~"^step"', True),
        ("jsonPayload.created>1769904000", True),
        ("severity=ERROR -- and not a word more\nnan", True),
        ('jsonPayload.message:"\\u004eaN"', True),
    ],
)
def test_log_filters(text: str, expected: bool) -> None:
    assert parse(text).matches(ENTRY) is expected


def test_or_binds_tighter_than_and() -> None:
    """`a OR b AND c` is `(a OR b) AND c`: with the habits of other languages this would match."""
    assert not parse("state=FAILED OR state=RUNNING AND jobId=iris").matches(JOB)
    assert parse("state=FAILED OR (state=RUNNING AND jobId=iris)").matches(JOB)


@pytest.mark.parametrize(
    ("text", "character", "expected"),
    [
        ("state=", 7, "expected a value after =, found the end"),
        ("state= AND jobId=a", 8, "expected a value"),
        ("(state=a", 9, "expected a closing parenthesis, found the end"),
        ("state=a)", 8, "found ')'"),
        ("state=a OR", 11, "expected a field, a word"),
        ("AND state=a", 1, "expected a comparison or a word"),
        ('jobId="abc', 7, "does not end"),
        ("severity>=LOUD", 11, "DEFAULT, DEBUG, INFO"),
        ("timestamp>yesterday", 11, "not a time like"),
        ('jobId=~"(a"', 8, "not a regular expression"),
        ('log_id("x")', 1, "log_id() is not known"),
        (".a=1", 1, "empty"),
        ("state==a", 6, "== is not an operator; these are: = != <"),
        ("state~a", 6, "~ is not an operator"),
        ("state=a (" + "(" * 60, 59, "more than 50 deep"),
        ("NOT " * 60 + "a", 201, "more than 50 deep"),
        ("- " * 60 + "a", 101, "more than 50 deep"),
    ],
)
def test_errors_say_where_and_what(text: str, character: int, expected: str) -> None:
    with pytest.raises(InvalidArgumentError, match=rf"at character {character}: ") as caught:
        parse(text)
    assert expected in str(caught.value)
    assert caught.value.field == "filter"


def test_a_filter_has_a_longest_length() -> None:
    assert parse("a" * MAX_CHARACTERS).matches({"x": "a" * MAX_CHARACTERS})
    with pytest.raises(InvalidArgumentError, match="20,001 characters"):
        parse("a" * (MAX_CHARACTERS + 1))


def test_a_hostile_regular_expression_costs_no_more_than_its_text() -> None:
    """Python's own engine would need longer than the test's time limit for this."""
    document = {"message": "a" * 5000 + "!"}
    assert not parse('message=~"(a+)+$"').matches(document)
    with pytest.raises(InvalidArgumentError, match="1,000 are allowed"):
        parse(f'message=~"{"a" * 1001}"')


@given(st.text(alphabet='ab.=<>:~!-()"\'\\ \n*ANDORT"', max_size=40) | st.text(max_size=40))
def test_any_text_is_understood_or_refused(text: str) -> None:
    try:
        parse(text).matches(ENTRY)
    except InvalidArgumentError as exc:
        assert re.search(r"at character \d+: ", str(exc))


def _times() -> st.SearchStrategy[str]:
    return st.integers(0, 6).map(lambda s: rfc3339(s * 1_000_000))


def _comparisons() -> st.SearchStrategy[str]:
    operators = st.sampled_from(["=", "!=", "<", "<=", ">", ">="])
    about_time = st.builds('timestamp{}"{}"'.format, operators, _times())
    about_job = st.builds("job{}{}".format, st.sampled_from(["=", "!=", ":"]), st.sampled_from(["a", "b", "a*"]))
    return about_time | about_job


def _queries() -> st.SearchStrategy[str]:
    def grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        joined = st.builds("({} {} {})".format, inner, st.sampled_from(["AND", "OR", ""]), inner)
        return joined | inner.map("NOT {}".format)

    return st.recursive(_comparisons(), grown, max_leaves=6)


@given(_queries(), st.integers(0, 6), st.sampled_from(["a", "b", "ab"]))
def test_what_is_known_without_looking_never_excludes_a_match(text: str, second: int, job: str) -> None:
    query = parse(text)
    if not query.matches({"timestamp": rfc3339(second * 1_000_000), "job": job}):
        return
    window = query.window("timestamp")
    assert window.lower is None or window.lower <= second * 1_000_000
    assert window.upper is None or window.upper >= second * 1_000_000
    required = query.required("job")
    assert required is None or job in required


def test_what_gcloud_sends_says_which_job_and_when() -> None:
    query = parse(
        '(resource.type="ml_job" OR resource.type="cloudml_job") AND resource.labels.job_id="J" AND '
        'timestamp>="1970-01-01T01:00:00.000000000Z" AND timestamp<"1970-01-01T02:00:00.000000Z"'
    )
    assert query.required("resource", "labels", "job_id") == frozenset({"J"})
    assert query.window("timestamp") == (3_600_000_000, 7_200_000_000)
    later = parse(
        'resource.labels.job_id="J" AND '
        '((timestamp="1970-01-01T00:00:01Z" AND insertId>"I") OR timestamp>"1970-01-01T00:00:01Z")'
    )
    assert later.window("timestamp") == (1_000_000, None)


def test_the_number_of_terms_is_bounded() -> None:
    parse(" OR ".join(f"word{number}" for number in range(MAX_TERMS)))
    for text in (" OR ".join(["x"] * (MAX_TERMS + 1)), f"id=({' OR '.join(['x'] * (MAX_TERMS + 1))})"):
        with pytest.raises(InvalidArgumentError, match="more than 64"):
            parse(text)
