"""jobs watch of a tuning job: a bar for the search, and a row for each trial."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from trainshed.client.trial_format import COLUMNS, ended_count, search_facts, trial_row, watch_order

if TYPE_CHECKING:
    from rich.console import RenderableType

_FRAME_ROWS = 8  #: of the terminal, for what stands around the rows of trials
_MIN_ROWS = 5


def trials_line(search: dict[str, Any], now: datetime) -> str:
    """Format a line: 12:03:04  RUNNING  5 of 20 trials ended, 2 run, best accuracy 0.931 (trial 3)"""
    parts = [f"{now:%H:%M:%S}", search["state"], search_facts(search), search["waiting"]]
    return "  ".join(part for part in parts if part)


def trials_picture(search: dict[str, Any], height: int) -> RenderableType:
    """Return the view, at most as high as the terminal: trials that run, then the best ones."""
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.text import Text

    ordered = watch_order(search)
    shown = ordered[: max(_MIN_ROWS, height - _FRAME_ROWS)]
    parts: list[RenderableType] = [
        Text.assemble((search["job"], "bold"), f"  {search['state']}"),
        ProgressBar(total=search["maxTrials"], completed=ended_count(search)),
        Text(search_facts(search)),
    ]
    if search["waiting"]:
        parts.append(Text(search["waiting"]))
    parts += [Text(""), _table(shown)]
    if len(ordered) > len(shown):
        parts.append(Text(f"and {len(ordered) - len(shown):,} more"))
    return Group(*parts)


def _table(trials: list[Any]) -> RenderableType:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for column in COLUMNS:
        right = column in ("trial", "value", "step", "time")
        table.add_column(column.upper(), justify="right" if right else "left", no_wrap=column != "hyperparameters")
    for trial in trials:
        table.add_row(*(Text(cell) for cell in trial_row(trial).values()))
    return table
