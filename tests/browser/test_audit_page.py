"""The audit record in a real browser."""

from __future__ import annotations

from collections.abc import Callable

from playwright.sync_api import Page, expect

from trainshed.testing.processes.servers import Caller, RunningServer

PROJECT = "console-audit"


def test_owners_see_who_changed_what_and_who_was_refused(
    open_console: Callable[..., Page], server: RunningServer
) -> None:
    made = server.call("POST", "/trainshed/v1/tokens", {"user": "vera", "project": PROJECT, "role": "viewer"})
    call, models = Caller(server.url), f"/v1/projects/{PROJECT}/models"
    assert call("POST", models, token=server.token, body={"name": "digits"})[0] == 200
    assert call("POST", models, token=made["token"], body={"name": "digits"})[0] == 403
    page = open_console(PROJECT, "/audit")
    rows = page.get_by_test_id("audit").locator("tbody tr")
    expect(rows.filter(has_text="vera").filter(has_text="PERMISSION_DENIED")).to_have_count(1)
    expect(rows.filter(has_text=f"projects/{PROJECT}/models/digits").filter(has_text="owner")).to_have_count(1)
    page.get_by_test_id("audit-outcome").select_option("OK")
    expect(rows.filter(has_text="PERMISSION_DENIED")).to_have_count(0)
    page.get_by_test_id("audit-outcome").select_option("refused")
    expect(rows).to_have_count(1)
    page.get_by_test_id("audit-user").fill("nobody")
    page.get_by_test_id("audit-user").press("Enter")
    expect(page.get_by_text("Nothing was changed or refused yet")).to_be_visible()
