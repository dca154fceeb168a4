"""Conditions under which a rollout is rolled back, such as `error_rate>0.5%` and `p99>1.5x`, and what they measure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainshed.errors import InvalidArgumentError

ERROR_RATE, CHANGED = "error_rate", "changed"
LATENCIES: Mapping[str, str] = {"p50": "p50_ms", "p95": "p95_ms", "p99": "p99_ms"}

_CONDITION = re.compile(r"\s*([a-z0-9_]+)\s*>\s*([0-9]+(?:\.[0-9]+)?)\s*(%|x|ms|s)\s*")
_UNITS = {ERROR_RATE: ("%", "x"), CHANGED: ("%",)} | dict.fromkeys(LATENCIES, ("x", "ms", "s"))
_EXAMPLES = "error_rate>0.5%, error_rate>2x, p99>1.5x, p99>200ms and changed>1%"


@dataclass(frozen=True, slots=True, kw_only=True)
class StageMeasurement:
    """Requests to one version in one stage."""

    requests: int = 0
    errors: int = 0
    compared: int = 0  #: answers of shadow traffic that were compared with those of the baseline
    changed: int = 0  #: those of them that differed
    p50_ms: float = 0.0
    p95_ms: float = 0.0
    p99_ms: float = 0.0

    @property
    def error_rate(self) -> float:
        return self.errors / self.requests if self.requests else 0.0

    def body(self) -> dict[str, Any]:
        return {
            "requests": self.requests,
            "errors": self.errors,
            "compared": self.compared,
            "changed": self.changed,
            "p50Ms": self.p50_ms,
            "p95Ms": self.p95_ms,
            "p99Ms": self.p99_ms,
        }

    @classmethod
    def parse(cls, body: Mapping[str, Any]) -> StageMeasurement:
        counts = {name: body[name] for name in ("requests", "errors", "compared", "changed")}
        return cls(**counts, p50_ms=body["p50Ms"], p95_ms=body["p95Ms"], p99_ms=body["p99Ms"])


NOTHING = StageMeasurement()


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """A limit on one figure of the new version. With `relative` it is a multiple of the baseline's figure."""

    text: str  #: as the user wrote it
    metric: str
    limit: float  #: a share, milliseconds, or a factor
    relative: bool = False

    @property
    def shadow_only(self) -> bool:
        """Whether only shadow traffic can tell: there, both versions answer the same request."""
        return self.metric == CHANGED

    def breach(self, new: StageMeasurement, baseline: StageMeasurement, min_requests: int) -> str:
        """Return how the figures pass the limit, as a sentence. Returns "" if they do not, or can't be judged yet.

        A share is one of at least `min_requests`. So it may pass its limit before that many came.
        """
        if self.metric == CHANGED:
            return self._breach_of_share(new.changed, max(new.compared, min_requests), "answers changed")
        if self.metric == ERROR_RATE and not self.relative:
            return self._breach_of_share(new.errors, max(new.requests, min_requests), "requests failed")
        if new.requests < min_requests or (self.relative and baseline.requests < min_requests):
            return ""
        if self.metric == ERROR_RATE:
            if new.error_rate <= self.limit * baseline.error_rate:
                return ""
            return (
                f"{self.text}: {new.error_rate:.2%} of its requests failed, and {baseline.error_rate:.2%} of those of "
                f"the present default version."
            )
        return self._breach_of_latency(new, baseline)

    def _breach_of_share(self, count: int, total: int, what: str) -> str:
        if count <= self.limit * total:
            return ""
        return f"{self.text}: {count} {what}, and at most {self.limit * total:g} of {total} may."

    def _breach_of_latency(self, new: StageMeasurement, baseline: StageMeasurement) -> str:
        field = LATENCIES[self.metric]
        measured, base = getattr(new, field), getattr(baseline, field)
        limit = self.limit * base if self.relative else self.limit
        if measured <= limit:
            return ""
        beside = f", and that of the present default version {base:.1f} ms" if self.relative else ""
        return f"{self.text}: its {self.metric} is {measured:.1f} ms{beside}."


def read_condition(text: str, field: str) -> Condition:
    """Read `METRIC>LIMIT`. Raises `InvalidArgumentError` if it is something else."""
    match = _CONDITION.fullmatch(text)
    if match is None or match[1] not in _UNITS:
        raise InvalidArgumentError(
            f"{text!r} is not a condition. It is a figure of the new version, >, and a limit: {_EXAMPLES}.", field=field
        )
    metric, number, unit = match[1], float(match[2]), match[3]
    if unit not in _UNITS[metric]:
        units = " or ".join(_UNITS[metric])
        raise InvalidArgumentError(f"The limit of {metric} in {text!r} must end with {units}.", field=field)
    if (unit == "%" and number >= 100) or (unit == "x" and number < 1):
        allowed = "below 100 %" if unit == "%" else "1x or more"
        raise InvalidArgumentError(f"The limit in {text!r} must be {allowed}.", field=field)
    factor = {"%": 0.01, "x": 1.0, "ms": 1.0, "s": 1000.0}[unit]
    return Condition(text=text.replace(" ", ""), metric=metric, limit=number * factor, relative=unit == "x")
