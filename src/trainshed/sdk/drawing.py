"""Drawings as strokes of a pen, rasterized the way MNIST's images were made. Plain Python."""

from __future__ import annotations

import math
from collections.abc import Sequence

SIDE = 28  #: of MNIST's images, in pixels
_BOX = 18.0  #: the longer side of a digit in them, without the pen's width
_PEN = 1.6  #: half the pen's width, in pixels of the image

Stroke = Sequence[Sequence[float]]

#: A three, for when nobody draws: one stroke, from 0 to 1 to the right and down.
THREE: tuple[Stroke, ...] = (
    (
        *((0.22, 0.22), (0.33, 0.14), (0.47, 0.11), (0.61, 0.14), (0.69, 0.23), (0.67, 0.34), (0.57, 0.42)),
        *(
            (0.44, 0.46),
            (0.58, 0.49),
            (0.70, 0.57),
            (0.74, 0.68),
            (0.68, 0.80),
            (0.54, 0.87),
            (0.38, 0.87),
            (0.23, 0.79),
        ),
    ),
)


def raster(strokes: Sequence[Stroke]) -> list[float]:
    """Rasterize a drawing as MNIST does: fit it into a box, with its centre of mass in the middle."""
    points = [(float(x), float(y)) for stroke in strokes for x, y in stroke]
    if not points:
        return [0.0] * (SIDE * SIDE)
    left, top = min(x for x, _ in points), min(y for _, y in points)
    width, height = max(x for x, _ in points) - left, max(y for _, y in points) - top
    scale = _BOX / max(width, height, 0.05)
    to_x, to_y = (SIDE - width * scale) / 2, (SIDE - height * scale) / 2
    scaled = [[((x - left) * scale + to_x, (y - top) * scale + to_y) for x, y in stroke] for stroke in strokes]
    lines = [line for stroke in scaled for line in zip(stroke, stroke[1:] or stroke, strict=False)]
    rows = [[_ink((column + 0.5, row + 0.5), lines) for column in range(SIDE)] for row in range(SIDE)]
    return _centre(rows)


def _ink(point: tuple[float, float], lines: Sequence[tuple[tuple[float, float], tuple[float, float]]]) -> float:
    """Return how much of the pen covers a point: 1 inside, falling to 0 over the last pixel."""
    distance = min(_distance(point, start, end) for start, end in lines)
    return max(0.0, min(1.0, _PEN + 0.5 - distance))


def _distance(point: tuple[float, float], start: tuple[float, float], end: tuple[float, float]) -> float:
    dx, dy = end[0] - start[0], end[1] - start[1]
    length = dx * dx + dy * dy
    along = 0.0 if length == 0 else ((point[0] - start[0]) * dx + (point[1] - start[1]) * dy) / length
    along = max(0.0, min(1.0, along))
    return math.hypot(point[0] - start[0] - along * dx, point[1] - start[1] - along * dy)


def _centre(rows: list[list[float]]) -> list[float]:
    mass = sum(map(sum, rows))
    down = round(SIDE / 2 - sum((at + 0.5) * sum(row) for at, row in enumerate(rows)) / mass)
    right = round(SIDE / 2 - sum((at + 0.5) * value for row in rows for at, value in enumerate(row)) / mass)

    def value(row: int, column: int) -> float:
        inside = 0 <= row - down < SIDE and 0 <= column - right < SIDE
        return round(rows[row - down][column - right], 4) if inside else 0.0

    return [value(row, column) for row in range(SIDE) for column in range(SIDE)]
