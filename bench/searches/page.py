"""Part `page`: the console's page of a search with many trials of many parameters, in Chromium."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any

from playwright.sync_api import Page

from console import WATCH, until, wide_ms
from control import PROJECT, a_server
from report import Row
from trainshed.store.database import Database
from trainshed.testing.processes.browsers import chromium, sign_in
from trainshed.testing.workloads.searches import PARAMETERS, write_search

JOB = "large"
PARAMETER_COUNT = 16
BRUSH_STEPS = 40
#: a canvas has a width once it is drawn
WATCH_PLOT = WATCH.replace("SELECTOR", "'[data-testid=plot-history] canvas[width]'").replace(
    "childList: true", "attributes: true, childList: true"
)
#: lengths of frames, and tasks that block the page for more than 50 ms
FRAMES = """
() => {
  window.longTasks = [];
  window.frames = [];
  new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) window.longTasks.push(entry.duration);
  }).observe({type: "longtask"});
  let last = performance.now();
  const frame = (now) => { window.frames.push(now - last); last = now; requestAnimationFrame(frame); };
  requestAnimationFrame(frame);
}
"""


def parameters() -> Sequence[Mapping[str, Any]]:
    return [
        {**PARAMETERS[number % 4], "parameterName": f"{PARAMETERS[number % 4]['parameterName']}_{number}"}
        for number in range(PARAMETER_COUNT)
    ]


def page(*, trials: int, rounds: int) -> list[Row]:
    with a_server() as (server, _), chromium() as browser:
        with closing(Database(server.home / "state.db")) as database:
            write_search(database, PROJECT, JOB, trials=trials, parameters=parameters())
        shown, tasks, frames = [], [], []
        address = f"{server.url}/#/p/{PROJECT}/jobs/{JOB}"
        for number in range(rounds + 1):
            context = browser.new_context(viewport={"width": 1280, "height": 900})
            sign_in(context, server)
            opened = context.new_page()
            opened.add_init_script(WATCH_PLOT)
            opened.goto(address)
            took = float(until(opened, "window.shownAt || 0"))
            brushed = brush(opened)
            if number:  # the first one warms up the server
                shown.append(took)
                tasks += brushed["tasks"]
                frames += brushed["frames"]
            context.close()
        path = f"/trainshed/v1/projects/{PROJECT}/jobs/{JOB}/search"
        began = time.perf_counter()
        server.call("GET", path)
        read_ms = 1000 * (time.perf_counter() - began)
    return [
        Row(
            what=f"a search with {trials:,} trials of {PARAMETER_COUNT} parameters, to its first plot, median / worst",
            value=wide_ms(shown),
            against=f"its data by the API: {read_ms:.0f} ms",
            aim="1 s",
        ),
        Row(
            what="brushing an axis: frames, median / worst",
            value=wide_ms(frames),
            against=f"tasks over 50 ms: {len(tasks)}, the longest {max(tasks, default=0):.0f} ms",
            aim="no task over 50 ms",
        ),
    ]


def brush(opened: Page) -> dict[str, list[float]]:
    """Drag along the first axis of the parallel coordinates. Returns the lengths of frames and of long tasks."""
    plot = opened.get_by_test_id("plot-parallel")
    plot.scroll_into_view_if_needed()
    opened.wait_for_timeout(500)
    box = plot.bounding_box()
    assert box is not None
    opened.evaluate(FRAMES)
    across = box["x"] + 58
    opened.mouse.move(across, box["y"] + 60)
    opened.mouse.down()
    for step in range(BRUSH_STEPS):
        opened.mouse.move(across, box["y"] + 60 + 4 * step)
    opened.mouse.up()
    opened.wait_for_timeout(300)
    chosen = opened.get_by_test_id("chosen").inner_text()
    assert "chosen" in chosen, chosen
    return {"tasks": opened.evaluate("window.longTasks"), "frames": opened.evaluate("window.frames")}
