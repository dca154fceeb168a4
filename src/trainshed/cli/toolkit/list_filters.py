"""--filter, --sort-by and --limit, applied to a list response, by gcloud's rules."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import click

from trainshed.cli.toolkit.output import field_of, text_of
from trainshed.errors import InvalidArgumentError

Item = Mapping[str, Any]


def select(
    items: Iterable[Item], *, filter: str | None = None, sort_by: str | None = None, limit: int | None = None
) -> list[Item]:
    """Return the matching items, sorted, at most `limit` of them. Raises a usage error if the filter is invalid."""
    test = _parse(filter) if filter and filter.strip() else None
    matches = (item for item in items if test is None or test(item))
    if sort_by is None:
        return [item for _, item in zip(range(limit), matches, strict=False)] if limit else list(matches)
    result = list(matches)
    for key in reversed([key.strip() for key in sort_by.split(",") if key.strip()]):
        name = key.lstrip("~")
        result.sort(key=lambda item, name=name: _sortable(field_of(item, name)), reverse=key.startswith("~"))  # type: ignore[misc]
    return result[:limit]


def _parse(text: str) -> Callable[[Item], bool]:
    # imported lazily: only filters pay for loading it
    from trainshed.domain.filters.gcloud import GCLOUD
    from trainshed.domain.filters.parser import parse

    try:
        return parse(text, GCLOUD).matches
    except InvalidArgumentError as exc:
        raise click.UsageError(f"{exc}\nThe filter is: {text}") from None


def _sortable(value: Any) -> tuple[int, Any]:
    """Return a sort key: None first, then numbers, then strings."""
    if value is None:
        return (0, "")
    try:
        return (1, float(value)) if not isinstance(value, bool) else (2, text_of(value))
    except (TypeError, ValueError):
        return (2, text_of(value))
