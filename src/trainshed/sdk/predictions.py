"""A model's predictions: a list with a display of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import trainshed.sdk.display as display
from trainshed.client.job_format import number

_VECTORS = ("probabilities", "scores", "predictions")  #: names of outputs that are drawn, in this order
_LABELS = ("classes", "class_ids", "class", "label")  #: outputs that name the predicted class
_BAR = 40


class Predictions(list[Any]):
    """The predictions, one for each instance: an ordinary list. Notebooks show probabilities as bars.

    `labels` name the elements of a vector, if given.
    """

    def __init__(self, predictions: Sequence[Any], *, labels: Sequence[str] | None = None) -> None:
        super().__init__(predictions)
        self.labels = None if labels is None else [str(label) for label in labels]

    def _panels(self) -> list[tuple[str, list[float], list[str]] | Any]:
        return [self._panel(each) for each in self]

    def _panel(self, prediction: Any) -> tuple[str, list[float], list[str]] | Any:
        """Return (title, values, labels) of a prediction with a vector of numbers, otherwise the prediction itself."""
        values = vector(prediction)
        if values is None:
            return prediction
        labels = (
            self.labels if self.labels and len(self.labels) == len(values) else [str(i) for i in range(len(values))]
        )
        return self._title(prediction, labels), values, labels

    def _title(self, prediction: Any, labels: Sequence[str]) -> str:
        classes = [prediction[name] for name in _LABELS if isinstance(prediction, Mapping) and name in prediction]
        value = classes[0] if classes else None
        while isinstance(value, list) and len(value) == 1:
            value = value[0]
        if isinstance(value, int) and self.labels and 0 <= value < len(labels):
            value = labels[value]
        return "" if value is None or isinstance(value, list | Mapping) else str(value)

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        return {"text/html": display.predictions_panel(self._panels()), "text/plain": self.text()}

    def text(self) -> str:
        """Return what a terminal shows: bars of characters for vectors, otherwise the prediction as text."""
        return "\n".join(_text(each) for each in self._panels())


def vector(prediction: Any) -> list[float] | None:
    """Return the numbers to draw: the prediction itself if it is a list of numbers, or one of its outputs."""
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


def _text(panel: tuple[str, list[float], list[str]] | Any) -> str:
    if not isinstance(panel, tuple):
        return str(panel)
    title, values, labels = panel
    width = max(len(label) for label in labels)
    lines = [title] if title else []
    for label, value, share in zip(labels, values, display.shares(values), strict=True):
        lines.append(f"{label:>{width}} {'█' * round(share * _BAR):<{_BAR}} {number(value)}")
    return "\n".join(lines)
