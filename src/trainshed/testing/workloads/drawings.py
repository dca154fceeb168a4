"""Digits as people draw them, drawn on the playground's pad."""

from __future__ import annotations

import math
from collections.abc import Sequence

from playwright.sync_api import Page

Point = tuple[float, float]
Stroke = Sequence[Point]


def arc(middle: Point, size: Point, start: float, end: float) -> list[Point]:
    """Return points on an ellipse, between two angles in degrees."""
    steps = [math.radians(start + (end - start) * step / 20) for step in range(21)]
    return [(middle[0] + size[0] * math.cos(turn), middle[1] + size[1] * math.sin(turn)) for turn in steps]


#: strokes, as fractions of the pad
DRAWN: dict[str, list[list[Point]]] = {
    "0": [arc((0.5, 0.5), (0.2, 0.3), -90, 270)],
    "1": [[(0.52, 0.2), (0.5, 0.5), (0.48, 0.8)]],
    "3": [arc((0.48, 0.35), (0.17, 0.15), -150, 80) + arc((0.48, 0.64), (0.19, 0.16), -80, 150)],
    "7": [[(0.3, 0.25), (0.5, 0.25), (0.7, 0.24), (0.6, 0.5), (0.48, 0.8)]],
}


def places(page: Page, stroke: Stroke, size: float = 1.0) -> list[Point]:
    """Return where the points of a stroke are in the window. A `size` below 1 shrinks it to the upper left part."""
    box = page.get_by_test_id("pad").bounding_box()
    assert box is not None
    return [(box["x"] + x * size * box["width"], box["y"] + y * size * box["height"]) for x, y in stroke]


def draw(page: Page, strokes: Sequence[Stroke], *, size: float = 1.0) -> None:
    """Draw with the mouse."""
    page.get_by_test_id("pad").scroll_into_view_if_needed()
    for stroke in strokes:
        start, *rest = places(page, stroke, size)
        page.mouse.move(*start)
        page.mouse.down()
        for point in rest:
            page.mouse.move(*point)
        page.mouse.up()


def draw_with_a_finger(page: Page, strokes: Sequence[Stroke]) -> None:
    """Draw on a touch screen. The browser decides whether a finger draws or scrolls."""
    page.get_by_test_id("pad").scroll_into_view_if_needed()
    screen = page.context.new_cdp_session(page)
    for stroke in strokes:
        kind = "touchStart"
        for x, y in places(page, stroke):
            screen.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": [{"x": x, "y": y}]})
            kind = "touchMove"
        screen.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
