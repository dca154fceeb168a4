"""Lifecycle and CORS rules as values."""

from __future__ import annotations

from typing import Any

import pytest

from trainshed.domain.objects import ObjectInfo, ObjectMetadata
from trainshed.domain.storage.cors import checked_cors, preflight_headers, response_headers
from trainshed.domain.storage.lifecycle import DAY_US, LifecycleAction, action_for, checked_lifecycle, ends_upload
from trainshed.domain.storage.settings import STORAGE_CLASSES
from trainshed.errors import InvalidArgumentError

NOW_US = 1_800_000_000_000_000  # 2027-01-15
DELETE = {"type": "Delete"}


def version(days: float = 0, *, deleted_days: float | None = None, **traits: Any) -> ObjectInfo:
    created_us = NOW_US - int(days * DAY_US)
    return ObjectInfo(
        bucket="b",
        name="logs/a.txt",
        size=1,
        generation=created_us,
        metageneration=1,
        created_us=created_us,
        updated_us=created_us,
        deleted_us=0 if deleted_days is None else NOW_US - int(deleted_days * DAY_US),
        traits=ObjectMetadata(**traits),
    )


@pytest.mark.parametrize(
    ("condition", "info", "newer", "matches"),
    [
        ({"age": 30}, version(30), 0, True),
        ({"age": 30}, version(29.9), 0, False),
        ({"age": 0}, version(0), 0, True),
        ({"numNewerVersions": 2}, version(1, deleted_days=1), 2, True),
        ({"numNewerVersions": 2}, version(1, deleted_days=1), 1, False),
        ({"isLive": True}, version(), 0, True),
        ({"isLive": True}, version(deleted_days=0), 1, False),
        ({"isLive": False, "age": 1}, version(2, deleted_days=0), 1, True),
        ({"isLive": False, "age": 1}, version(2), 0, False),
        ({"daysSinceNoncurrentTime": 3}, version(9, deleted_days=3), 0, True),
        ({"daysSinceNoncurrentTime": 3}, version(9, deleted_days=2), 0, False),
        ({"daysSinceNoncurrentTime": 0}, version(9), 0, False),
        ({"createdBefore": "2027-01-15"}, version(1), 0, True),
        ({"createdBefore": "2027-01-15"}, version(0), 0, False),
        ({"noncurrentTimeBefore": "2027-01-15"}, version(9, deleted_days=1), 0, True),
        ({"noncurrentTimeBefore": "2027-01-15"}, version(9), 0, False),
        ({"daysSinceCustomTime": 1}, version(custom_time="2027-01-13T00:00:00Z"), 0, True),
        ({"daysSinceCustomTime": 0}, version(9), 0, False),
        ({"customTimeBefore": "2027-01-14"}, version(custom_time="2027-01-13T00:00:00Z"), 0, True),
        ({"matchesPrefix": ["x", "logs/"]}, version(), 0, True),
        ({"matchesPrefix": ["x"]}, version(), 0, False),
        ({"matchesSuffix": [".txt"]}, version(), 0, True),
        ({"matchesStorageClass": ["NEARLINE"]}, version(), 0, False),
    ],
)
def test_conditions(condition: dict[str, Any], info: ObjectInfo, newer: int, matches: bool) -> None:
    rules = checked_lifecycle({"rule": [{"action": DELETE, "condition": condition}]}, STORAGE_CLASSES)
    assert rules is not None
    assert (action_for(rules, info, newer=newer, now_us=NOW_US) == LifecycleAction(kind="Delete")) is matches


def test_deleting_comes_first_and_a_class_is_set_once() -> None:
    cold = {"type": "SetStorageClass", "storageClass": "COLDLINE"}
    rules = {"rule": [{"action": cold, "condition": {"age": 1}}, {"action": DELETE, "condition": {"age": 9}}]}
    assert action_for(rules, version(9), newer=0, now_us=NOW_US) == LifecycleAction(kind="Delete")
    assert action_for(rules, version(2), newer=0, now_us=NOW_US) == LifecycleAction(
        kind="SetStorageClass", storage_class="COLDLINE"
    )
    assert action_for(rules, version(2, storage_class="COLDLINE"), newer=0, now_us=NOW_US) is None


