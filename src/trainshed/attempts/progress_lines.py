"""Parses training progress from output lines: in the formats of the samples, of Estimators and of Keras."""

from __future__ import annotations

import re
from dataclasses import replace

from trainshed.domain.jobs.progress import ProgressReport
from trainshed.domain.uris import is_uri
from trainshed.node.supervisor.step_tracker import parse_step

LINE_MAX_CHARS = 4096  #: progress lines are short; the rest of a line is ignored

_NUMBER = r"([-+]?(?:\d{1,20}(?:\.\d{0,20})?(?:e[-+]?\d{1,3})?|nan|inf))(?![\w%])"
_ACCURACY = r"(?:(?:binary_|categorical_|sparse_categorical_)?accuracy|acc)"
_LOSS = re.compile(rf"(?<![\w/])(?:average_|mean_|total_|train_|training )?loss['\"]?\s*[:=]\s*{_NUMBER}", re.I)
_ACC = re.compile(rf"(?<![\w/])(?:train_|training )?{_ACCURACY}['\"]?\s*[:=]\s*{_NUMBER}", re.I)
_VAL_LOSS = re.compile(rf"(?<![\w/])val_loss['\"]?\s*[:=]\s*{_NUMBER}", re.I)
_VAL_ACC = re.compile(rf"(?<![\w/])val_{_ACCURACY}['\"]?\s*[:=]\s*{_NUMBER}", re.I)
_GLOBAL_RATE = re.compile(r"([\d.]{1,20}) (?:global )?steps?/s(?:ec)?\b|global_step/sec: ([\d.]{1,20})", re.I)
_LOCAL_RATE = re.compile(r"([\d.]{1,20}) local steps?/s(?:ec)?\b", re.I)
_STEP_TIME = re.compile(r"(?<![\w.])([\d.]{1,20})(s|ms|us)/step\b")
_TOTAL = re.compile(r"\bstep\s*[:=#]?\s*\d{1,12}\s?(?:/|of)\s?(\d{1,12})(?![\d.]*\w)", re.I)
_AFTER_STEPS = re.compile(r"\bafter (\d{1,12}) steps\b", re.I)
_EPOCH = re.compile(r"\bepoch[ :=#]{1,3}(\d{1,9})(?:\s?(?:/|of)\s?(\d{1,9}))?(?![\d.]*\w)", re.I)
_BATCH = re.compile(r"\s*(\d{1,12})/(\d{1,12}|Unknown)\s")
_EVALUATION = re.compile(r"\W*(?:eval|evaluat\w+|test|validation|final metrics|saving dict for)\b", re.I)
_EPOCH_END = re.compile(r"\W*end of epoch\b", re.I)
_ESCAPES = re.compile(r"\\x1b\[[\d;]*[A-Za-z]|(?:\\x08)+")  # logs escape terminal control sequences
_SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6}
_HINTS = ("tep", "poch", "oss", "TEP", "POCH", "OSS", "cc", "estoring")


