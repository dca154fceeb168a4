"""What a model answered: a list that also knows how to look."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import trainshed.sdk.display as display
from trainshed.client.job_format import number

_VECTORS = ("probabilities", "scores", "predictions")  #: names of outputs that are drawn, in this order
_LABELS = ("classes", "class_ids", "class", "label")  #: outputs that say which one it is
_BAR = 40


class Predictions(list[Any]):
    """The predictions, one for each instance: a list like any other. Notebooks show probabilities as bars.

    `labels` are the words for the places of a vector, if there are any.
    """

    def __init__(self, predictions: Sequence[Any], *, labels: Sequence[str] | None = None) -> None:
        super().__init__(predictions)
        self.labels = None if labels is None else [str(label) for label in labels]

    def _drawn(self) -> list[tuple[str, list[float], list[str]] | Any]:
        return [self._bars_of(each) for each in self]

    def _bars_of(self, prediction: Any) -> tuple[str, list[float], list[str]] | Any:
        """(title, values, labels) of a prediction that holds a vector of numbers, else the prediction itself."""
        values = vector(prediction)
        if values is None:
            return prediction
        labels = (
            self.labels if self.labels and len(self.labels) == len(values) else [str(i) for i in range(len(values))]
        )
        return self._title(prediction, labels), values, labels

    def _title(self, prediction: Any, labels: Sequence[str]) -> str:
        said = [prediction[name] for name in _LABELS if isinstance(prediction, Mapping) and name in prediction]
        value = said[0] if said else None
        while isinstance(value, list) and len(value) == 1:
            value = value[0]
        if isinstance(value, int) and self.labels and 0 <= value < len(labels):
            value = labels[value]
        return "" if value is None or isinstance(value, list | Mapping) else str(value)

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        return {"text/html": display.predictions_panel(self._drawn()), "text/plain": self.text()}

    def text(self) -> str:
        """What a terminal shows: bars of characters for vectors, the prediction as it is for everything else."""
        return "\n".join(_text(each) for each in self._drawn())


def vector(prediction: Any) -> list[float] | None:
    """The numbers to draw of a prediction: itself if it is a list of them, or the likeliest of its outputs."""
    if _is_vector(prediction):
        return [float(value) for value in prediction]
    if not isinstance(prediction, Mapping):
        return None
    names = [*(name for name in _VECTORS if name in prediction), *prediction]
    for name in names:
        if _is_vector(prediction[name]) and len(prediction[name]) > 1:
            return [float(value) for value in prediction[name]]
    return None


def _is_vector(value: Any) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(each, int | float) and not isinstance(each, bool) for each in value)
    )


def _text(drawn: tuple[str, list[float], list[str]] | Any) -> str:
    if not isinstance(drawn, tuple):
        return str(drawn)
    title, values, labels = drawn
    wide = max(len(label) for label in labels)
    lines = [title] if title else []
    for label, value, share in zip(labels, values, display.shares(values), strict=True):
        lines.append(f"{label:>{wide}} {'█' * round(share * _BAR):<{_BAR}} {number(value)}")
    return "\n".join(lines)
