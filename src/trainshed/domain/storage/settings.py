"""The settings of a bucket besides its labels: checked, and merged into those that it has.

They are kept in the API's own form, with only what differs from a new bucket. `holds` alone is not the API's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainshed.domain.storage.cors import checked_cors
from trainshed.domain.storage.lifecycle import checked_lifecycle
from trainshed.domain.times import rfc3339
from trainshed.errors import InvalidArgumentError, PermissionDeniedError

MAX_RETENTION_S = 100 * 366 * 86_400  #: a hundred years
#: settings that rules for objects are made of; they are of no use in a cloud, where others write too
RULES = ("versioning", "retentionPolicy", "defaultEventBasedHold", "lifecycle")
FIELDS = (*RULES, "cors")
#: current and former classes of Cloud Storage
STORAGE_CLASSES = (
    "STANDARD",
    "NEARLINE",
    "COLDLINE",
    "ARCHIVE",
    "MULTI_REGIONAL",
    "REGIONAL",
    "DURABLE_REDUCED_AVAILABILITY",
)
HOLDS = "holds"  #: an object of the bucket had a hold at some time


def merged(old: Mapping[str, Any], changes: Mapping[str, Any], now_us: int) -> dict[str, Any]:
    """Settings with the changes; None or an empty value takes one out.

    Raises `InvalidArgumentError` for a value of another form, and `PermissionDeniedError` for what a locked retention
    policy forbids.
    """
    settings = dict(old)
    for name, value in changes.items():
        new = _CHECKS[name](value, settings.get(name), now_us)
        if new is None:
            settings.pop(name, None)
        else:
            settings[name] = new
    return settings


def shown(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings as the API shows them."""
    return {name: value for name, value in settings.items() if name != HOLDS}


def locked(old: Mapping[str, Any]) -> dict[str, Any]:
    """Settings with a locked retention policy. Raises `InvalidArgumentError` if there is none to lock."""
    policy = old.get("retentionPolicy")
    if policy is None:
        raise InvalidArgumentError("The bucket has no retention policy that could be locked.", field="retentionPolicy")
    return {**old, "retentionPolicy": {**policy, "isLocked": True}}


def _versioning(value: object, old: object, now_us: int) -> dict[str, Any] | None:
    if value is None:
        return {"enabled": False} if old else None
    enabled = value.get("enabled", False) if isinstance(value, dict) and set(value) <= {"enabled"} else None
    if not isinstance(enabled, bool):
        raise InvalidArgumentError('The versioning of a bucket is {"enabled": true} or false.', field="versioning")
    return {"enabled": enabled} if enabled or old else None


def _default_hold(value: object, old: object, now_us: int) -> bool | None:
    if value is not None and not isinstance(value, bool):
        raise InvalidArgumentError("The defaultEventBasedHold is true or false.", field="defaultEventBasedHold")
    return True if value else None


def _retention(value: object, old: Mapping[str, Any] | None, now_us: int) -> dict[str, Any] | None:
    field = "retentionPolicy"
    if value is not None and not isinstance(value, dict):
        raise InvalidArgumentError('A retentionPolicy is like {"retentionPeriod": "86400"}.', field=field)
    policy = value or {}
    if unknown := sorted(set(policy) - {"retentionPeriod", "effectiveTime", "isLocked"}):
        raise InvalidArgumentError(f"Unknown field {unknown[0]!r} of a retention policy.", field=field)
    seconds = _seconds(policy.get("retentionPeriod"))
    if old and old.get("isLocked") and seconds < int(old["retentionPeriod"]):
        raise PermissionDeniedError(
            "The retention policy of this bucket is locked. It can be made longer, but neither shorter nor taken away."
        )
    if not seconds:
        return None
    if old and seconds == int(old["retentionPeriod"]):
        return dict(old)
    kept = {"isLocked": True} if old and old.get("isLocked") else {}
    return {"retentionPeriod": str(seconds), "effectiveTime": rfc3339(now_us), **kept}


def _seconds(value: object) -> int:
    text = str(value) if isinstance(value, int | str) and not isinstance(value, bool) else "" if value else "0"
    if not (text.isascii() and text.isdigit()) or int(text) > MAX_RETENTION_S:
        raise InvalidArgumentError(
            f"A retentionPeriod is a whole number of seconds, at most {MAX_RETENTION_S:,}.", field="retentionPolicy"
        )
    return int(text)


def _lifecycle(value: object, old: object, now_us: int) -> dict[str, Any] | None:
    return checked_lifecycle(value, STORAGE_CLASSES)


def _cors(value: object, old: object, now_us: int) -> list[dict[str, Any]] | None:
    return checked_cors(value)


_CHECKS: Mapping[str, Any] = {
    "cors": _cors,
    "lifecycle": _lifecycle,
    "versioning": _versioning,
    "defaultEventBasedHold": _default_hold,
    "retentionPolicy": _retention,
}