class ProgressParser:
    """Parses the lines of one replica in order: Keras prints the epoch in one line and the batches in others."""

    def __init__(self) -> None:
        self._epoch: int | None = None
        self._epochs: int | None = None
        self._final_batch: int | None = None  #: batches of an epoch, once the last batch of all was seen

    def read(self, time_us: int, message: str) -> tuple[ProgressReport | None, ProgressReport | None]:
        """The progress of training and of an evaluation in this line."""
        if not any(hint in message for hint in _HINTS):
            return None, None
        message = _ESCAPES.sub(" ", message[:LINE_MAX_CHARS])
        report = ProgressReport(time_us=time_us, loss=_number(_LOSS, message), accuracy=_number(_ACC, message))
        if (batch := _BATCH.match(message)) is not None:
            return self._keras(report, message, batch)
        step = parse_step(message.encode(errors="replace"))
        if _EVALUATION.match(message):
            after = _AFTER_STEPS.search(message)
            report = replace(report, step=int(after[1]) if after else step)
            return None, report if report.measured else None
        self._track_epoch(message)
        gang, replica = _rates(message)
        report = self._with_epoch(replace(report, step=step, global_rate=gang, local_rate=replica), message)
        report = replace(report, total_steps=_integer(_TOTAL, message) or _total_by_epochs(report, message))
        useful = report.measured or report.step is not None or report.epoch is not None
        return report if useful else None, self._validation(report, message)

    def _track_epoch(self, message: str) -> None:
        """Record the beginning of an epoch."""
        if (match := _EPOCH.search(message)) is not None:
            self._epoch, self._epochs = int(match[1]), int(match[2]) if match[2] else None
            self._final_batch = None

    def _with_epoch(self, report: ProgressReport, message: str) -> ProgressReport:
        if _EPOCH.search(message) is None:
            return report
        return replace(report, epoch=self._epoch, total_epochs=self._epochs)

    def _keras(
        self, parsed: ProgressReport, message: str, batch: re.Match[str]
    ) -> tuple[ProgressReport | None, ProgressReport | None]:
        """A line of Keras' progress bar, or the one line of an epoch: 120/468 ... 8ms/step - loss: 0.3."""
        done, size = int(batch[1]), None if batch[2] == "Unknown" else int(batch[2])
        if self._final_batch is not None and not (done == size == self._final_batch):
            self._epoch = None  # Keras may print the last batch twice; any other bar is something else
            return None, parsed if parsed.measured and done == size else None
        if self._epoch is None or not ("/step" in message or "ETA" in message or parsed.measured):
            return None, parsed if parsed.measured and done == size and self._final_batch is not None else None
        step = None
        if size is not None or self._epoch == 1:
            step = (self._epoch - 1) * (size or 0) + done
        total = self._epochs * size if self._epochs and size else None
        if self._epoch == self._epochs and done == size:
            self._final_batch = size
        step_time = _STEP_TIME.search(message)
        seconds = _float(step_time[1]) * _SECONDS[step_time[2]] if step_time else 0.0
        rate = 1 / seconds if seconds > 0 else None
        report = replace(
            parsed,
            step=step,
            total_steps=total,
            epoch=self._epoch,
            total_epochs=self._epochs,
            global_rate=rate,
            local_rate=rate,
        )
        return report, self._validation(report, message)

    @staticmethod
    def _validation(report: ProgressReport, message: str) -> ProgressReport | None:
        loss, accuracy = _number(_VAL_LOSS, message), _number(_VAL_ACC, message)
        if loss is None and accuracy is None:
            return None
        return ProgressReport(
            time_us=report.time_us, step=report.step, epoch=report.epoch, loss=loss, accuracy=accuracy
        )


def _total_by_epochs(report: ProgressReport, message: str) -> int | None:
    """The steps of all epochs, once the step at the end of one is known."""
    if not (report.step and report.epoch and report.total_epochs) or not _EPOCH_END.match(message):
        return None
    return report.step * report.total_epochs // report.epoch if report.step % report.epoch == 0 else None


def _rates(message: str) -> tuple[float | None, float | None]:
    """Steps a second of the whole gang, and of the replica itself."""
    gang, replica = _GLOBAL_RATE.search(message), _LOCAL_RATE.search(message)
    return _float(next(filter(None, gang.groups()))) if gang else None, _float(replica[1]) if replica else None


def _integer(pattern: re.Pattern[str], message: str) -> int | None:
    match = pattern.search(message)
    return int(match[1]) if match else None


def _number(pattern: re.Pattern[str], message: str) -> float | None:
    match = pattern.search(message)
    return float(match[1]) if match else None


def _float(text: str) -> float:
    """Returns 0 for what only looks like a number, such as 1.2.3."""
    try:
        return float(text)
    except ValueError:
        return 0.0


def folder_in_line(message: str) -> str | None:
    """The folder of checkpoints or summaries that a line names: a gs:// URI or a path.
    Returns None if there is none."""
    for marker in _FILE_MARKERS:
        if (end := message.find(marker, 0, LINE_MAX_CHARS)) > 0:
            words = message[:end].split()
            word = words[-1].lstrip("\"'([{<") if words else ""
            if word.startswith("/") or is_uri(word):
                return word
    return None


_FILE_MARKERS = ("/model.ckpt", "/ckpt-", "/events.out.tfevents")
