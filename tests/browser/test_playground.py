"""The playground in a real browser: digits are drawn, and a network that was trained on MNIST reads them."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, Request, expect

from trainshed.testing.processes import browsers
from trainshed.testing.processes.servers import RunningServer
from trainshed.testing.workloads import digits
from trainshed.testing.workloads.deployer import Deployer
from trainshed.testing.workloads.drawings import DRAWN, draw, draw_with_a_finger

PROJECT = "console-playground"
Open = Callable[..., Page]


@pytest.fixture(scope="module")
def server(framework_server: RunningServer) -> RunningServer:
    return framework_server


@pytest.fixture(scope="module")
def readers(server: RunningServer, tmp_path_factory: pytest.TempPathFactory) -> Deployer:
    """One network as three versions that take pictures in different forms."""
    scratch = tmp_path_factory.mktemp("digits")
    deployer = Deployer(server, PROJECT, scratch, model="digits")
    digits.deploy(deployer, scratch, "named", {"inputs": [0.5] * 784})
    digits.deploy(deployer, scratch, "square", [[[0.5]] * 28] * 28)
    return deployer


@pytest.fixture(scope="module")
def other(server: RunningServer, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A project with a model that is not one of pictures, and whose answers hold what JSON has no word for."""
    deployer = Deployer(server, "console-other", tmp_path_factory.mktemp("other"), model="other")
    answer = 'return [{"scores": [0.1, 0.6, 0.3], "odd": float("nan"), "name": "<b>x</b>"} for each in instances]'
    deployer.deploy_routine("v1", answer=answer)
    return deployer.project


def sent(requests: list[Request]) -> Any:
    return json.loads(requests[-1].post_data or "")["instances"][0]


def watch(page: Page) -> list[Request]:
    """The predictions that a page asks for, as they come."""
    seen: list[Request] = []
    page.on("request", lambda request: seen.append(request) if ":predict" in request.url else None)
    return seen


