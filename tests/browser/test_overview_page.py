"""A project at a glance, in a real browser, with real jobs."""

from __future__ import annotations

import re
from collections.abc import Callable

from playwright.sync_api import Page, expect

from trainshed.testing.workloads.submitter import Submitter

Open = Callable[..., Page]
PROJECT = "console-glance"
WAIT_MS = 90_000.0

STEPS = """
import time
for step in range(0, 10_000, 10):
    print(f"step {step}: loss = {2 / (step + 1):.4f}", flush=True)
    time.sleep(0.2)
"""
FAILS = """raise ValueError("<b>bad</b> data")"""


def test_the_overview_follows_jobs_and_names_what_needs_attention(
    trainers: Callable[[str], Submitter], open_console: Open
) -> None:
    jobs = trainers(PROJECT)
    page = open_console(PROJECT)
    page.evaluate("window.sameWindow = true")
    expect(page.get_by_text("Nothing runs")).to_be_visible()
    expect(page.get_by_test_id("alerts")).not_to_be_visible()

    jobs.submit("steps", STEPS, args=["--train_steps=10000"])
    item = page.get_by_test_id("running").locator("li[data-key=steps]")
    expect(item).to_contain_text(re.compile(r"step [\d,.\s]+ of 10.000"), timeout=WAIT_MS)
    expect(item.get_by_role("progressbar")).to_have_attribute("aria-valuenow", re.compile(r"\d+"))
    expect(item).to_contain_text("1 master")

    jobs.submit("fails", FAILS)
    alerts = page.get_by_test_id("alerts")
    expect(alerts).to_contain_text("<b>bad</b> data", timeout=WAIT_MS)
    expect(alerts.locator("b b")).to_have_count(0)
    expect(page.get_by_role("link", name=re.compile("Failed, last 24 h"))).to_contain_text("1")

    jobs.server.call("POST", f"/v1/projects/{PROJECT}/jobs/steps:cancel", {})
    expect(page.get_by_text("Nothing runs")).to_be_visible(timeout=WAIT_MS)
    assert page.evaluate("window.sameWindow")
    alerts.get_by_role("link").first.click()
    expect(page).to_have_url(re.compile("/jobs/fails"))


def test_the_overview_tells_of_the_machine_and_of_models(
    trainers: Callable[[str], Submitter], open_console: Open
) -> None:
    jobs = trainers(PROJECT)
    page = open_console(PROJECT)
    expect(page.get_by_test_id("machine")).to_contain_text(re.compile(r"core.*free of", re.DOTALL))
    expect(page.get_by_text("No models yet")).to_be_visible()
    jobs.server.call("POST", f"/v1/projects/{PROJECT}/models", {"name": "Digits"})
    expect(page.get_by_role("link", name="Digits")).to_be_visible(timeout=WAIT_MS)
