"""What a bucket's settings forbid and keep when an object is replaced or deleted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from trainshed.domain.objects import ObjectInfo
from trainshed.domain.times import rfc3339
from trainshed.errors import PermissionDeniedError

SECOND_US = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketRules:
    """The rules for objects of one bucket."""

    versioned: bool = False  #: what is replaced or deleted stays as a noncurrent version
    retention_s: int = 0  #: an object can't be removed before this age
    default_hold: bool = False  #: new objects get an event-based hold
    holds: bool = False  #: an object of the bucket had a hold at some time

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Self:
        """The rules in a bucket's settings."""
        return cls(
            versioned=bool(settings.get("versioning", {}).get("enabled")),
            retention_s=int(settings.get("retentionPolicy", {}).get("retentionPeriod", 0)),
            default_hold=bool(settings.get("defaultEventBasedHold")),
            holds=bool(settings.get("holds")),
        )

    @property
    def are_guarded(self) -> bool:
        """Whether writes must pass the rules. Such a bucket is never given to jobs as a folder."""
        return self.versioned or self.retention_s > 0 or self.default_hold or self.holds

    def retained_until_us(self, info: ObjectInfo) -> int:
        """When the retention of an object ends. Returns 0 if there is none, or if it waits for an event."""
        if not self.retention_s or info.traits.event_based_hold:
            return 0
        return max(info.created_us, info.traits.hold_released_us) + self.retention_s * SECOND_US

    def check_replacement(self, info: ObjectInfo, now_us: int) -> None:
        """Raises `PermissionDeniedError` if the live object may not be replaced, or deleted without a generation.

        In a bucket with versioning its bytes are kept, so its retention does not matter.
        """
        _check_holds(info)
        if not self.versioned:
            self._check_retention(info, now_us)

    def check_removal(self, info: ObjectInfo, now_us: int) -> None:
        """Raises `PermissionDeniedError` if the bytes of a version may not be removed."""
        _check_holds(info)
        self._check_retention(info, now_us)

    def _check_retention(self, info: ObjectInfo, now_us: int) -> None:
        if (until_us := self.retained_until_us(info)) > now_us:
            raise PermissionDeniedError(
                f"Object '{info.bucket}/{info.name}' is subject to bucket's retention policy and cannot be deleted or "
                f"overwritten until {rfc3339(until_us)}."
            )


def _check_holds(info: ObjectInfo) -> None:
    if info.traits.temporary_hold:
        raise _held(info, "Temporary")
    if info.traits.event_based_hold:
        raise _held(info, "Event-Based")


def _held(info: ObjectInfo, kind: str) -> PermissionDeniedError:
    return PermissionDeniedError(
        f"Object '{info.bucket}/{info.name}' is under active {kind} hold and cannot be deleted, overwritten or "
        f"archived until hold is removed."
    )
