"""What the server tells of a job, as values: lines of its log, how far it is, what it measured, what it exported."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Self

import trainshed.sdk.display as display
from trainshed.client.job_format import evaluated, facts
from trainshed.domain.times import parse_rfc3339
from trainshed.errors import CannotProceedError

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    """One entry of a job's log. `str()` of it is the line that the command line shows."""

    time: datetime
    severity: str  #: such as INFO
    replica: str  #: such as master-replica-0; `service` for what Trainshed itself says
    message: str

    @classmethod
    def read(cls, entry: Mapping[str, Any]) -> Self:
        """Of what the server answered."""
        moment = datetime.fromtimestamp(parse_rfc3339(entry["time"]) / 1e6).astimezone()
        return cls(time=moment, severity=entry["severity"], replica=entry["replica"], message=entry["message"])

    def __str__(self) -> str:
        return f"{self.severity}\t{self.time:%Y-%m-%d %H:%M:%S %z}\t{self.replica}\t\t{self.message}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a job has come. What nothing told of is None. `str()` of it is a sentence."""

    step: int | None
    total_steps: int | None
    epoch: int | None
    total_epochs: int | None
    fraction: float | None  #: from 0 to 1
    loss: float | None
    accuracy: float | None
    steps_per_s: float | None  #: of all replicas together
    left_s: float | None  #: about so many seconds to go
    raw: Mapping[str, Any]  #: as the server answered it

    @classmethod
    def read(cls, raw: Mapping[str, Any]) -> Self:
        """Of what the server answered."""
        return cls(
            step=raw["step"],
            total_steps=raw["total_steps"],
            epoch=raw["epoch"],
            total_epochs=raw["total_epochs"],
            fraction=raw["fraction"],
            loss=_number(raw["loss"]),
            accuracy=_number(raw["accuracy"]),
            steps_per_s=_number(raw["global_steps_per_s"]),
            left_s=_number(raw["left_s"]),
            raw=raw,
        )

    def __str__(self) -> str:
        told = [", ".join(facts(dict(self.raw))), evaluated(dict(self.raw))]
        return ". ".join(part for part in told if part)


@dataclass(frozen=True, slots=True)
class Point:
    """One measurement: at which step (or epoch), when, and what."""

    step: int | None
    time: datetime
    value: float


class Metrics(Mapping[str, Sequence[Point]]):
    """What a training measured: by name, such as `loss`, `accuracy`, `evaluation/accuracy` and `steps_per_s`."""

    def __init__(self, series: Mapping[str, Sequence[Point]]) -> None:
        self._series = dict(series)

    @classmethod
    def read(cls, stats: Mapping[str, Any]) -> Self:
        """Of what the server answered."""
        found: dict[str, list[Point]] = {}
        for metric in stats["metrics"]:
            name = f"evaluation/{metric['name']}" if metric["evaluation"] else metric["name"]
            rows = zip(metric["step"], metric["time"], metric["value"], strict=True)
            found[name] = [Point(step, _moment(time), float(value)) for step, time, value in rows if value is not None]
        return cls(found)

    def frame(self) -> pandas.DataFrame:
        """All of it as a pandas frame with the columns metric, step, time and value.

        `CannotProceedError` without pandas.
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
    """A folder that a job wrote and that a version can be made from."""

    uri: str
    time: str  #: when it was written, RFC 3339
    framework: str
    runtime: str


def _number(value: Any) -> float | None:
    """JSON has no NaN: the server writes it as a word."""
    return None if value is None else float(value)


def _moment(text: str) -> datetime:
    return datetime.fromtimestamp(parse_rfc3339(text) / 1e6).astimezone()
