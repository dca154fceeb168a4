"""--update-labels, --remove-labels and --clear-labels, as on every update command."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from trainshed.cli.toolkit.options import KeyValues, Names

F = TypeVar("F", bound=Callable[..., Any])


def label_options(command: F) -> F:
    for option in (
        click.option("--clear-labels", is_flag=True, help="Take all labels away first."),
        click.option("--remove-labels", type=Names(), help="Labels to take away."),
        click.option("--update-labels", type=KeyValues(), help="Labels to set; others stay."),
    ):
        command = option(command)
    return command


def asks_for_labels(change: Mapping[str, Any]) -> bool:
    """Whether the options change anything. They are refused if they contradict each other."""
    if change["clear_labels"] and change["remove_labels"]:
        raise click.UsageError("--clear-labels and --remove-labels can't be given together.")
    return bool(change["update_labels"] or change["remove_labels"] or change["clear_labels"])


def changed(before: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a PATCH body for the labels of `before`. With its etag, so that no one else's change is lost."""
    removals = change["remove_labels"] or ()
    kept = {} if change["clear_labels"] else {k: v for k, v in before.get("labels", {}).items() if k not in removals}
    body: dict[str, Any] = {"labels": kept | (change["update_labels"] or {})}
    return body | ({"etag": before["etag"]} if before.get("etag") else {})
