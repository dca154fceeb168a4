"""Display: HTML in notebooks, with every text of a user escaped, otherwise plain lines."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any, Protocol

from trainshed.client.job_format import cores, duration, evaluated, facts, number, percent, size
from trainshed.client.trial_format import COLUMNS, ended_count, search_facts, trial_row, watch_order
from trainshed.errors import CannotProceedError

if TYPE_CHECKING:
    import pandas

_COLOURS = {"SUCCEEDED": "#188038", "FAILED": "#d93025", "CANCELLED": "#80868b", "RUNNING": "#1a73e8"}
_PENDING_COLOUR = "#b06000"
_FONT = "font-family:system-ui,sans-serif;font-size:13px;line-height:1.5"
_TRACK = "background:rgba(127,127,127,.2);border-radius:3px;overflow:hidden"
_MAX_BARS = 100  #: of one prediction; a longer vector is shown as text
_MAX_ROWS = 20  #: predictions or trials that are drawn; the rest is counted


class _Handle(Protocol):
    def update(self, obj: Any) -> None: ...


def frame(rows: Sequence[Mapping[str, Any]]) -> pandas.DataFrame:
    """Return rows of trials as a pandas frame. Raises `CannotProceedError` without pandas."""
    try:
        import pandas
    except ImportError:
        raise CannotProceedError("Trials as a frame need pandas, which is not installed: pip install pandas") from None
    return pandas.DataFrame(rows)


def in_notebook() -> bool:
    """Return whether this runs in a kernel, whose front end can show HTML."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return getattr(shell, "kernel", None) is not None


class Rich:
    """HTML with a plain-text alternative. Notebooks request both."""

    def __init__(self, html: str, text: str) -> None:
        self._bundle = {"text/html": html, "text/plain": text}

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        return self._bundle


class Live:
    """An output that is replaced at each `show`: one changing output in a notebook, otherwise a line for each."""

    def __init__(self) -> None:
        self._handle: _Handle | None = None
        self._last_text = ""

    def show(self, html: str, text: str) -> None:
        """Show `html` in a notebook, otherwise `text` if it has changed."""
        if in_notebook():
            self._update(Rich(html, text))
        elif text != self._last_text:
            self._last_text = text
            sys.stdout.write(f"{text}\n")
            sys.stdout.flush()

    def _update(self, rich: Rich) -> None:
        if self._handle is None:
            from IPython.display import display

            self._handle = display(rich, display_id=True)
        else:
            self._handle.update(rich)


def job_panel(status: Mapping[str, Any], *, link: str = "") -> str:
    """Return the panel of a job: state, progress bar, metrics, replicas, error."""
    state = str(status["state"])
    name = escape(status["job"])
    title = f'<a href="{escape(link, quote=True)}" target="_blank">{name}</a>' if link else name
    elapsed = "" if status["elapsedSeconds"] is None else f" · {duration(status['elapsedSeconds'])}"
    parts = [f"<div><b>{title}</b> {_badge(state)}{elapsed}</div>"]
    progress = status["progress"]
    if progress is not None:
        if progress["fraction"] is not None:
            parts.append(_bar(float(progress["fraction"]), percent(progress["fraction"])))
        parts += [_line(text) for text in (", ".join(facts(progress)), evaluated(progress)) if text]
    if status.get("waiting"):
        parts.append(_line(status["waiting"]))
    if status.get("error"):
        parts.append(f'<div style="color:{_COLOURS["FAILED"]};white-space:pre-wrap">{escape(status["error"])}</div>')
    parts.append(_replicas(status["replicas"]))
    return f'<div class="trainshed-job" style="{_FONT};max-width:760px">{"".join(parts)}</div>'


def search_panel(search: Mapping[str, Any], *, link: str = "") -> str:
    """Return the panel of a tuning job: state, bar, the best value, trials that run and the best ones."""
    state, name = str(search["state"]), escape(search["job"])
    title = f'<a href="{escape(link, quote=True)}" target="_blank">{name}</a>' if link else name
    ended = ended_count(search) / max(search["maxTrials"], 1)
    parts = [f"<div><b>{title}</b> {_badge(state)}</div>", _bar(ended, percent(min(ended, 1.0)))]
    parts += [_line(text) for text in (search_facts(search), search.get("waiting")) if text]
    if search.get("error"):
        parts.append(f'<div style="color:{_COLOURS["FAILED"]};white-space:pre-wrap">{escape(search["error"])}</div>')
    ordered = watch_order(search)
    parts.append(table([trial_row(trial) for trial in ordered[:_MAX_ROWS]], COLUMNS))
    if len(ordered) > _MAX_ROWS:
        parts.append(_line(f"and {len(ordered) - _MAX_ROWS:,} more"))
    return f'<div class="trainshed-search" style="{_FONT};max-width:760px">{"".join(parts)}</div>'


def message(text: str) -> str:
    """Return a line of text as HTML."""
    return f'<div style="{_FONT}">{escape(text)}</div>'


def shares(values: Sequence[float]) -> list[float]:
    """Return the length of each bar, from 0 to 1: relative to 1, or to the greatest value if that is larger."""
    scale = max((value for value in values if value == value), default=1.0)
    return [max(0.0, value / max(scale, 1.0)) if value == value else 0.0 for value in values]


