"""Parts of a response, selected by `fields`."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainshed.domain.partial_response import read_fields, select
from trainshed.errors import InvalidArgumentError

BODY = {
    "kind": "list",
    "items": [{"name": "a", "owner": {"id": 1, "mail": "x"}}, {"name": "b", "size": "2"}],
    "nextPageToken": "t",
}


@pytest.mark.parametrize(
    ("fields", "selected"),
    [
        ("kind", {"kind": "list"}),
        ("kind, nextPageToken", {"kind": "list", "nextPageToken": "t"}),
        ("items/name", {"items": [{"name": "a"}, {"name": "b"}]}),
        ("items(name,size)", {"items": [{"name": "a"}, {"name": "b", "size": "2"}]}),
        ("items/owner/id,items/size", {"items": [{"owner": {"id": 1}}, {"size": "2"}]}),
        ("items(owner(id))", {"items": [{"owner": {"id": 1}}, {}]}),
        ("items/name,items", {"items": BODY["items"]}),
        ("items/*/id", {"items": [{"name": "a", "owner": {"id": 1}}, {"name": "b", "size": "2"}]}),
        ("*", BODY),
        ("nothing", {}),
    ],
)
def test_parts_are_selected(fields: str, selected: dict[str, Any]) -> None:
    assert select(BODY, read_fields(fields)) == selected


@pytest.mark.parametrize(
    "fields", [",", "a,", "/a", "a/", "a(", "a()", "a(b", "a)b", "a(b))", "a b", "a;c", "a" * 10_001]
)
def test_what_is_malformed_is_refused(fields: str) -> None:
    with pytest.raises(InvalidArgumentError, match="Invalid field selection"):
        read_fields(fields)


@given(st.text(alphabet="ab*,/() é", max_size=60))
def test_any_text_is_a_selection_or_refused(text: str) -> None:
    try:
        selection = read_fields(text)
    except InvalidArgumentError:
        return
    assert select(BODY, selection).keys() <= BODY.keys()


def test_depth_is_limited() -> None:
    with pytest.raises(InvalidArgumentError):
        read_fields("/".join("a" * 100))
