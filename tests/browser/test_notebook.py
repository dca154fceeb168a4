"""The drawing pad in JupyterLab, in a real browser: a drawn digit is recognised, and no other host is asked."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import quote, urlsplit

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

import trainshed
from trainshed.testing.processes import browsers
from trainshed.testing.processes.servers import RunningServer
from trainshed.testing.processes.shells import Shell
from trainshed.testing.workloads.saved_models import saved_models

PROJECT = "notebook-pad"
NAME = "Online prediction example.ipynb"
WAIT_MS = 90_000.0


@pytest.fixture(scope="module")
def shell(framework_server: RunningServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """A server with the model MNIST."""
    shell = Shell(framework_server, tmp_path_factory.mktemp("pad"), PROJECT)
    with trainshed.connect(framework_server.url, token=framework_server.token, project=PROJECT) as ty:
        ty.models.deploy("MNIST", saved_models() / "digits")
    yield shell
    shell("notebook", "--stop")


def stroke(page: Page, pad: Locator, *spots: tuple[float, float]) -> None:
    """Draw with the mouse from spot to spot; spots are parts of the pad's width and height."""
    pad.scroll_into_view_if_needed()
    box = pad.bounding_box()
    assert box is not None
    places = [(box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in spots]
    page.mouse.move(*places[0])
    page.mouse.down()
    for place in places[1:]:
        page.mouse.move(*place, steps=8)
    page.mouse.up()


def cell(page: Page, words: str) -> Locator:
    return page.locator(".jp-CodeCell", has_text=words)


def run(page: Page, where: Locator) -> None:
    where.locator(".cm-content").click()
    page.keyboard.press("Shift+Enter")


@pytest.mark.timeout(900)
def test_a_digit_drawn_in_a_cell_is_recognised(chromium: Browser, shell: Shell) -> None:
    address = urlsplit(shell("notebook", "--no-browser", "--dir", shell.folder / "work")[0].strip())
    context = browsers.patient(chromium, viewport={"width": 1280, "height": 3000})
    asked: set[str | None] = set()
    context.on("request", lambda request: asked.add(urlsplit(request.url).hostname))
    page = context.new_page()
    page.goto(f"http://{address.netloc}/lab/tree/{quote(NAME)}?{address.query}")
    expect(cell(page, "DrawingPad()")).to_be_visible(timeout=WAIT_MS)
    expect(page.get_by_role("button", name=re.compile(r"Python 3 .* Idle"))).to_be_visible(timeout=WAIT_MS)
    page.locator(".lm-MenuBar-itemLabel", has_text=re.compile("^Run$")).click()
    page.locator(".lm-Menu-itemLabel", has_text=re.compile("^Run All Cells$")).click()

    pad = page.locator("canvas.trainshed-pad")
    expect(pad).to_be_visible(timeout=WAIT_MS)
    answer = cell(page, "It is a").locator(".jp-OutputArea-output")
    expect(answer).to_have_text("It is a 3\n", timeout=WAIT_MS)

    stroke(page, pad, (0.5, 0.15), (0.5, 0.85))
    run(page, cell(page, "It is a"))
    expect(answer).to_have_text("It is a 1\n", timeout=WAIT_MS)
    run(page, cell(page, "right.bar"))
    expect(cell(page, "right.bar").locator("img")).to_be_visible(timeout=WAIT_MS)
    bars = page.locator(".trainshed-predictions .trainshed-bar")
    expect(bars).to_have_count(10)

    page.get_by_role("button", name="Clear").click()
    stroke(page, pad, (0.5, 0.15), (0.3, 0.3), (0.28, 0.6), (0.5, 0.85), (0.72, 0.6), (0.7, 0.3), (0.5, 0.15))
    run(page, cell(page, "It is a"))
    expect(answer).to_have_text("It is a 0\n", timeout=WAIT_MS)
    context.close()
    assert asked <= {"127.0.0.1", "", None}
