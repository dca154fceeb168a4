"""How predictions are shown: the table that gcloud's users and notebooks know."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from trainshed.cli.toolkit.output import json_text, show_one, table_text


def show_predictions(answer: Any, *, format: str | None) -> None:
    """Print an answer: as `format` says, else in the form that suits it."""
    if format is not None and isinstance(answer, Mapping):
        show_one(answer, format=format)
    else:
        click.echo(predictions_text(answer))


def predictions_text(answer: Any) -> str:
    """A table if predictions have names, a list if they don't, and JSON for what holds no list of predictions."""
    predictions = answer.get("predictions") if isinstance(answer, Mapping) else None
    if not isinstance(predictions, list):
        return json_text(answer)
    if not predictions:
        return "predictions: []"
    if isinstance(predictions[0], Mapping):
        return _table(predictions[0], predictions)
    return str(predictions)


def _table(first: Mapping[str, Any], predictions: Sequence[Any]) -> str:
    """A column for each name in the first prediction, sorted. What another prediction has besides is not shown."""
    names = sorted(first)
    rows = [[_cell(each, name) for name in names] for each in predictions]
    return table_text(rows, [name.upper() for name in names])


def _cell(prediction: Any, name: str) -> str:
    value = prediction.get(name) if isinstance(prediction, Mapping) else None
    return "" if value is None else str(value)
