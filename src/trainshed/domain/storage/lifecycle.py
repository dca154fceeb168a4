"""Lifecycle rules of a bucket: which versions of objects are deleted, or get another storage class, and when.

Uploads in parts that are not complete end by rules too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any

from trainshed.domain.objects import ObjectInfo
from trainshed.domain.times import parse_rfc3339
from trainshed.errors import InvalidArgumentError

DELETE, SET_CLASS, ABORT = "Delete", "SetStorageClass", "AbortIncompleteMultipartUpload"
MAX_RULES = 100
DAY_US = 86_400_000_000
_NUMBERS = frozenset({"age", "daysSinceCustomTime", "daysSinceNoncurrentTime", "numNewerVersions"})
_DATES = frozenset({"createdBefore", "customTimeBefore", "noncurrentTimeBefore"})
_LISTS = frozenset({"matchesPrefix", "matchesStorageClass", "matchesSuffix"})
_OF_UPLOADS = frozenset({"age", "matchesPrefix", "matchesSuffix"})


@dataclass(frozen=True, slots=True, kw_only=True)
class LifecycleAction:
    """What a rule does with a version of an object."""

    kind: str  #: DELETE or SET_CLASS
    storage_class: str = ""


def checked_lifecycle(value: object, classes: Sequence[str]) -> dict[str, Any] | None:
    """The rules as they are kept; None if there are none.

    Raises `InvalidArgumentError` for a rule that means nothing.
    """
    if not value:
        return None
    rules = value.get("rule", []) if isinstance(value, dict) and set(value) <= {"rule"} else None
    if not isinstance(rules, list) or len(rules) > MAX_RULES:
        raise _wrong(f'is {{"rule": [...]}}, with at most {MAX_RULES} rules')
    for rule in rules:
        if not isinstance(rule, dict) or set(rule) != {"action", "condition"}:
            raise _wrong("has rules with an action and a condition")
        _check_action(rule["action"], classes)
        _check_condition(rule["condition"])
        if rule["action"]["type"] == ABORT and not _OF_UPLOADS.issuperset(rule["condition"]):
            raise _wrong(f"has rules that end uploads, by {', '.join(sorted(_OF_UPLOADS))} alone")
    return {"rule": rules} if rules else None


def _check_action(action: object, classes: Sequence[str]) -> None:
    if not isinstance(action, dict) or action.get("type") not in (DELETE, SET_CLASS, ABORT):
        raise _wrong(f"has the actions {DELETE}, {SET_CLASS} and {ABORT}")
    if action["type"] == SET_CLASS and action.get("storageClass") not in classes:
        raise _wrong(f"sets one of the storage classes {', '.join(classes)}")
    if set(action) - {"type", "storageClass"}:
        raise _wrong("has actions with a type and a storageClass")


def _check_condition(condition: object) -> None:
    if not isinstance(condition, dict) or not condition:
        raise _wrong("has rules with at least one condition")
    for name, value in condition.items():
        if name in _NUMBERS:
            good = type(value) is int and 0 <= value < 1 << 31
        elif name in _DATES:
            good = isinstance(value, str) and _date(value) is not None
        elif name in _LISTS:
            good = isinstance(value, list) and bool(value) and all(isinstance(each, str) for each in value)
        elif name == "isLive":
            good = isinstance(value, bool)
        else:
            raise _wrong(f"has no condition {name!r:.60}")
        if not good:
            raise _wrong(f"has a condition {name} with the value {value!r:.60}, which it can't have")


def action_for(lifecycle: Mapping[str, Any], info: ObjectInfo, *, newer: int, now_us: int) -> LifecycleAction | None:
    """What the rules do with a version now. `newer` counts the later versions of its name. Deleting comes first."""
    actions = [
        LifecycleAction(kind=rule["action"]["type"], storage_class=rule["action"].get("storageClass", ""))
        for rule in lifecycle["rule"]
        if rule["action"]["type"] != ABORT and _matches(rule["condition"], info, newer=newer, now_us=now_us)
    ]
    for action in actions:
        if action.kind == DELETE:
            return action
    changes = [action for action in actions if action.storage_class != info.traits.storage_class]
    return changes[0] if changes and len(changes) == len(actions) else None


def ends_upload(lifecycle: Mapping[str, Any], name: str, *, begun_us: int, now_us: int) -> bool:
    """Tell whether the rules end an upload in parts now."""
    as_object = ObjectInfo(
        bucket="", name=name, size=0, generation=0, metageneration=0, created_us=begun_us, updated_us=begun_us
    )
    return any(
        rule["action"]["type"] == ABORT and _matches(rule["condition"], as_object, newer=0, now_us=now_us)
        for rule in lifecycle["rule"]
    )


def _matches(condition: Mapping[str, Any], info: ObjectInfo, *, newer: int, now_us: int) -> bool:
    custom_us = _moment(info.traits.custom_time)
    return all(
        _holds(name, value, info, custom_us=custom_us, newer=newer, now_us=now_us) for name, value in condition.items()
    )


def _holds(name: str, value: Any, info: ObjectInfo, *, custom_us: int, newer: int, now_us: int) -> bool:
    match name:
        case "age":
            return now_us - info.created_us >= int(value) * DAY_US
        case "daysSinceCustomTime":
            return custom_us > 0 and now_us - custom_us >= int(value) * DAY_US
        case "daysSinceNoncurrentTime":
            return info.deleted_us > 0 and now_us - info.deleted_us >= int(value) * DAY_US
        case "numNewerVersions":
            return newer >= int(value)
        case "isLive":
            return bool((info.deleted_us == 0) is value)
        case "matchesPrefix":
            return bool(info.name.startswith(tuple(value)))
        case "matchesSuffix":
            return info.name.endswith(tuple(value))
        case "matchesStorageClass":
            return info.traits.storage_class in value
    moments = {"createdBefore": info.created_us, "customTimeBefore": custom_us, "noncurrentTimeBefore": info.deleted_us}
    return 0 < moments[name] < _midnight_us(value)


def _date(text: str) -> date | None:
    try:
        return date.fromisoformat(text[:10]) if len(text) in (10, 20) else None
    except ValueError:
        return None


def _midnight_us(text: str) -> int:
    """The beginning of a day of UTC."""
    day = _date(text)
    assert day is not None  # it was checked when the rule was set
    return int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp()) * 1_000_000


def _moment(text: str) -> int:
    return parse_rfc3339(text) if text else 0


def _wrong(what: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"The lifecycle of a bucket {what}.", field="lifecycle")
