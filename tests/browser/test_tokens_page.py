"""Tokens in a real browser: made, shown once, revoked; and the settings."""

from __future__ import annotations

from collections.abc import Callable

from playwright.sync_api import Browser, Page, expect

from trainshed.testing.processes import browsers
from trainshed.testing.processes.servers import Caller, RunningServer

PROJECT = "console-tokens"
HARM = "<img src=x onerror=document.title='harmed'>"
Open = Callable[..., Page]


def test_a_token_is_made_shown_once_and_revoked(open_console: Open, server: RunningServer) -> None:
    page = open_console(PROJECT, "/tokens")
    page.get_by_test_id("create-token").click()
    page.get_by_test_id("token-user").fill("no such name!")
    page.get_by_test_id("token-go").click()
    expect(page.get_by_role("alert")).to_contain_text("A user name is made of")
    page.get_by_test_id("token-user").fill("ada@example.com")
    page.get_by_test_id("token-role").select_option("viewer")
    page.get_by_test_id("token-label").fill(HARM)
    page.get_by_test_id("token-go").click()
    secret = page.get_by_test_id("secret").locator("code").text_content() or ""
    jobs = f"/v1/projects/{PROJECT}/jobs"
    assert Caller(server.url)("GET", jobs, token=secret)[0] == 200

    page.get_by_role("button", name="Done").click()
    row = page.get_by_test_id("tokens").locator("tr").filter(has_text="ada@example.com")
    expect(row).to_contain_text(HARM)
    expect(row).to_contain_text(PROJECT)
    page.reload()
    expect(row).to_be_visible()
    assert secret not in page.content()

    row.get_by_test_id("revoke").click()
    page.get_by_test_id("confirm-yes").click()
    expect(row).to_have_count(0)
    assert Caller(server.url)("GET", jobs, token=secret)[0] == 401
    page.get_by_test_id("show-revoked").check()
    expect(row).to_contain_text("revoked")
    assert "harmed" not in page.title()


def test_who_is_no_owner_is_told_so(chromium: Browser, server: RunningServer) -> None:
    made = server.call("POST", "/trainshed/v1/tokens", {"user": "vera", "project": PROJECT, "role": "viewer"})
    context = browsers.patient(chromium)
    session = context.request.post(f"{server.url}/trainshed/v1/session", data={"token": made["token"]})
    assert session.ok
    page = context.new_page()
    page.goto(f"{server.url}/#/p/{PROJECT}/tokens")
    expect(page.get_by_test_id("error")).to_contain_text("you are a viewer")
    expect(page.get_by_test_id("create-token")).to_have_count(0)
    context.close()


def test_settings_are_found_and_say_where_they_came_from(open_console: Open) -> None:
    page = open_console(PROJECT, "/settings")
    rows = page.get_by_test_id("settings").locator("tbody tr")
    expect(rows.filter(has_text="port").first).to_be_visible()
    expect(page.get_by_test_id("sandbox")).to_contain_text("The sandbox around user code has the level")
    page.get_by_test_id("search-settings").fill("predict timeout")
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text("default")
    page.get_by_test_id("search-settings").fill("")
    page.get_by_test_id("only-changed").check()
    expect(rows.filter(has_text="gs_in_trainers")).to_contain_text("environment")
    page.get_by_test_id("search-settings").fill("no such thing")
    expect(page.get_by_test_id("settings")).to_contain_text("No setting matches.")
