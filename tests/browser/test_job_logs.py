"""The logs of a job in a real browser: every line, in order, however fast they come and whatever is in them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from trainshed.testing.processes.browsers import READ_ALL, until
from trainshed.testing.workloads.submitter import Submitter

PROJECT = "console-logs"
Open = Callable[..., Page]

WAIT_MS = 90_000.0

FLOOD = """
import sys
for number in range(int(sys.argv[1])):
    print(f"flood {number}")
"""
ENDLESS = """
import itertools, time
for number in itertools.count():
    print(f"endless {number}", flush=True)
    time.sleep(0.003)
"""
GANG = """
import logging, os, pathlib, sys, time
logging.basicConfig(level=logging.INFO)
name = os.environ["TRAINSHED_REPLICA"]
logging.info("%s reads Data", name)
logging.warning("%s has old data", name)
logging.error("%s lost a row", name)
logging.shutdown()
told = pathlib.Path(sys.argv[-1]) / "told"
if name.startswith("worker"):
    told.parent.mkdir(parents=True, exist_ok=True)
    told.touch()
while not told.exists():
    time.sleep(0.05)
time.sleep(1)  # the end of the master is the end of all
"""
HOSTILE = r"""
import sys
sys.stdout.reconfigure(encoding="utf-8")
print("<img src=x onerror=document.title='harmed'><script>document.title='harmed'</script><b>bold</b>")
print("\x1b[31mred\x1b[0m \x1b]0;harmed\x07 \x1b[2J cleared")
print("turned \u202egnp.exe\u202c back")
print("nul \0 bell \a end")
print("long " + "x" * 100_000 + " tail")
print("https://example.com/?q='\"><svg/onload=alert(1)>")
"""


@pytest.fixture
def jobs(trainers: Callable[[str], Submitter]) -> Submitter:
    return trainers(PROJECT)


def rows(page: Page) -> Any:
    return page.get_by_test_id("log-row")


def ended(page: Page) -> None:
    """Wait until the whole log is there."""
    expect(page.get_by_test_id("log-count")).to_have_attribute("data-ended", "true", timeout=WAIT_MS)


def read_all(page: Page) -> list[str]:
    """Every line of a log that has ended, also of those that are read only when someone scrolls up to them."""
    count, shown = page.get_by_test_id("log-count"), page.get_by_test_id("log-list")

    def from_the_start() -> bool:
        if "+" not in count.inner_text():
            return True
        shown.evaluate("list => { list.scrollTop = 0; }")
        return False

    until(page, from_the_start)
    lines: list[str] = page.evaluate(READ_ALL)
    return lines


def at_rest(page: Page, expression: str) -> Any:
    """What an expression gives once it stays the same for a while."""
    seen: list[Any] = []

    def stays() -> bool:
        page.wait_for_timeout(100)
        seen.append(page.evaluate(expression))
        return len(seen) > 4 and all(each == seen[-1] for each in seen[-5:])

    until(page, stays)
    return seen[-1]


def test_every_line_of_a_flood_is_reached_once_and_in_order(jobs: Submitter, open_console: Open) -> None:
    jobs.submit("flood_1", FLOOD, args=["6000"])
    page = open_console(PROJECT, "/jobs/flood_1")
    expect(rows(page).last).to_contain_text("Job completed successfully.", timeout=WAIT_MS)  # it was followed
    ended(page)
    assert [text for text in read_all(page) if text.startswith("flood ")] == [
        f"flood {number}" for number in range(6000)
    ]
    assert rows(page).count() < 150, "only the lines in sight are in the page"


def test_scrolling_up_ends_the_following_and_the_button_begins_it_again(jobs: Submitter, open_console: Open) -> None:
    jobs.submit("endless_1", ENDLESS)
    page = open_console(PROJECT, "/jobs/endless_1")
    expect(rows(page).last).to_contain_text("endless", timeout=WAIT_MS)
    until(page, lambda: int(page.get_by_test_id("log-list").evaluate("list => list.scrollHeight")) > 3000)
    follow, fresh = page.get_by_test_id("log-follow"), page.get_by_test_id("log-fresh")
    expect(follow).to_have_attribute("aria-pressed", "true")
    expect(fresh).to_be_hidden()
    page.get_by_test_id("log-list").hover()
    page.mouse.wheel(0, -1500)
    expect(follow).to_have_attribute("aria-pressed", "false")
    top = "document.elementFromPoint(600, innerHeight - 200).closest('.log-row').textContent"
    seen = at_rest(page, top)  # the wheel turns on for a while
    expect(fresh).to_have_text(re.compile(r"^[1-9][\d,]* new lines?$"), timeout=WAIT_MS)
    before = int(re.sub(r"\D", "", fresh.inner_text()))
    until(page, lambda: int(re.sub(r"\D", "", fresh.inner_text())) > before)
    assert page.evaluate(top) == seen, "what is read stays in its place"
    fresh.click()
    expect(follow).to_have_attribute("aria-pressed", "true")
    expect(fresh).to_be_hidden()
    jobs.server.call("POST", f"/v1/projects/{PROJECT}/jobs/endless_1:cancel", {})
    expect(rows(page).last).to_contain_text("Job cancelled.", timeout=WAIT_MS)


def test_lines_are_chosen_by_replica_severity_and_text(jobs: Submitter, open_console: Open) -> None:
    gang = {"scaleTier": "CUSTOM", "masterType": "standard", "workerType": "standard", "workerCount": "1"}
    jobs.submit("gang_1", GANG, jobDir=f"gs://{jobs.bucket}/gang_1", **gang)
    jobs.wait("gang_1")
    page = open_console(PROJECT, "/jobs/gang_1")
    ended(page)
    replica, severity, search = (page.get_by_test_id(f"log-{name}") for name in ("replica", "severity", "search"))
    expect(replica.locator("option")).to_have_text(["All logs", "master-replica-0", "worker-replica-0", "service"])
    replica.select_option("worker-replica-0")
    expect(page.get_by_test_id("log-list")).not_to_contain_text("master-replica-0 reads")
    expect(page.get_by_test_id("log-list")).to_contain_text("worker-replica-0 reads Data")
    severity.select_option("WARNING")
    expect(rows(page).locator(".log-text")).to_have_text(
        ["worker-replica-0 has old data", "worker-replica-0 lost a row"]
    )
    replica.select_option("")
    search.fill("LOST")
    expect(rows(page)).to_have_count(2)
    expect(rows(page).locator("mark")).to_have_text(["lost", "lost"])
    page.reload()
    expect(search).to_have_value("LOST")
    expect(rows(page)).to_have_count(2)
    search.fill("nothing like this")
    expect(page.get_by_test_id("log-list")).to_contain_text("No line is like that")


@pytest.mark.fault("F67")
def test_hostile_lines_do_no_harm_and_are_all_there(jobs: Submitter, open_console: Open) -> None:
    jobs.submit("hostile_1", HOSTILE)
    jobs.wait("hostile_1")
    page = open_console(PROJECT, "/jobs/hostile_1")
    ended(page)
    shown = page.get_by_test_id("log-list")
    expect(shown).to_contain_text("<img src=x onerror=document.title='harmed'><script>")
    assert shown.locator("img, script, b, svg").count() == 0
    expect(shown.locator(".ansi-red")).to_have_text("red")
    expect(shown).to_contain_text("turned [U+202E]gnp.exe[U+202C] back")
    expect(shown).to_contain_text(re.compile("nul .* bell .* end"))
    assert "\0" not in shown.inner_text() and "\x1b" not in shown.inner_text()
    assert "harmed" not in page.title()
    long = rows(page).filter(has_text=re.compile("^.*long xxx"))
    assert long.evaluate("row => row.offsetHeight") == 20
    expect(long).to_contain_text("more characters")
    long.click()
    length = page.get_by_test_id("log-whole").evaluate("node => node.textContent.length")
    assert length > 60_000, "an open line is whole"


def test_a_line_has_an_address(jobs: Submitter, open_console: Open) -> None:
    jobs.submit("linked_1", FLOOD, args=["5000"])
    jobs.wait("linked_1")
    page = open_console(PROJECT, "/jobs/linked_1?search=flood 1717")
    ended(page)
    rows(page).filter(has_text=re.compile(r"flood 1717$")).click()
    page.get_by_test_id("log-link").click()
    expect(page).to_have_url(re.compile(r"\?tab=logs&line="))
    chosen = page.locator('.log-row[aria-selected="true"]')
    expect(chosen).to_contain_text(re.compile(r"flood 1717$"), timeout=WAIT_MS)
    expect(chosen).to_be_in_viewport()
    page.reload()
    expect(chosen).to_be_in_viewport(timeout=WAIT_MS)


def test_keys_move_through_the_lines(jobs: Submitter, open_console: Open) -> None:
    jobs.submit("keys_1", FLOOD, args=["300"])
    jobs.wait("keys_1")
    page = open_console(PROJECT, "/jobs/keys_1")
    ended(page)
    page.get_by_test_id("log-list").focus()
    page.keyboard.press("Home")
    chosen = page.locator('.log-row[aria-selected="true"]')
    expect(chosen).to_contain_text("Validating job requirements...")
    page.keyboard.press("ArrowDown")
    expect(chosen).to_contain_text("successfully validated")
    page.keyboard.press("Enter")
    expect(page.get_by_test_id("log-whole")).to_be_visible()
    page.keyboard.press("Enter")
    expect(page.get_by_test_id("log-whole")).to_have_count(0)
    page.keyboard.press("End")
    expect(rows(page).last).to_be_in_viewport()
    expect(page.get_by_test_id("log-follow")).to_have_attribute("aria-pressed", "true")


def test_the_download_holds_every_line_that_is_asked_for(jobs: Submitter, open_console: Open) -> None:
    jobs.submit("saved_1", FLOOD, args=["2500"])
    jobs.wait("saved_1")
    page = open_console(PROJECT, "/jobs/saved_1?search=flood")
    ended(page)
    with page.expect_download(timeout=WAIT_MS) as download:
        page.get_by_test_id("log-download").click()
    assert download.value.suggested_filename == "saved_1.log"
    lines = download.value.path().read_text().splitlines()
    assert [line.partition(": ")[2] for line in lines if ": flood" in line] == [f"flood {n}" for n in range(2500)]


def test_the_log_goes_on_after_the_connection_was_lost(jobs: Submitter, open_console: Open) -> None:
    jobs.submit("lost_1", ENDLESS)
    page = open_console(PROJECT, "/jobs/lost_1")
    expect(rows(page).last).to_contain_text("endless", timeout=WAIT_MS)
    page.context.set_offline(True)
    expect(page.get_by_test_id("connection-lost")).to_be_visible(timeout=WAIT_MS)
    page.context.set_offline(False)
    expect(page.get_by_test_id("connection-lost")).to_be_hidden(timeout=WAIT_MS)
    jobs.server.call("POST", f"/v1/projects/{PROJECT}/jobs/lost_1:cancel", {})
    expect(rows(page).last).to_contain_text("Job cancelled.", timeout=WAIT_MS)
    ended(page)
    numbers = [int(text.split()[1]) for text in read_all(page) if text.startswith("endless ")]
    assert numbers == list(range(len(numbers))), "what was printed meanwhile is there, once"
