"""Formats, filters and sorting."""

from __future__ import annotations

import json
from typing import Any

import click
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from trainshed.cli.toolkit.list_filters import select
from trainshed.cli.toolkit.options import KeyValues, WordChoice
from trainshed.cli.toolkit.output import (
    Column,
    boxed_text,
    field_of,
    local_time,
    sentence,
    show_list,
    show_one,
    table_text,
    text_of,
    yaml_text,
)
from trainshed.client import ApiError

JOBS: list[dict[str, Any]] = [
    {"jobId": "a", "state": "FAILED", "createTime": "2020-03-27T11:57:55Z", "labels": {"team": "vision"}, "n": "10"},
    {"jobId": "b", "state": "SUCCEEDED", "createTime": "2020-03-27T11:43:28Z", "labels": {"team": "audio"}, "n": "9"},
    {"jobId": "c_b", "state": "RUNNING", "createTime": "2020-03-26T11:35:53Z", "errorMessage": "Boom: it broke"},
]


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> Any:
    import time

    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def test_a_table_has_two_blanks_between_columns_and_none_at_the_end() -> None:
    text = table_text([["train_1", "FAILED", ""], ["b", "SUCCEEDED", "x"]], ["JOB_ID", "STATUS", "CREATED"])
    assert text == "JOB_ID   STATUS     CREATED\ntrain_1  FAILED\nb        SUCCEEDED  x"


def test_times_are_shown_as_this_machines_clock_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    assert local_time("2020-03-27T11:57:55.123456Z") == "2020-03-27T11:57:55"
    monkeypatch.setenv("TZ", "Etc/GMT-2")
    time.tzset()
    assert local_time("2020-03-27T11:57:55Z") == "2020-03-27T13:57:55"
    assert local_time(None) == ""


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ("value(jobId)", "a\nb\nc_b\n"),
        ("value(jobId,labels.team)", "a\tvision\nb\taudio\nc_b\t\n"),
        ("csv(jobId,state)", "jobId,state\na,FAILED\nb,SUCCEEDED\nc_b,RUNNING\n"),
        ("table(jobId,createTime:label=WHEN)", "JOB_ID  WHEN\na       2020-03-27T11:57:55Z\n"),
        (None, "ID\na\nb\nc_b\n"),
        ("table", "ID\na\nb\nc_b\n"),
    ],
)
def test_formats_of_listings(capsys: pytest.CaptureFixture[str], wanted: str | None, expected: str) -> None:
    show_list(JOBS, format=wanted, columns=[Column("ID", "jobId")])
    assert capsys.readouterr().out.startswith(expected)


def test_json_and_yaml_of_listings_hold_everything(capsys: pytest.CaptureFixture[str]) -> None:
    show_list(JOBS, format="json", columns=[])
    assert json.loads(capsys.readouterr().out) == JOBS
    show_list(JOBS, format="yaml", columns=[])
    assert list(yaml.safe_load_all(capsys.readouterr().out)) == JOBS


def test_an_empty_listing_says_so_on_stderr_and_is_still_json_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    show_list([], format=None, columns=[Column("ID", "jobId")])
    assert capsys.readouterr() == ("", "Listed 0 items.\n")
    show_list([], format="json", columns=[])
    assert capsys.readouterr() == ("[]\n", "")


def test_an_unknown_format_is_a_usage_error() -> None:
    with pytest.raises(click.UsageError, match="Unknown format"):
        show_one(JOBS[0], format="jsno")


def test_yaml_of_a_job_is_sorted_and_keeps_tracebacks_readable() -> None:
    body = {"state": "FAILED", "errorMessage": "status of 1. \nTraceback:\n  File x", "count": "2", "args": ["--a", ""]}
    assert yaml_text(body) == (
        "args:\n- --a\n- ''\ncount: '2'\nerrorMessage: |-\n  status of 1. \n  Traceback:\n    File x\nstate: FAILED\n"
    )


@given(
    st.dictionaries(st.text(min_size=1), st.recursive(st.none() | st.booleans() | st.text(), st.lists, max_leaves=5))
)
def test_yaml_gives_back_what_went_in(value: dict[str, Any]) -> None:
    assert yaml.safe_load(yaml_text(value)) == value


def test_fields_are_found_by_path() -> None:
    item = {"a": {"b": [{"c": 1}, "x"]}}
    assert field_of(item, "a.b[0].c") == 1
    assert field_of(item, "a.b[-1]") == "x"
    assert field_of(item, "a.b[7]") is None
    assert field_of(item, "a.nothing.c") is None
    assert text_of({"k": "v", "l": "w"}) == "k=v;l=w"


def test_a_box_is_as_wide_in_each_line() -> None:
    lines = boxed_text("A rather long title", ["ID"], [["1"]]).splitlines()
    assert len({len(line) for line in lines}) == 1


def test_a_box_has_rows_and_cells_of_several_lines() -> None:
    assert boxed_text("Trials", ["TRIAL", "VALUES"], [["10", "rate=1\nunits=64"], ["2", ""]]).splitlines() == [
        "┌──────────────────┐",
        "│      Trials      │",
        "├───────┬──────────┤",
        "│ TRIAL │  VALUES  │",
        "├───────┼──────────┤",
        "│ 10    │ rate=1   │",
        "│       │ units=64 │",
        "│ 2     │          │",
        "└───────┴──────────┘",
    ]


