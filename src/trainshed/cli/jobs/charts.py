"""Small charts of text: rows of blocks, and lines of braille dots."""

from __future__ import annotations

from collections.abc import Sequence

_BLOCKS = "▁▂▃▄▅▆▇█"
#: the bits of a braille character's dots: [column][row from the top]
_DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
_BLANK = 0x2800


def spread(
    times: Sequence[float], values: Sequence[float], *, span: tuple[float, float], width: int
) -> list[float | None]:
    """The largest value in each of `width` equal parts of the span; None where there is none."""
    start, end = span
    found: list[float | None] = [None] * width
    for time, value in zip(times, values, strict=True):
        place = min(width - 1, max(0, int((time - start) / max(end - start, 1e-9) * width)))
        before = found[place]
        found[place] = value if before is None else max(before, value)
    return found


def bridged(values: Sequence[float | None], *, longest: int) -> list[float | None]:
    """Gaps up to this length take the value before them: fewer samples than places leave holes that mean nothing."""
    found: list[float | None] = []
    held, age = None, 0
    for value in values:
        held, age = (value, 0) if value is not None else (held, age + 1)
        found.append(held if age <= longest else None)
    return found


def blocks(values: Sequence[float | None], *, top: float) -> str:
    """A row of blocks from 0 up to `top`; a blank where there is no value."""
    steps = len(_BLOCKS) - 1
    return "".join(
        " " if value is None else _BLOCKS[min(steps, max(0, round(value / top * steps) if top > 0 else 0))]
        for value in values
    )


def plot(xs: Sequence[float], ys: Sequence[float], *, width: int, height: int) -> list[str]:
    """A line through the points, `height` rows of `width` characters, the largest value at the top."""
    columns, rows = width * 2, height * 4
    low, high, first, last = min(ys), max(ys), min(xs), max(xs)

    def place(x: float, y: float) -> tuple[int, int]:
        across = round((x - first) / (last - first) * (columns - 1)) if last > first else 0
        down = round((high - y) / (high - low) * (rows - 1)) if high > low else rows // 2
        return across, down

    grid = [[_BLANK] * width for _ in range(height)]
    dots = [place(x, y) for x, y in zip(xs, ys, strict=True)]
    for before, dot in zip([dots[0], *dots], dots, strict=False):
        for across, down in _line(before, dot):
            grid[down // 4][across // 2] |= _DOTS[across % 2][down % 4]
    return ["".join(map(chr, row)) for row in grid]


def _line(start: tuple[int, int], end: tuple[int, int]) -> list[tuple[int, int]]:
    """All dots between two, both included."""
    length = max(abs(end[0] - start[0]), abs(end[1] - start[1]), 1)
    return [
        (round(start[0] + (end[0] - start[0]) * part / length), round(start[1] + (end[1] - start[1]) * part / length))
        for part in range(length + 1)
    ]
