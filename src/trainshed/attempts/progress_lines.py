"""What a line of a trainer tells of its progress: in the words of the samples, of Estimators and of Keras."""

from __future__ import annotations

import re
from dataclasses import replace

from trainshed.domain.jobs.progress import ProgressReport
from trainshed.node.supervisor.step_tracker import parse_step

MAX_TEXT = 4096  #: a progress line is short; what is beyond is not looked at

_NUMBER = r"([-+]?(?:\d{1,20}(?:\.\d{0,20})?(?:e[-+]?\d{1,3})?|nan|inf))(?![\w%])"
_ACCURACY = r"(?:(?:binary_|categorical_|sparse_categorical_)?accuracy|acc)"
_LOSS = re.compile(rf"(?<![\w/])(?:average_|mean_|total_|train_|training )?loss['\"]?\s*[:=]\s*{_NUMBER}", re.I)
_ACC = re.compile(rf"(?<![\w/])(?:train_|training )?{_ACCURACY}['\"]?\s*[:=]\s*{_NUMBER}", re.I)
_VAL_LOSS = re.compile(rf"(?<![\w/])val_loss['\"]?\s*[:=]\s*{_NUMBER}", re.I)
_VAL_ACC = re.compile(rf"(?<![\w/])val_{_ACCURACY}['\"]?\s*[:=]\s*{_NUMBER}", re.I)
_GLOBAL = re.compile(r"([\d.]{1,20}) (?:global )?steps?/s(?:ec)?\b|global_step/sec: ([\d.]{1,20})", re.I)
_LOCAL = re.compile(r"([\d.]{1,20}) local steps?/s(?:ec)?\b", re.I)
_STEP_TIME = re.compile(r"(?<![\w.])([\d.]{1,20})(s|ms|us)/step\b")
_TOTAL = re.compile(r"\bstep\s*[:=#]?\s*\d{1,12}\s?(?:/|of)\s?(\d{1,12})(?![\d.]*\w)", re.I)
_AFTER = re.compile(r"\bafter (\d{1,12}) steps\b", re.I)
_EPOCH = re.compile(r"\bepoch[ :=#]{1,3}(\d{1,9})(?:\s?(?:/|of)\s?(\d{1,9}))?(?![\d.]*\w)", re.I)
_BATCH = re.compile(r"\s*(\d{1,12})/(\d{1,12}|Unknown)\s")
_EVALUATION = re.compile(r"\W*(?:eval|evaluat\w+|test|validation|final metrics|saving dict for)\b", re.I)
_EPOCH_END = re.compile(r"\W*end of epoch\b", re.I)
_ESCAPES = re.compile(r"\\x1b\[[\d;]*[A-Za-z]|(?:\\x08)+")  # logs spell out what would steer a terminal
_SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6}
_HINTS = ("tep", "poch", "oss", "TEP", "POCH", "OSS", "cc", "estoring")


