"""A job as text: the lines of its log, and its progress for `describe`, `watch` and `stats`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from trainshed.domain.times import parse_rfc3339

_STALE_AFTER_S = 60.0  #: older progress is shown with its age


def log_line(severity: str, time: datetime, replica: str, message: str, trial: str = "") -> str:
    """Format a log line as gcloud does: severity, time, replica, trial and message, with tabs between them."""
    return f"{severity}\t{time:%Y-%m-%d %H:%M:%S %z}\t{replica}\t{trial}\t{message}"


def local_moment(entry: Mapping[str, Any]) -> datetime:
    """Return the time of a log entry by this machine's clock and zone."""
    return datetime.fromtimestamp(parse_rfc3339(entry["time"]) / 1e6).astimezone()


def entry_lines(entry: Mapping[str, Any], *, whole: bool = False) -> Iterator[str]:
    """Yield a log entry of the API as lines, one for each line of its message; as one if it is to stay whole."""
    for message in [entry["message"]] if whole else entry["message"].split("\n"):
        yield log_line(entry["severity"], local_moment(entry), entry["replica"], message, entry.get("trial", ""))


def sentences(progress: dict[str, Any] | None, *, state: str) -> list[str]:
    """Describe how far a job is and its last evaluation. Empty if there is no progress."""
    if progress is None:
        return []
    summary = ", ".join(facts(progress))
    if not summary:
        return []
    running = state == "RUNNING"
    if not running and (progress["step"] is not None or progress["epoch"] is not None):
        summary = f"it came to {summary}"
    lines = [f"{summary[:1].upper()}{summary[1:]}."]
    age_s = progress["ageSeconds"] or 0.0
    if running and age_s > _STALE_AFTER_S:
        lines[0] += f" The trainer told this {duration(age_s)} ago."
    if evaluation := evaluated(progress):
        lines.append(f"{evaluation}.")
    return lines


def facts(progress: dict[str, Any]) -> Iterator[str]:
    """Yield what is known: step 1,204 of 5,000 (24 %), loss 0.213, accuracy 0.94, 31 steps/s, about 2 min left."""
    if progress["step"] is not None:
        yield f"step {_of(progress['step'], progress['totalSteps'])}{percent(progress['fraction'], ' ({})')}"
    if progress["epoch"] is not None:
        yield f"epoch {_of(progress['epoch'], progress['totalEpochs'])}"
    yield from measures(progress)
    if progress["globalStepsPerSecond"] is not None:
        yield f"{rate(progress['globalStepsPerSecond'])} steps/s"
    if progress["leftSeconds"]:
        yield f"about {duration(progress['leftSeconds'])} left"


def evaluated(progress: dict[str, Any]) -> str:
    """Format the last evaluation: Evaluated at step 1,000: loss 0.04, accuracy 0.987. Empty if there is none."""
    if not (evaluation := progress["evaluation"]):
        return ""
    at = f" at step {evaluation['step']:,}" if evaluation["step"] is not None else ""
    return f"Evaluated{at}: {', '.join(measures(evaluation))}"


def measures(report: dict[str, Any]) -> Iterator[str]:
    for name in ("loss", "accuracy"):
        if report[name] is not None:
            yield f"{name} {number(report[name])}"


def _of(count: int, total: int | None) -> str:
    return f"{count:,} of {total:,}" if total else f"{count:,}"


def percent(fraction: float | None, form: str = "{}") -> str:
    """Format a fraction as whole per cent, rounded down: 100 % means done."""
    return "" if fraction is None else form.format(f"{int(fraction * 100)} %")


def number(value: float | str | None) -> str:
    """Format with four digits. A string such as NaN is kept."""
    return "-" if value is None else value if isinstance(value, str) else f"{value:.4g}"


def rate(value: float | str | None) -> str:
    if value is None or isinstance(value, str):
        return number(value)
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def cores(value: float | None) -> str:
    """Format CPU use as `top` does: 100 % is one core."""
    return "-" if value is None else f"{value * 100:.0f} %"


def size(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value / (1 << 30):.1f} GiB" if value >= 1 << 30 else f"{value / (1 << 20):.0f} MiB"


def duration(seconds: float) -> str:
    """Format a duration in its two largest units: 45 s, 2 min 10 s, 3 h 5 min, 2 d 4 h."""
    total = round(seconds)
    for unit, length, smaller, part in (("d", 86400, "h", 3600), ("h", 3600, "min", 60), ("min", 60, "s", 1)):
        if total >= length:
            remainder = total % length // part
            return f"{total // length} {unit}" + (f" {remainder} {smaller}" if remainder else "")
    return f"{total} s"