def test_rules_of_uploads_are_for_uploads_alone() -> None:
    def ends(name: str, days: int) -> bool:
        return ends_upload(rules, name, begun_us=NOW_US - days * DAY_US, now_us=NOW_US)

    abort = {"type": "AbortIncompleteMultipartUpload"}
    rules: dict[str, Any] = {"rule": [{"action": abort, "condition": {"age": 2, "matchesPrefix": ["logs/"]}}]}
    assert checked_lifecycle(rules, STORAGE_CLASSES) == rules
    assert [ends("logs/a", 2), ends("logs/a", 1), ends("a", 9)] == [True, False, False]
    assert action_for(rules, version(9), newer=0, now_us=NOW_US) is None
    rules = {"rule": [{"action": DELETE, "condition": {"age": 0}}]}
    assert not ends("logs/a", 9)


@pytest.mark.parametrize(
    "rules",
    [
        [],
        "x",
        {"rules": []},
        {"rule": "x"},
        {"rule": [{"action": DELETE}]},
        {"rule": [{"action": DELETE, "condition": {}}]},
        {"rule": [{"action": {"type": "AbortIncompleteMultipartUpload"}, "condition": {"isLive": True}}]},
        {"rule": [{"action": {"type": "SetStorageClass", "storageClass": "WARM"}, "condition": {"age": 1}}]},
        {"rule": [{"action": DELETE, "condition": {"age": -1}}]},
        {"rule": [{"action": DELETE, "condition": {"age": True}}]},
        {"rule": [{"action": DELETE, "condition": {"createdBefore": "soon"}}]},
        {"rule": [{"action": DELETE, "condition": {"matchesPrefix": "logs/"}}]},
        {"rule": [{"action": DELETE, "condition": {"colour": 1}}]},
        {"rule": [{"action": DELETE, "condition": {"age": 1}}] * 101},
    ],
    ids=lambda rules: str(rules)[:60],
)
def test_rules_that_mean_nothing_are_refused(rules: Any) -> None:
    if not rules:
        assert checked_lifecycle(rules, STORAGE_CLASSES) is None
        return
    with pytest.raises(InvalidArgumentError):
        checked_lifecycle(rules, STORAGE_CLASSES)


RULES: list[dict[str, Any]] = [
    {"origin": ["https://a.example"], "method": ["GET"], "responseHeader": ["X-One"], "maxAgeSeconds": 9},
    {"origin": ["https://*.b.example"], "method": ["*"], "responseHeader": ["*"]},
]


def test_pages_get_what_a_rule_allows() -> None:
    assert checked_cors(RULES) == RULES
    assert response_headers(RULES, origin="https://a.example", method="GET") == {
        "access-control-allow-origin": "https://a.example",
        "access-control-expose-headers": "X-One",
        "vary": "Origin",
    }
    for origin, method in (
        ("https://a.example", "PUT"),
        ("https://b.example", "GET"),
        ("https://a.example.evil", "GET"),
        ("null", "GET"),
    ):
        assert response_headers(RULES, origin=origin, method=method) is None
    assert response_headers(RULES, origin="https://x.b.example", method="PUT") is not None
    assert response_headers([{"origin": ["*"], "method": ["GET"]}], origin="https://z", method="GET") == {
        "access-control-allow-origin": "*",
        "vary": "Origin",
    }


def test_preflights_name_what_is_allowed() -> None:
    allowed = preflight_headers(RULES, origin="https://a.example", method="GET", headers=["x-one"])
    assert allowed is not None
    assert (allowed["access-control-max-age"], allowed["access-control-allow-headers"]) == ("9", "x-one")
    assert preflight_headers(RULES, origin="https://a.example", method="GET", headers=["authorization"]) is None
    assert preflight_headers(RULES, origin="https://q.b.example", method="PUT", headers=["authorization"]) is not None


@pytest.mark.parametrize(
    "rules",
    [
        {"origin": ["*"]},
        ["x"],
        [{"origin": "*"}],
        [{"origin": ["a\r\nb"]}],
        [{"method": ["TRACE"]}],
        [{"maxAgeSeconds": "1"}],
        [{"colour": 1}],
    ],
    ids=str,
)
def test_cors_of_another_form_is_refused(rules: Any) -> None:
    with pytest.raises(InvalidArgumentError):
        checked_cors(rules)