def test_errors_are_put_as_gcloud_puts_them() -> None:
    details = ({"@type": "T", "fieldViolations": [{"field": "job.job_id", "description": "Taken."}]},)
    error = ApiError("Field: job.job_id Error: Taken.", code=409, status="ALREADY_EXISTS", details=details)
    assert sentence(error, project="p1").splitlines() == [
        "Resource in projects [p1] is the subject of a conflict: Field: job.job_id Error: Taken.",
        "- '@type': T",
        "  fieldViolations:",
        "  - description: Taken.",
        "    field: job.job_id",
    ]
    assert sentence(ApiError("Gone.", code=404, status="NOT_FOUND")) == "NOT_FOUND: Gone."


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("state=FAILED", "a"),
        ("state=failed", "a"),
        ("state!=FAILED", "b c_b"),
        ("state:(FAILED RUNNING)", "a c_b"),
        ("state=(FAILED OR RUNNING)", "a c_b"),
        ("NOT state=FAILED", "b c_b"),
        ("-state=FAILED", "b c_b"),
        ("state=FAILED OR state=RUNNING", "a c_b"),
        ("state=FAILED AND labels.team=audio", ""),
        ("labels.team=vision state=FAILED", "a"),
        ("(state=FAILED OR state=RUNNING) AND labels.team:*", "a"),
        ("labels.team:*", "a b"),
        ("jobId:b*", "b"),
        ("jobId~^c", "c_b"),
        ("jobId!~^c", "a b"),
        ('errorMessage:"it broke"', "c_b"),
        ("createTime>2020-03-27", "a b"),
        ("createTime>=2020-03-27T11:50:00Z", "a"),
        ("createTime<'2020-03-27T00:00:00Z'", "c_b"),
        ("createTime>=2020-03-27T13:50:00+02:00", "a"),
        ("createTime=2020-03-27T12:57:55+01:00", "a"),
        ("labels:audio", "b"),
        ("labels.team:(VIS* , audio)", "a b"),
        ("jobId:*b", "b c_b"),
        ("jobId:c*b", "c_b"),
        ("labels.team!=vision", "b c_b"),
        ("labels.team=''", "c_b"),
        ("boom", "c_b"),
        ("vision OR -errorMessage:*", "a b"),
        ("state=FAILED OR state=RUNNING jobId:b", "c_b"),
        (r"errorMessage~'\s\w{2}\s'", "c_b"),
        ("n<10", "b"),
        ("n>=9", "a b"),
        ("nothing=x", ""),
        ("", "a b c_b"),
    ],
)
def test_filters_choose(text: str, expected: str) -> None:
    assert [job["jobId"] for job in select(JOBS, filter=text)] == expected.split()


def test_filters_reach_into_lists() -> None:
    items: list[dict[str, Any]] = [{"id": "x", "args": ["--steps", "10"]}, {"id": "y", "args": []}, {"id": "z"}]
    for text in ("args[0]=--steps", "args[-1]=10", "args=10", "args[]=10", "args:*"):
        assert [item["id"] for item in select(items, filter=text)] == ["x"], text


@pytest.mark.parametrize(
    ("text", "character", "expected"),
    [
        ("state=", 7, "expected a value after ="),
        ("(state=A", 9, "expected a closing parenthesis"),
        ("state=A)", 8, "found ')'"),
        ("=A", 1, "expected a field"),
        ("state=A OR", 11, "expected a field"),
        ("jobId~[", 7, "not a regular expression"),
        ("state ! x", 7, "! is not an operator"),
        ("jobId=~x", 6, "these are: = != < <= > >= : ~ !~"),
        ("jobId:a*b*", 7, "write one at most"),
        ("state!=(A B)", 8, "after NOT"),
        ("state=()", 8, "expected a value"),
        ("state=(A AND B)", 10, "expected a value"),
        ("name.scope(x)=a", 1, "name.scope() is not known"),
        ("state=A OR state=B AND jobId=b", 20, "parentheses are required when AND and OR are combined"),
    ],
)
def test_a_filter_that_makes_no_sense_is_a_usage_error(text: str, character: int, expected: str) -> None:
    with pytest.raises(click.UsageError, match=f"at character {character}: ") as caught:
        select(JOBS, filter=text)
    assert expected in caught.value.message
    assert caught.value.message.endswith(text)


@pytest.mark.parametrize(
    ("sort_by", "limit", "expected"),
    [
        ("jobId", None, "a b c_b"),
        ("~jobId", 2, "c_b b"),
        ("n", None, "c_b b a"),
        ("createTime", 1, "c_b"),
        ("~labels.team,jobId", None, "a b c_b"),
        (None, 1, "a"),
    ],
)
def test_sorting_and_limits(sort_by: str | None, limit: int | None, expected: str) -> None:
    assert [job["jobId"] for job in select(JOBS, sort_by=sort_by, limit=limit)] == expected.split()


def test_a_limit_does_not_read_on() -> None:
    def endless() -> Any:
        yield from JOBS
        raise AssertionError("read too far")

    assert len(select(endless(), limit=3)) == 3


def test_labels_are_pairs_with_any_separator() -> None:
    assert KeyValues().convert("a=b,c=d=e", None, None) == {"a": "b", "c": "d=e"}
    assert KeyValues().convert("^;^a=b,c;d=e", None, None) == {"a": "b,c", "d": "e"}
    with pytest.raises(click.UsageError, match="KEY=VALUE"):
        KeyValues().convert("a", None, None)


def test_choices_do_not_mind_case_or_underscores() -> None:
    assert WordChoice("standard-1").convert("STANDARD_1", None, None) == "standard-1"
    with pytest.raises(click.UsageError, match=r"Valid choices are \[basic\]"):
        WordChoice("basic").convert("what", None, None)
