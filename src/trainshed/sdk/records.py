"""What the server reports about a job, as values: log lines, progress, metrics, exports."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Self

import trainshed.sdk.display as display
from trainshed.client.job_format import evaluated, facts, local_moment, log_line
from trainshed.domain.times import parse_rfc3339
from trainshed.errors import CannotProceedError

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    """One entry of a job's log. `str()` of it is the line that the command line shows."""

    time: datetime
    severity: str  #: such as INFO
    replica: str  #: such as master-replica-0; `service` for Trainshed's own messages
    message: str

    @classmethod
    def read(cls, entry: Mapping[str, Any]) -> Self:
        """Read it from the server's JSON."""
        return cls(
            time=local_moment(entry), severity=entry["severity"], replica=entry["replica"], message=entry["message"]
        )

    def __str__(self) -> str:
        return log_line(self.severity, self.time, self.replica, self.message)


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a job is. Unknown fields are None. `str()` of it is a sentence."""

    step: int | None
    total_steps: int | None
    epoch: int | None
    total_epochs: int | None
    fraction: float | None  #: from 0 to 1
    loss: float | None
    accuracy: float | None
    steps_per_s: float | None  #: of all replicas together
    left_s: float | None  #: about this many seconds remain
    raw: Mapping[str, Any]  #: as the server sent it

    @classmethod
    def read(cls, raw: Mapping[str, Any]) -> Self:
        """Read it from the server's JSON."""
        return cls(
            step=raw["step"],
            total_steps=raw["totalSteps"],
            epoch=raw["epoch"],
            total_epochs=raw["totalEpochs"],
            fraction=raw["fraction"],
            loss=_number(raw["loss"]),
            accuracy=_number(raw["accuracy"]),
            steps_per_s=_number(raw["globalStepsPerSecond"]),
            left_s=_number(raw["leftSeconds"]),
            raw=raw,
        )

    def __str__(self) -> str:
        parts = [", ".join(facts(dict(self.raw))), evaluated(dict(self.raw))]
        return ". ".join(part for part in parts if part)


@dataclass(frozen=True, slots=True)
class Point:
    """One measurement: its step (or epoch), time and value."""

    step: int | None
    time: datetime
    value: float


class Metrics(Mapping[str, Sequence[Point]]):
    """The metrics of a training, by name, such as `loss`, `accuracy`, `evaluation/accuracy` and `steps_per_s`."""

    def __init__(self, series: Mapping[str, Sequence[Point]]) -> None:
        self._series = dict(series)

    @classmethod
    def read(cls, stats: Mapping[str, Any]) -> Self:
        """Read it from the server's JSON."""
        series: dict[str, list[Point]] = {}
        for metric in stats["metrics"]:
            name = f"evaluation/{metric['name']}" if metric["evaluation"] else metric["name"]
            rows = zip(metric["step"], metric["time"], metric["value"], strict=True)
            series[name] = [Point(step, _moment(time), float(value)) for step, time, value in rows if value is not None]
        return cls(series)

    def frame(self) -> pandas.DataFrame:
        """Return all metrics as a pandas frame with the columns metric, step, time and value.

        Raises `CannotProceedError` without pandas.
        """
        try:
            import pandas
        except ImportError as exc:
            raise CannotProceedError(
                "Metrics as a frame need pandas, which is not installed: pip install pandas"
            ) from exc
        rows = [(name, each.step, each.time, each.value) for name, points in self.items() for each in points]
        return pandas.DataFrame(rows, columns=["metric", "step", "time", "value"])

    def __getitem__(self, name: str) -> Sequence[Point]:
        return self._series[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._series)

    def __len__(self) -> int:
        return len(self._series)

    def __repr__(self) -> str:
        lasts = (
            f"{name}: {len(points)} points, last {points[-1].value:.4g}" for name, points in self.items() if points
        )
        return f"<Metrics {'; '.join(lasts) or 'none yet'}>"

    def _repr_html_(self) -> str:
        return display.curves({name: [each.value for each in points] for name, points in self.items()})


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """A folder that a job wrote and from which a version can be created."""

    uri: str
    time: str  #: when it was written, RFC 3339
    framework: str
    runtime: str


def _number(value: Any) -> float | None:
    """Convert to a float. JSON has no NaN: the server sends it as a string."""
    return None if value is None else float(value)


def _moment(text: str) -> datetime:
    return datetime.fromtimestamp(parse_rfc3339(text) / 1e6).astimezone()