def bars(values: Sequence[float], labels: Sequence[str]) -> str:
    """Return a bar for each value, the greatest in bold. Negative values have no bar."""
    top = max((value for value in values if value == value), default=0.0)
    rows = []
    for label, value, share in zip(labels, values, shares(values), strict=True):
        best = value == top
        weight = "font-weight:bold" if best else ""
        colour = _COLOURS["RUNNING"] if best else "#9aa0a6"
        rows.append(
            f'<tr style="{weight}"><td style="text-align:right;padding:1px 8px">{escape(label)}</td>'
            f'<td style="width:260px;padding:1px 0"><div style="{_TRACK}"><div class="trainshed-bar" '
            f'style="width:{share * 100:.2f}%;height:13px;background:{colour}"></div></div></td>'
            f'<td style="text-align:left;padding:1px 8px">{escape(number(value))}</td></tr>'
        )
    return f'<table style="{_FONT};border-collapse:collapse">{"".join(rows)}</table>'


def table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> str:
    """Return a plain table of texts."""
    cell = '<t{0} style="text-align:left;padding:2px 12px 2px 0;vertical-align:top">{1}</t{0}>'
    head = "".join(cell.format("h", escape(name)) for name in columns)
    body = "".join(
        f"<tr>{''.join(cell.format('d', escape(_text(row.get(name)))) for name in columns)}</tr>" for row in rows
    )
    return f'<table style="{_FONT};border-collapse:collapse"><tr>{head}</tr>{body}</table>'


def predictions_panel(panels: Sequence[tuple[str, Sequence[float], Sequence[str]] | Any]) -> str:
    """Return predictions one below the other: bars for (title, values, labels), text for everything else."""
    parts = []
    for each in panels[:_MAX_ROWS]:
        if isinstance(each, tuple) and len(each[1]) <= _MAX_BARS:
            title, values, labels = each
            heading = f'<div style="margin-top:6px"><b>{escape(title)}</b></div>' if title else ""
            parts.append(heading + bars(values, labels))
        else:
            parts.append(f'<pre style="white-space:pre-wrap">{escape(_text(each))}</pre>')
    if len(panels) > _MAX_ROWS:
        parts.append(_line(f"and {len(panels) - _MAX_ROWS:,} more"))
    return f'<div class="trainshed-predictions" style="{_FONT}">{"".join(parts)}</div>'


def curves(series: Mapping[str, Sequence[float]]) -> str:
    """Return a small line chart for each series, with its last value."""
    rows = "".join(
        f'<tr><td style="padding-right:12px">{escape(name)}</td><td>{_spark(values)}</td>'
        f'<td style="padding-left:12px">{escape(number(values[-1]))}</td></tr>'
        for name, values in series.items()
        if values
    )
    return f'<table style="{_FONT}">{rows}</table>' if rows else message("Nothing was measured yet.")


def _spark(values: Sequence[float], *, width: int = 240, height: int = 36) -> str:
    finite = [(i, value) for i, value in enumerate(values) if value == value and abs(value) != float("inf")]
    if not finite:
        return ""
    low, high = min(value for _, value in finite), max(value for _, value in finite)
    span, last = (high - low) or 1.0, max(len(values) - 1, 1)
    points = " ".join(
        f"{i / last * width:.1f},{height - 2 - (value - low) / span * (height - 4):.1f}" for i, value in finite
    )
    return (
        f'<svg width="{width}" height="{height}" role="img"><polyline points="{points}" fill="none" '
        f'stroke="{_COLOURS["RUNNING"]}" stroke-width="1.5"/></svg>'
    )


def _replicas(replicas: Sequence[Mapping[str, Any]]) -> str:
    rows = [
        {
            "replica": each["name"],
            "state": each["status"] + (f", restarted {each['restarts']}×" if each["restarts"] else ""),
            "step": "-" if each["step"] is None else f"{each['step']:,}",
            "loss": number(each["loss"]),
            "CPU": cores(each["cpu"]),
            "memory": size(each["memoryBytes"]),
        }
        for each in replicas
    ]
    return table(rows, ("replica", "state", "step", "loss", "CPU", "memory")) if rows else ""


def _badge(state: str) -> str:
    colour = _COLOURS.get(state, _PENDING_COLOUR)
    style = f"background:{colour};color:#fff;border-radius:9px;padding:1px 8px;font-size:11px"
    return f'<span style="{style}">{escape(state)}</span>'


def _bar(fraction: float, text: str) -> str:
    width = f"{max(0.0, min(1.0, fraction)) * 100:.1f}%"
    fill = f"width:{width};height:10px;background:{_COLOURS['RUNNING']};transition:width .3s"
    return (
        f'<div style="display:flex;align-items:center;gap:8px"><div style="flex:1;{_TRACK}" role="progressbar">'
        f'<div style="{fill}"></div></div><span>{escape(text)}</span></div>'
    )


def _line(text: str) -> str:
    return f"<div>{escape(text)}</div>"


def _text(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else str(value)
