"""How far a training has come: what was asked of it, what it told of itself, and what follows for the time left."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_STEPS = frozenset(
    ("train_steps", "max_steps", "num_train_steps", "max_train_steps", "training_steps", "total_steps", "steps")
)
_EPOCHS = frozenset(("epochs", "num_epochs", "max_epochs", "train_epochs", "num_train_epochs"))
_PER_EPOCH = frozenset(("steps_per_epoch",))

WINDOW = 20  #: reports that a rate is taken from
_SILENT_US = 60_000_000  #: after so long without a report, and three times what is usual, nothing is foretold


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingTarget:
    """How long a training was asked to be. None: nobody said so, or it was said in two ways."""

    steps: int | None = None
    epochs: int | None = None


def target_from_args(args: Sequence[str]) -> TrainingTarget:
    """The length that a trainer's own arguments ask for, such as `--train_steps=1000` or `--epochs 8`."""
    given = list(_options(args))
    epochs, per_epoch = _only(given, _EPOCHS), _only(given, _PER_EPOCH)
    steps = _only(given, _STEPS)
    if steps is None and not any(name in _STEPS for name, _ in given) and epochs and per_epoch:
        steps = epochs * per_epoch
    return TrainingTarget(steps=steps, epochs=epochs)


def _options(args: Sequence[str]) -> Iterable[tuple[str, str]]:
    for arg, after in zip(args, [*args[1:], ""], strict=False):
        if arg.startswith("--"):
            name, equals, value = arg[2:].partition("=")
            yield name.lower().replace("-", "_"), value if equals else after


def _only(given: Sequence[tuple[str, str]], names: frozenset[str]) -> int | None:
    values = {value for name, value in given if name in names}
    text = values.pop() if len(values) == 1 else ""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 13 and int(text) > 0 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressReport:
    """What one line or one event told. None: it did not say."""

    time_us: int
    step: int | None = None
    total_steps: int | None = None
    epoch: int | None = None
    total_epochs: int | None = None
    loss: float | None = None
    accuracy: float | None = None
    global_rate: float | None = None  #: steps a second, of all replicas together
    local_rate: float | None = None  #: of the one that tells

    @property
    def measured(self) -> bool:
        """Whether it says more than a number, so that it is surely about training."""
        return any(each is not None for each in (self.loss, self.accuracy, self.global_rate, self.local_rate))


class StepRate:
    """The last steps that were told, and when."""

    def __init__(self) -> None:
        self._told: deque[tuple[int, int]] = deque(maxlen=WINDOW)

    def add(self, time_us: int, step: int) -> None:
        while self._told and self._told[-1][1] > step:
            self._told.pop()  # those were lost in a restart, and will be made again
        if self._told and self._told[-1][1] == step:
            return
        self._told.append((time_us, step))

    @property
    def rate(self) -> float | None:
        """Steps a second over these; None before there are two."""
        if len(self._told) < 2:
            return None
        (first_us, first), (last_us, last) = self._told[0], self._told[-1]
        return (last - first) * 1e6 / (last_us - first_us) if last_us > first_us else None

    def silent(self, now_us: int) -> bool:
        """Whether the last report is so old that something may be wrong."""
        if not self._told:
            return True
        last_us = self._told[-1][0]
        usual_us = (last_us - self._told[0][0]) / max(1, len(self._told) - 1)
        return now_us - last_us > max(_SILENT_US, 3 * usual_us)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingProgress:
    """Where a training is, as far as anything told of it."""

    report: ProgressReport
    evaluation: ProgressReport | None = None
    target: TrainingTarget = TrainingTarget()
    rate: float | None = None  #: steps a second, measured over the last reports

    @property
    def total_steps(self) -> int | None:
        """What the trainer says itself counts before what it was asked for. One that was passed is none."""
        total = self.report.total_steps or self.target.steps
        return total if total and (self.report.step or 0) <= total else None

    @property
    def total_epochs(self) -> int | None:
        total = self.report.total_epochs or self.target.epochs
        return total if total and (self.report.epoch or 0) <= total else None

    @property
    def fraction(self) -> float | None:
        """By steps. None if nobody said how many there are to be."""
        if self.report.step is None or not self.total_steps:
            return None
        return self.report.step / self.total_steps

    @property
    def left_s(self) -> float | None:
        """Until the last step, at the present rate. Nothing is added for what comes after it."""
        rate = self.rate or self.report.global_rate
        if self.report.step is None or not self.total_steps or not rate or rate <= 0:
            return None
        return (self.total_steps - self.report.step) / rate
