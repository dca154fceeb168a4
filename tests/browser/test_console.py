"""What is around every page: sign-in, navigation, keys, themes, and what happens when the server is away."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from trainshed.testing.eventually import eventually
from trainshed.testing.processes import browsers
from trainshed.testing.processes.servers import RunningServer

Open = Callable[..., Page]

PLACES = ["", "/jobs", "/compare", "/models", "/playground", "/buckets", "/tokens", "/quotas", "/audit", "/settings"]
WAIT_MS = 90_000.0


def test_a_stranger_signs_in_with_the_token_and_out_again(windows: Any, server: RunningServer) -> None:
    page = windows.blank()
    page.goto(f"{server.url}/#/p/console-empty/jobs")
    expect(page.get_by_text("trainshed auth print-access-token")).to_be_visible()
    expect(page.get_by_test_id("token")).to_be_focused()

    page.keyboard.type("not-a-token")
    page.keyboard.press("Enter")
    expect(page.get_by_test_id("error")).to_be_visible()
    expect(page.get_by_test_id("token")).to_be_focused()

    page.get_by_test_id("token").fill(server.token)
    page.get_by_test_id("sign-in").click()
    expect(page.get_by_test_id("jobs")).to_be_visible()
    assert server.token not in page.evaluate("JSON.stringify(localStorage) + document.cookie")

    page.get_by_test_id("menu-user").click()
    page.get_by_test_id("sign-out").click()
    expect(page.get_by_test_id("token")).to_be_visible()
    page.reload()
    expect(page.get_by_test_id("token")).to_be_visible()


def test_a_session_that_has_ended_leads_to_the_sign_in_page_and_back(page: Page, server: RunningServer) -> None:
    page.goto(f"{server.url}/#/p/console-empty/jobs")
    expect(page.get_by_test_id("empty").first).to_be_visible()
    page.context.clear_cookies()
    expect(page.get_by_test_id("token")).to_be_visible(timeout=WAIT_MS)
    page.get_by_test_id("token").fill(server.token)
    page.get_by_test_id("sign-in").click()
    expect(page.get_by_test_id("jobs")).to_be_visible()


#: Presses keys one after the other, without a round trip between them.
TYPE = """
(keys) => {
  for (const key of keys) document.activeElement.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
}
"""


def test_keys_lead_everywhere(page: Page) -> None:
    expect(page.get_by_role("heading", level=1)).to_have_text("Overview")
    for key, title in (("j", "Jobs"), ("m", "Models"), ("b", "Buckets"), ("o", "Overview")):
        page.evaluate(TYPE, ["g", key])  # at once: the second one counts for a short time only
        expect(page.get_by_role("heading", level=1)).to_have_text(title)
        expect(page.locator("nav [aria-current=page]")).to_have_text(title)
        expect(page).to_have_title(re.compile(title))
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_contain_text("Keys")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.keyboard.press("/")
    expect(page.get_by_test_id("search")).to_be_focused()
    page.keyboard.type("digits g j")  # within a field these are letters
    page.keyboard.press("Enter")
    expect(page.get_by_test_id("job-search")).to_have_value("digits g j")


def test_a_window_that_closes_gives_the_focus_back_once(page: Page) -> None:
    """A browser tells of the closed window later than it closes it; what has the focus by then keeps it."""
    opener = page.get_by_test_id("submit-help")
    opener.click()
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("dialog")).to_have_count(0)
    expect(opener).to_be_focused()

    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_contain_text("Keys")
    page.evaluate("""
        async () => {
          const dialog = document.querySelector("dialog");
          const told = new Promise((resolve) => dialog.addEventListener("close", resolve));
          dialog.close();
          document.activeElement.dispatchEvent(new KeyboardEvent("keydown", { key: "/", bubbles: true }));
          await told;
        }
    """)
    expect(page.locator("dialog")).to_have_count(0)
    assert page.evaluate("document.activeElement.dataset.testid") == "search"


def test_the_first_tab_stop_skips_to_the_page(page: Page) -> None:
    expect(page.get_by_test_id("overview")).to_be_visible()
    page.keyboard.press("Tab")
    expect(page.locator(".skip")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#main")).to_be_focused()
    assert "console-empty" in page.url


def _background_is(page: Page, *, bright: bool) -> None:
    """Wait until the page's background has this colour."""

    def brightness() -> int:
        """From 0 to 255 * 3."""
        colour = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
        return sum(int(number) for number in re.findall(r"\d+", colour)[:3])

    eventually(brightness, lambda seen: seen > 600 if bright else seen < 150)