@pytest.mark.parametrize("digit", DRAWN)
def test_a_drawn_digit_is_read(digit: str, readers: Deployer, open_console: Open) -> None:
    page = open_console(PROJECT, "/playground?model=digits")
    requests = watch(page)
    draw(page, DRAWN[digit])
    expect(page.get_by_test_id("digit")).to_have_text(digit)
    expect(page.get_by_test_id("how")).to_contain_text("784 values from 0 to 1, as inputs")
    bars = page.get_by_test_id("bars").get_by_role("listitem")
    expect(bars).to_have_count(10)
    expect(bars.nth(int(digit))).to_have_class("bar-row bar-best")
    browsers.until(page, lambda: fits(sent(requests)["inputs"]))  # what was asked last is the whole drawing
    pixels = sent(requests)["inputs"]
    assert len(pixels) == 784
    mass = sum(pixels)
    across = sum(value * (at % 28 + 0.5) for at, value in enumerate(pixels)) / mass
    down = sum(value * (at // 28 + 0.5) for at, value in enumerate(pixels)) / mass
    assert (across, down) == (pytest.approx(14.5, abs=0.1), pytest.approx(14.5, abs=0.1))  # as in MNIST itself


def fits(pixels: Sequence[float]) -> bool:
    """Whether a digit is as high as MNIST's are: in a box of 20 pixels."""
    rows = [at // 28 for at, value in enumerate(pixels) if value > 0.05]
    return 18 <= max(rows) - min(rows) + 1 <= 22


def test_small_drawings_other_shapes_undo_and_clear(readers: Deployer, open_console: Open) -> None:
    page = open_console(PROJECT, "/playground?model=digits&version=square")
    requests = watch(page)
    draw(page, DRAWN["3"], size=0.4)
    expect(page.get_by_test_id("digit")).to_have_text("3")
    picture = sent(requests)
    assert (len(picture), len(picture[0]), len(picture[0][0])) == (28, 28, 1)
    draw(page, DRAWN["1"])
    page.get_by_test_id("undo").click()
    expect(page.get_by_test_id("digit")).to_have_text("3")
    page.get_by_test_id("clear").click()
    expect(page.get_by_test_id("digit")).to_have_text("–")
    expect(page.get_by_test_id("sure")).to_contain_text("Draw a digit")


def test_one_request_at_a_time_and_the_latest_drawing_wins(readers: Deployer, open_console: Open) -> None:
    page = open_console(PROJECT, "/playground?model=digits")
    expect(page.get_by_test_id("pad")).to_be_visible()
    requests = watch(page)
    waiting = []
    page.route("**:predict", lambda route: waiting.append(route))
    [whole] = DRAWN["3"]
    draw(page, [whole[: len(whole) // 2]])
    browsers.until(page, lambda: len(waiting) >= 1)
    draw(page, [whole[len(whole) // 2 - 1 :]])
    page.wait_for_timeout(300)  # for requests that must not come
    assert len(waiting) == 1
    waiting[0].continue_()
    expect(page.get_by_test_id("digit")).not_to_have_text("–")
    browsers.until(page, lambda: len(waiting) >= 2)
    waiting[1].continue_()
    expect(page.get_by_test_id("digit")).to_have_text("3")
    page.wait_for_timeout(300)
    assert len(requests) == 2  # all that came in between is one request


def test_a_digit_is_drawn_with_the_keyboard(readers: Deployer, open_console: Open) -> None:
    page = open_console(PROJECT, "/playground?model=digits")
    page.get_by_test_id("pad").focus()
    page.keyboard.press("Space")
    for _ in range(12):
        page.keyboard.press("ArrowDown")
    page.keyboard.press("Space")
    expect(page.get_by_test_id("digit")).to_have_text("1")
    page.keyboard.press("Delete")
    expect(page.get_by_test_id("digit")).to_have_text("–")


def test_a_finger_draws_and_does_not_scroll_the_page(readers: Deployer, open_console: Open) -> None:
    page = open_console(PROJECT, "/playground?model=digits", width=390, height=700, touch=True)
    expect(page.get_by_test_id("pad")).to_be_visible()
    page.get_by_test_id("pad").scroll_into_view_if_needed()
    before = page.evaluate("scrollY")
    draw_with_a_finger(page, DRAWN["3"])
    expect(page.get_by_test_id("digit")).to_have_text("3")
    assert page.evaluate("scrollY") == before
    page.wait_for_timeout(600)  # a tap within a moment of the last one is no tap of its own
    page.get_by_test_id("clear").tap()
    expect(page.get_by_test_id("digit")).to_have_text("–")


def png(rows: Sequence[Sequence[int]]) -> bytes:
    raw = b"".join(b"\0" + bytes(row) for row in rows)

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", len(rows[0]), len(rows), 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(raw)) + chunk(b"IEND", b"")


def test_pictures_of_digits_are_read_on_light_and_on_dark_paper(
    readers: Deployer, open_console: Open, tmp_path: Path
) -> None:
    truth = digits.labels("t10k", 3)
    page = open_console(PROJECT, "/playground?model=digits")
    page.get_by_test_id("tab-image").click()
    for number, values in enumerate(digits.images("t10k", 3)):
        rows = values.reshape(28, 28)
        for light in (True, False):
            large = [
                [int(230 - 200 * v) if light else int(20 + 220 * v) for v in row for _ in range(6)] for row in rows
            ]
            paper = [[230 if light else 20] * 168] * 40
            file = tmp_path / f"{number}-{light}.png"
            file.write_bytes(png([*paper, *(row for row in large for _ in range(6))]))
            page.get_by_test_id("picture-file").set_input_files(file)
            expect(page.get_by_test_id("picture")).to_have_attribute("alt", file.name)
            expect(page.get_by_test_id("digit")).to_have_text(str(truth[number]))
    (tmp_path / "text.png").write_bytes(b"no picture")
    page.get_by_test_id("picture-file").set_input_files(tmp_path / "text.png")
    expect(page.get_by_test_id("error")).to_contain_text("no picture that the browser can read")


def test_any_model_is_asked_in_json(other: str, open_console: Open) -> None:
    page = open_console(other, "/playground?model=other")
    request = page.get_by_test_id("request")
    request.fill('{"instances": [1, "<i>"]}')
    page.get_by_test_id("format").click()
    expect(request).to_have_value('{\n  "instances": [1, "<i>"]\n}')
    request.press("Control+Enter")
    expect(page.get_by_test_id("answer-table").locator("tbody tr")).to_have_count(2)
    expect(page.get_by_test_id("answer-table")).to_contain_text("<b>x</b>")
    expect(page.get_by_test_id("answer-table")).to_contain_text("NaN")
    expect(page.get_by_test_id("answer-chart").get_by_role("listitem").nth(1)).to_contain_text("60 %")
    expect(page.get_by_test_id("latency")).to_contain_text("ms")
    request.fill('{"instances": [1,')
    page.get_by_test_id("predict").click()
    expect(page.get_by_test_id("error")).to_contain_text("This is not JSON")
    request.fill('{"rows": []}')
    page.get_by_test_id("predict").click()
    expect(page.get_by_test_id("error")).to_contain_text("instances")  # in the server's words
    page.get_by_test_id("tab-draw").click()
    expect(page.get_by_test_id("empty")).to_contain_text("no sample request")


def test_another_default_is_asked_without_a_reload(readers: Deployer, open_console: Open) -> None:
    page = open_console(PROJECT, "/playground?model=digits")
    chosen = page.get_by_test_id("version").locator("option:checked")
    expect(chosen).to_have_text("default (named)")
    page.get_by_test_id("pad").evaluate("pad => { pad.dataset.before = 'yes'; }")
    readers.server.call("POST", f"{readers.path}/versions/square:setDefault", {})
    try:
        expect(chosen).to_have_text("default (square)")
        expect(page.locator("[data-testid=pad]:not([data-before])")).to_be_visible()  # with a pad of its own
        draw(page, DRAWN["3"])
        expect(page.get_by_test_id("how")).to_contain_text("28 × 28 × 1 values")
    finally:
        readers.server.call("POST", f"{readers.path}/versions/named:setDefault", {})


def test_without_a_model_the_page_says_what_to_do(open_console: Open) -> None:
    page = open_console("console-nothing", "/playground")
    expect(page.get_by_test_id("empty")).to_contain_text("trainshed versions create")