class ProgressParser:
    """Reads the lines of one replica, in their order: Keras tells the epoch in one line and the batch in others."""

    def __init__(self) -> None:
        self._epoch: int | None = None
        self._epochs: int | None = None
        self._fitted: int | None = None  #: the batches of an epoch, once the last of all was seen

    def read(self, time_us: int, text: str) -> tuple[ProgressReport | None, ProgressReport | None]:
        """What the line tells of training, and of an evaluation."""
        if not any(hint in text for hint in _HINTS):
            return None, None
        text = _ESCAPES.sub(" ", text[:MAX_TEXT])
        told = ProgressReport(time_us=time_us, loss=_number(_LOSS, text), accuracy=_number(_ACC, text))
        if (batch := _BATCH.match(text)) is not None:
            return self._keras(told, text, batch)
        step = parse_step(text.encode(errors="replace"))
        if _EVALUATION.match(text):
            after = _AFTER.search(text)
            told = replace(told, step=int(after[1]) if after else step)
            return None, told if told.measured else None
        self._follow(text)
        pace, own = _rates(text)
        told = self._with_epoch(replace(told, step=step, global_rate=pace, local_rate=own), text)
        told = replace(told, total_steps=_whole(_TOTAL, text) or _by_epochs(told, text))
        useful = told.measured or told.step is not None or told.epoch is not None
        return told if useful else None, self._validation(told, text)

    def _follow(self, text: str) -> None:
        """Note the beginning of an epoch."""
        if (found := _EPOCH.search(text)) is not None:
            self._epoch, self._epochs = int(found[1]), int(found[2]) if found[2] else None
            self._fitted = None

    def _with_epoch(self, told: ProgressReport, text: str) -> ProgressReport:
        if _EPOCH.search(text) is None:
            return told
        return replace(told, epoch=self._epoch, total_epochs=self._epochs)

    def _keras(
        self, told: ProgressReport, text: str, batch: re.Match[str]
    ) -> tuple[ProgressReport | None, ProgressReport | None]:
        """A line of Keras' progress bar, or the one line of an epoch: 120/468 ... 8ms/step - loss: 0.3."""
        done, size = int(batch[1]), None if batch[2] == "Unknown" else int(batch[2])
        if self._fitted is not None and not (done == size == self._fitted):
            self._epoch = None  # Keras may tell of the last batch twice; any other bar is of something else
            return None, told if told.measured and done == size else None
        if self._epoch is None or not ("/step" in text or "ETA" in text or told.measured):
            return None, told if told.measured and done == size and self._fitted is not None else None
        step = None
        if size is not None or self._epoch == 1:
            step = (self._epoch - 1) * (size or 0) + done
        total = self._epochs * size if self._epochs and size else None
        if self._epoch == self._epochs and done == size:
            self._fitted = size
        took = _STEP_TIME.search(text)
        seconds = _float(took[1]) * _SECONDS[took[2]] if took else 0.0
        rate = 1 / seconds if seconds > 0 else None
        report = replace(
            told,
            step=step,
            total_steps=total,
            epoch=self._epoch,
            total_epochs=self._epochs,
            global_rate=rate,
            local_rate=rate,
        )
        return report, self._validation(report, text)

    @staticmethod
    def _validation(told: ProgressReport, text: str) -> ProgressReport | None:
        loss, accuracy = _number(_VAL_LOSS, text), _number(_VAL_ACC, text)
        if loss is None and accuracy is None:
            return None
        return ProgressReport(time_us=told.time_us, step=told.step, epoch=told.epoch, loss=loss, accuracy=accuracy)


def _by_epochs(told: ProgressReport, text: str) -> int | None:
    """The steps of all epochs, once the step at the end of one of them is known."""
    if not (told.step and told.epoch and told.total_epochs) or not _EPOCH_END.match(text):
        return None
    return told.step * told.total_epochs // told.epoch if told.step % told.epoch == 0 else None


def _rates(text: str) -> tuple[float | None, float | None]:
    """Steps a second of all, and of the replica itself."""
    pace, own = _GLOBAL.search(text), _LOCAL.search(text)
    return _float(next(filter(None, pace.groups()))) if pace else None, _float(own[1]) if own else None


def _whole(pattern: re.Pattern[str], text: str) -> int | None:
    found = pattern.search(text)
    return int(found[1]) if found else None


def _number(pattern: re.Pattern[str], text: str) -> float | None:
    found = pattern.search(text)
    return float(found[1]) if found else None


def _float(text: str) -> float:
    """0 for what only looks like a number, such as 1.2.3."""
    try:
        return float(text)
    except ValueError:
        return 0.0


def folder_in_line(text: str) -> str | None:
    """The folder that a line names as that of checkpoints or summaries: a gs:// address or a path."""
    for mark in _FILES:
        if (end := text.find(mark, 0, MAX_TEXT)) > 0:
            words = text[:end].split()
            word = words[-1].lstrip("\"'([{<") if words else ""
            if word.startswith(("/", "gs://")):
                return word
    return None


_FILES = ("/model.ckpt", "/ckpt-", "/events.out.tfevents")
