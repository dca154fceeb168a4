"""Batch invariance: whether rows get the same answers in batches as alone, and how far the answers are apart."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

TOLERANCE = 1e-5  #: of floats, relative to the largest magnitude of their output
AUTO, EXACT, OFF = "auto", "exact", "off"  #: values of the spec's `batching`
_BATCH_SIZES = (2, 3, 5, 8)  #: that are tried, besides the maximum
_REPEATED_ROWS = 8  #: that are run alone twice

Outputs = Mapping[str, NDArray[Any]]  #: by name, one row for each instance


@dataclass(frozen=True, slots=True, kw_only=True)
class Invariance:
    """Whether requests are batched, and what was measured."""

    batching: bool
    difference: float | None = None  #: the greatest of floats, relative to its output; None if it was not measured
    rows: int = 0  #: that were compared
    message: str  #: the result as a sentence

    def as_json(self) -> dict[str, Any]:
        return {"difference": self.difference, "rows": self.rows, "message": self.message}


@dataclass(slots=True)
class OutputComparison:
    """One output of the same rows, computed in two ways. Sums up all pairs of rows that are added."""

    difference: float = 0.0  #: the greatest between two floats
    magnitude: float = 0.0  #: the greatest finite one of the expected floats
    unequal: str = ""  #: what differs and is no float, as the end of a sentence
    bits_differ: bool = False
    _floats: list[tuple[NDArray[Any], NDArray[Any]]] = field(default_factory=list)

    @property
    def relative(self) -> float:
        """The greatest difference, relative to the largest magnitude."""
        return self.difference / self.magnitude if self.magnitude else math.inf if self.difference else 0.0

    def add(self, expected: NDArray[Any], actual: NDArray[Any]) -> None:
        if expected.shape != actual.shape or expected.dtype != actual.dtype:
            self.unequal = (
                f"is {actual.dtype} of shape {list(actual.shape)}, and not {expected.dtype} of {list(expected.shape)}"
            )
            return
        if expected.dtype.kind in "OUSbiu":
            if expected.tolist() != actual.tolist():
                self.unequal = "has other integers or strings"
            return
        self.bits_differ = self.bits_differ or expected.tobytes() != actual.tobytes()
        one, other = expected.astype(np.float64), actual.astype(np.float64)
        same = (one == other) | (np.isnan(one) & np.isnan(other))
        with np.errstate(invalid="ignore"):  # infinities of one sign
            distance = np.where(same, 0.0, np.abs(one - other))
        greatest = float(np.max(distance, initial=0.0))
        self.difference = max(self.difference, math.inf if math.isnan(greatest) else greatest)
        self.magnitude = max(self.magnitude, float(np.max(np.abs(one), initial=0.0, where=np.isfinite(one))))
        self._floats.append((one, other))

    def changed_best(self, margin: float) -> int:
        """Number of arg-maxima along the last axis that differ where the two best are further apart than `margin`."""
        return sum(_changed_best(one, other, margin)[0] for one, other in self._floats)

    def agreement(self) -> float | None:
        """The share of equal arg-maxima along the last axis. Returns None if there are no columns to compare."""
        pairs = [_changed_best(one, other, -1.0) for one, other in self._floats]
        total = sum(count for _, count in pairs)
        return 1 - sum(changed for changed, _ in pairs) / total if total else None


class OutputsComparison:
    """All outputs of the same rows, computed in two ways."""

    def __init__(self) -> None:
        self.outputs: dict[str, OutputComparison] = {}
        self.rows = 0

    def add(self, expected: Outputs, actual: Outputs) -> None:
        """Add one row or several."""
        for name in expected.keys() | actual.keys():
            output = self.outputs.setdefault(name, OutputComparison())
            if name in expected and name in actual:
                output.add(np.asarray(expected[name]), np.asarray(actual[name]))
            else:
                output.unequal = "is not always there"
        self.rows += 1

    @property
    def difference(self) -> float | None:
        """The greatest relative difference. Returns None if it is not finite."""
        greatest = max((output.relative for output in self.outputs.values()), default=0.0)
        return greatest if math.isfinite(greatest) else None

    def problem(self, *, exact: bool) -> str:
        """What is not the same, as the end of a sentence. Empty if everything is."""
        for name, output in sorted(self.outputs.items()):
            if output.unequal:
                return f"output {name} {output.unequal}"
            if exact and output.bits_differ:
                return f"the last bits of output {name} differ, and the version asks for exact answers"
            if not exact and output.relative > TOLERANCE:
                return (
                    f"output {name} differs by {output.relative:.1e} of its largest magnitude, "
                    f"and {TOLERANCE:.0e} is allowed"
                )
            if not exact and (changed := output.changed_best(2 * TOLERANCE * output.magnitude)):
                return f"the largest value of output {name} is another one in {changed} rows"
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class InvarianceCheck:
    """Runs rows alone, again, and in batches."""

    run: Callable[[Sequence[Any]], Outputs]  #: runs requests of one row each in one batch
    exact: bool
    max_batch: int

    def measure(self, rows: Sequence[Any], alone: Sequence[Outputs]) -> Invariance:
        """Compare rows in batches with their outputs alone."""
        repeated = OutputsComparison()
        for row, outputs in list(zip(rows, alone, strict=True))[:_REPEATED_ROWS]:
            repeated.add(outputs, self.run([row]))
        if problem := repeated.problem(exact=self.exact):
            message = f"the model answers the same request differently twice: {problem}"
            return not_batched(message, difference=repeated.difference, rows=repeated.rows)
        batched = OutputsComparison()
        try:
            for start, stop in batch_bounds(len(rows), self.max_batch):
                outputs = self.run(rows[start:stop])
                for at in range(start, stop):
                    part = {name: array[at - start : at - start + 1] for name, array in outputs.items()}
                    batched.add(alone[at], part)
        except Exception as exc:  # noqa: BLE001 - the model's own code; alone it succeeded
            return not_batched(f"a batch failed: {exc or type(exc).__name__}"[:1000])
        if problem := batched.problem(exact=self.exact):
            return not_batched(problem, difference=batched.difference, rows=batched.rows)
        within = (
            f"within {batched.difference:.1e} of the largest magnitude" if batched.difference else "to the last bit"
        )
        return Invariance(
            batching=True,
            difference=batched.difference,
            rows=batched.rows,
            message=f"Requests are batched: {batched.rows} rows get the same answers in batches as alone, {within}.",
        )


def not_batched(reason: str, *, difference: float | None = None, rows: int = 0) -> Invariance:
    message = f"Requests are not batched: {reason.removesuffix('.')}."
    return Invariance(batching=False, difference=difference, rows=rows, message=message)


def batch_bounds(rows: int, max_batch: int) -> Iterator[tuple[int, int]]:
    """First and last row of each batch: small ones of several sizes, then the largest."""
    start = 0
    sizes = [size for size in _BATCH_SIZES if size < max_batch]
    while start < rows:
        stop = min(rows, start + (sizes.pop(0) if sizes else max_batch))
        yield start, stop
        start = stop


def _changed_best(one: NDArray[Any], other: NDArray[Any], margin: float) -> tuple[int, int]:
    """Number of different arg-maxima along the last axis, and of those compared."""
    if one.ndim < 2 or one.shape[-1] < 2 or not one.size:
        return 0, 0
    two_best = np.partition(one, -2, axis=-1)[..., -2:]
    clear = two_best[..., 1] - two_best[..., 0] > margin
    changed = one.argmax(axis=-1) != other.argmax(axis=-1)
    return int(np.count_nonzero(changed & clear)), int(np.count_nonzero(clear))