def test_the_theme_is_the_systems_until_one_is_chosen(open_console: Open) -> None:
    page = open_console("console-empty", scheme="dark")
    expect(page.get_by_test_id("overview")).to_be_visible()
    _background_is(page, bright=False)
    page.emulate_media(color_scheme="light")
    _background_is(page, bright=True)

    page.get_by_test_id("menu-sun").click()
    page.get_by_test_id("theme-dark").click()
    _background_is(page, bright=False)
    page.reload()
    expect(page.get_by_test_id("overview")).to_be_visible()
    _background_is(page, bright=False)


@pytest.mark.parametrize("place", PLACES)
def test_narrow_screens_need_no_sideways_scrolling(open_console: Open, place: str) -> None:
    page = open_console("console-empty", place, width=360, height=740)
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    page.wait_for_load_state("networkidle")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_the_navigation_is_a_drawer_on_narrow_screens(open_console: Open) -> None:
    page = open_console("console-empty", width=390, height=800)
    link = page.get_by_role("link", name="Jobs", exact=True)
    expect(link).not_to_be_visible()
    page.get_by_test_id("menu").click()
    expect(link).to_be_visible()
    page.keyboard.press("Escape")
    expect(link).not_to_be_visible()
    expect(page.get_by_test_id("menu")).to_be_focused()
    page.get_by_test_id("menu").click()
    link.click()
    expect(page.get_by_test_id("jobs")).to_be_visible()
    expect(link).not_to_be_visible()


@pytest.mark.fault("F67")
def test_markup_in_an_address_stays_text(open_console: Open) -> None:
    harm = "%3Cimg%20src%3Dx%20onerror%3D%22document.title%3D'harmed'%22%3E"
    page = open_console("console-empty", f"/jobs?search={harm}&label={harm}")
    expect(page.get_by_test_id("job-search")).to_have_value(re.compile("<img src=x"))
    for address in (f"#/p/{harm}/jobs", f"#/p/console-empty/compare?jobs={harm},a", f"#/p/console-empty/{harm}"):
        page.evaluate("(address) => (location.hash = address)", address)
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        page.wait_for_load_state("networkidle")
    assert page.locator("img").count() == 0
    assert "harmed" not in page.title().replace("document.title='harmed'", "")


@pytest.mark.parametrize("place", ["/no/such/place", "/constructor"])  # the latter is in every object
def test_an_address_that_leads_nowhere_says_so(open_console: Open, place: str) -> None:
    page = open_console("console-empty", place)
    expect(page.get_by_test_id("notice")).to_contain_text("leads nowhere")


def test_a_lost_connection_is_told_and_mended_without_a_reload(chromium: Browser, own_server: RunningServer) -> None:
    context = browsers.patient(chromium)
    browsers.sign_in(context, own_server)
    page = context.new_page()
    page.goto(f"{own_server.url}/#/p/console-empty/jobs")
    page.evaluate("window.sameWindow = true")
    expect(page.get_by_test_id("empty").first).to_be_visible()
    own_server.kill()
    expect(page.get_by_test_id("connection-lost")).to_be_visible(timeout=WAIT_MS)
    expect(page.get_by_test_id("empty").first).to_be_visible()
    own_server.start()
    expect(page.get_by_test_id("connection-lost")).not_to_be_visible(timeout=2 * WAIT_MS)
    assert page.evaluate("window.sameWindow")
    context.close()
