"""Training progress: the requested length, the reported steps, and the estimated remaining time."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_STEP_OPTIONS = frozenset(
    ("train_steps", "max_steps", "num_train_steps", "max_train_steps", "training_steps", "total_steps", "steps")
)
_EPOCH_OPTIONS = frozenset(("epochs", "num_epochs", "max_epochs", "train_epochs", "num_train_epochs"))
_STEPS_PER_EPOCH_OPTIONS = frozenset(("steps_per_epoch",))

MAX_RATE_REPORTS = 20  #: number of reports that a rate is computed from
#: no estimate after this long without a report, or after three usual intervals if that is longer
_SILENCE_GRACE_US = 60_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingTarget:
    """The requested length of a training. None: not specified, or ambiguous."""

    steps: int | None = None
    epochs: int | None = None


def target_from_args(args: Sequence[str]) -> TrainingTarget:
    """The length that a trainer's arguments request, such as `--train_steps=1000` or `--epochs 8`."""
    options = list(_options(args))
    epochs, per_epoch = _unique_value(options, _EPOCH_OPTIONS), _unique_value(options, _STEPS_PER_EPOCH_OPTIONS)
    steps = _unique_value(options, _STEP_OPTIONS)
    if steps is None and not any(name in _STEP_OPTIONS for name, _ in options) and epochs and per_epoch:
        steps = epochs * per_epoch
    return TrainingTarget(steps=steps, epochs=epochs)


def _options(args: Sequence[str]) -> Iterable[tuple[str, str]]:
    for arg, after in zip(args, [*args[1:], ""], strict=False):
        if arg.startswith("--"):
            name, equals, value = arg[2:].partition("=")
            yield name.lower().replace("-", "_"), value if equals else after


def _unique_value(options: Sequence[tuple[str, str]], names: frozenset[str]) -> int | None:
    values = {value for name, value in options if name in names}
    text = values.pop() if len(values) == 1 else ""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 13 and int(text) > 0 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressReport:
    """The content of one log line or event. None: not reported."""

    time_us: int
    step: int | None = None
    total_steps: int | None = None
    epoch: int | None = None
    total_epochs: int | None = None
    loss: float | None = None
    accuracy: float | None = None
    global_rate: float | None = None  #: steps per second, of all replicas together
    local_rate: float | None = None  #: steps per second, of the reporting replica

    @property
    def measured(self) -> bool:
        """Whether it carries a metric and not only a number, so that it is certainly about training."""
        return any(each is not None for each in (self.loss, self.accuracy, self.global_rate, self.local_rate))


class StepRate:
    """The most recent steps with their times."""

    def __init__(self) -> None:
        self._reports: deque[tuple[int, int]] = deque(maxlen=MAX_RATE_REPORTS)

    def add(self, time_us: int, step: int) -> None:
        while self._reports and self._reports[-1][1] > step:
            self._reports.pop()  # a restart lost these steps; they will be repeated
        if self._reports and self._reports[-1][1] == step:
            return
        self._reports.append((time_us, step))

    @property
    def rate(self) -> float | None:
        """Steps per second over the recent reports. Returns None if there are fewer than two."""
        if len(self._reports) < 2:
            return None
        (first_us, first), (last_us, last) = self._reports[0], self._reports[-1]
        return (last - first) * 1e6 / (last_us - first_us) if last_us > first_us else None

    def silent(self, now_us: int) -> bool:
        """Whether the last report is so old that the training may be stuck."""
        if not self._reports:
            return True
        last_us = self._reports[-1][0]
        usual_us = (last_us - self._reports[0][0]) / max(1, len(self._reports) - 1)
        return now_us - last_us > max(_SILENCE_GRACE_US, 3 * usual_us)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingProgress:
    """The progress of a training, from its reports."""

    report: ProgressReport
    evaluation: ProgressReport | None = None
    target: TrainingTarget = TrainingTarget()
    rate: float | None = None  #: steps per second, measured over the recent reports

    @property
    def total_steps(self) -> int | None:
        """The trainer's own total, or the requested one. Returns None if the training has passed it."""
        total = self.report.total_steps or self.target.steps
        return total if total and (self.report.step or 0) <= total else None

    @property
    def total_epochs(self) -> int | None:
        total = self.report.total_epochs or self.target.epochs
        return total if total and (self.report.epoch or 0) <= total else None

    @property
    def fraction(self) -> float | None:
        """Completed part, by steps. Returns None if the total is unknown."""
        if self.report.step is None or not self.total_steps:
            return None
        return self.report.step / self.total_steps

    @property
    def left_s(self) -> float | None:
        """Remaining seconds to the last step at the current rate. Work after the last step is not included."""
        rate = self.rate or self.report.global_rate
        if self.report.step is None or not self.total_steps or not rate or rate <= 0:
            return None
        return (self.total_steps - self.report.step) / rate
