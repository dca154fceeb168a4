"""The Pareto front: which of several results no other one beats."""

from __future__ import annotations

from collections.abc import Sequence

Scores = tuple[float, ...]  #: of one result, one for each metric; higher is better


def front(results: Sequence[Scores]) -> list[int]:
    """Return the indexes of the results that no other one dominates, the best of the first metric first.

    With one metric these are the best ones. Equal results all stay.
    """
    found: list[int] = []
    # what dominates a result comes before it in this order, so one comparison with the front is enough
    for index in sorted(range(len(results)), key=lambda each: (tuple(-score for score in results[each]), each)):
        if not any(_dominates(results[other], results[index]) for other in found):
            found.append(index)
    return found


def _dominates(first: Scores, second: Scores) -> bool:
    return first != second and all(one >= other for one, other in zip(first, second, strict=True))
