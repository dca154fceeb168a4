"""The table of jobs and the comparison of jobs, in a real browser, with real jobs."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from trainshed.testing.eventually import eventually
from trainshed.testing.processes.servers import RunningServer
from trainshed.testing.workloads.submitter import Submitter

Open = Callable[..., Page]
PROJECT = "console-jobs"
MANY = "console-many"
WAIT_MS = 90_000.0

LEARNS = """
import sys
rate = float(sys.argv[1].partition("=")[2])
for step in range(0, 101, 10):
    print(f"step {step}: loss = {2 / (1 + step * rate):.4f}, accuracy = {1 - 1 / (1 + step * rate):.4f}", flush=True)
"""
WAITS = "import time; time.sleep(600)"
HARMFUL = """raise ValueError("<img src=x onerror=\\"document.title='harmed'\\"><b>bold</b>")"""


@pytest.fixture(scope="module")
def jobs(trainers: Callable[[str], Submitter]) -> Submitter:
    """Two jobs that learned, one that failed with markup in its error, one that runs."""
    submitter = trainers(PROJECT)
    submitter.submit("learn_slow", LEARNS, args=["--rate=0.05", "--batch=64"])
    submitter.submit("learn_fast", LEARNS, args=["--rate=0.5", "--batch=64"])
    submitter.submit("harmful", HARMFUL)
    submitter.submit("runs", WAITS)
    for name in ("learn_slow", "learn_fast", "harmful"):
        submitter.wait(name)
    _label(submitter, "learn_slow", {"phase": "sweep", "owner": "ada"})
    _label(submitter, "learn_fast", {"phase": "sweep", "owner": "lin"})
    return submitter


def _label(submitter: Submitter, job: str, labels: dict[str, str]) -> None:
    path = f"/v1/projects/{submitter.project}/jobs/{job}?updateMask=labels"
    submitter.server.call("PATCH", path, {"labels": labels})


SCROLL = """
async () => {
  const seen = [];
  for (let y = 0; ; y += 300) {
    scrollTo(0, y);
    await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
    for (const row of document.querySelectorAll("tbody tr[data-key]")) {
      if (!seen.includes(row.dataset.key)) seen.push(row.dataset.key);
    }
    if (scrollY + innerHeight >= document.documentElement.scrollHeight - 1) return seen;
  }
}
"""


def _shown(page: Page) -> list[str]:
    """Every row that one sees who scrolls from the top to the end."""
    keys: list[str] = page.evaluate(SCROLL)
    return keys


def _shows(page: Page, *names: str) -> None:
    """The table has these rows, in this order."""
    expect(page.locator("tbody tr a")).to_have_text(list(names))


def test_search_finds_names_and_labels_as_one_types(jobs: Submitter, open_console: Open) -> None:
    page = open_console(PROJECT, "/jobs")
    expect(page.locator("tbody tr[data-key=learn_slow]")).to_be_visible()
    page.get_by_test_id("job-search").press_sequentially("learn_s")
    _shows(page, "learn_slow")
    page.get_by_test_id("job-search").fill("owner=lin")
    _shows(page, "learn_fast")
    page.reload()
    _shows(page, "learn_fast")  # the address holds what was asked for
    page.get_by_test_id("job-search").fill("nothing has this name")
    expect(page.get_by_text("No job matches.")).to_be_visible()


def test_states_and_labels_filter_and_have_counts(jobs: Submitter, open_console: Open) -> None:
    page = open_console(PROJECT, "/jobs")
    jobs.wait("runs", {"RUNNING"})
    expect(page.get_by_test_id("state-Failed")).to_contain_text("1")
    page.get_by_test_id("state-Failed").click()
    _shows(page, "harmful")
    expect(page.get_by_test_id("state-Failed")).to_have_attribute("aria-pressed", "true")
    expect(page.get_by_test_id("state-Succeeded")).to_contain_text("2")
    page.get_by_test_id("state-All").click()
    page.locator("tr[data-key=learn_slow]").get_by_text("phase=sweep").click()
    _shows(page, "learn_fast", "learn_slow")
    page.get_by_role("button", name="Do not filter by phase=sweep").click()
    expect(page.locator("tr[data-key=harmful]")).to_be_visible()
    page.get_by_test_id("kind").select_option("prediction")
    expect(page.get_by_text("No job matches.")).to_be_visible()


def test_the_table_follows_jobs_and_keeps_focus_and_selection(jobs: Submitter, open_console: Open) -> None:
    page = open_console(PROJECT, "/jobs")
    page.evaluate("window.sameWindow = true")
    page.get_by_label("Select learn_slow").check()
    page.locator("tr[data-key=learn_fast] a").focus()
    jobs.submit("came_later", WAITS)
    row = page.locator("tr[data-key=came_later]")
    expect(row.locator("[data-state=RUNNING]")).to_be_visible(timeout=WAIT_MS)
    jobs.server.call("POST", f"/v1/projects/{PROJECT}/jobs/came_later:cancel", {})
    expect(row.locator("[data-state=CANCELLED]")).to_be_visible(timeout=WAIT_MS)
    expect(page.get_by_label("Select learn_slow")).to_be_checked()
    expect(page.locator("tr[data-key=learn_fast] a")).to_be_focused()
    assert page.evaluate("window.sameWindow")


def test_markup_in_an_error_stays_text(jobs: Submitter, open_console: Open) -> None:
    page = open_console(PROJECT, "/jobs?state=FAILED")
    expect(page.locator(".row-message")).to_contain_text("<b>bold</b>")
    assert page.locator("main img, main b").count() == 0
    assert "harmed" not in page.title()


def test_arrows_go_from_row_to_row_and_enter_opens(jobs: Submitter, open_console: Open) -> None:
    page = open_console(PROJECT, "/jobs?label=phase")
    _shows(page, "learn_fast", "learn_slow")
    page.locator("tr[data-key=learn_fast] a").focus()
    page.keyboard.press("ArrowDown")
    expect(page.locator("tr[data-key=learn_slow] a")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("/jobs/learn_slow$"))


def test_the_empty_table_says_what_to_type(page: Page, server: RunningServer) -> None:
    page.goto(f"{server.url}/#/p/console-empty/jobs")
    expect(page.get_by_test_id("empty")).to_contain_text("trainshed jobs submit training")
    page.get_by_test_id("submit-help").click()
    expect(page.get_by_role("dialog")).to_contain_text("--project console-empty")


def test_a_long_table_is_read_as_one_scrolls(trainers: Callable[[str], Submitter], open_console: Open) -> None:
    submitter = trainers(MANY)
    first = submitter.submit("many_000", WAITS)  # so that none ends by itself before it is cancelled
    _cancel(submitter, "many_000")
    for number in range(1, 130):
        body = {"jobId": f"many_{number:03}", "trainingInput": first["trainingInput"]}
        submitter.server.call("POST", f"/v1/projects/{MANY}/jobs", body)
        _cancel(submitter, body["jobId"])
    page = open_console(MANY, "/jobs", height=500)
    expect(page.locator("tr[data-key=many_129]")).to_be_visible()
    expect(page.get_by_test_id("state-All")).to_contain_text("130")
    page.keyboard.press("End")
    expect(page.get_by_text("130 jobs, and no more.")).to_be_attached(timeout=WAIT_MS)
    last = page.locator("tr[data-key=many_000]")

    def to_the_end() -> bool:  # the table grows while it loads, so one key may end above the last row
        page.keyboard.press("End")
        return last.is_visible()

    eventually(to_the_end)
    assert _shown(page) == [f"many_{number:03}" for number in reversed(range(130))]
    assert page.locator("tbody tr").count() < 100  # the others are empty room

    row = page.locator("tr[data-key=many_010]")
    row.scroll_into_view_if_needed()
    before = row.bounding_box()
    submitter.submit("many_130", "pass")
    expect(page.get_by_text("131 jobs, and no more.")).to_be_attached(timeout=WAIT_MS)
    after = row.bounding_box()
    assert before and after and abs(before["y"] - after["y"]) < 5  # what one looks at stays where it is
    assert _shown(page) == [f"many_{number:03}" for number in reversed(range(131))]


def _cancel(submitter: Submitter, job: str) -> None:
    submitter.server.call("POST", f"/v1/projects/{submitter.project}/jobs/{job}:cancel", {})


def test_jobs_are_compared(jobs: Submitter, open_console: Open) -> None:
    page = open_console(PROJECT, "/jobs?label=phase")
    _shows(page, "learn_fast", "learn_slow")
    expect(page.get_by_test_id("compare")).to_be_disabled()
    page.get_by_label("Select learn_slow").check()
    page.get_by_label("Select learn_fast").check()
    page.get_by_test_id("compare").click()

    expect(page.get_by_test_id("compare-jobs")).to_contain_text("learn_slow")
    expect(page.get_by_role("figure", name="Loss", exact=True).locator(".chart-line")).to_have_count(2)
    expect(page.get_by_role("figure", name="Accuracy", exact=True)).to_be_visible()
    results = page.get_by_test_id("compare-results")
    expect(results.locator("tr", has_text="Loss").locator("td")).to_have_text(["0.0392", "0.3333"])
    expect(results.locator("tr", has_text="Loss").locator(".cell-best")).to_have_text("0.0392")

    parameters = page.get_by_test_id("compare-parameters")
    expect(parameters.locator("tr", has_text="--rate").locator("td")).to_have_text(["0.5", "0.05"])
    expect(parameters).not_to_contain_text("--batch")
    page.get_by_test_id("only-different").uncheck()
    expect(parameters.locator("tr", has_text="--batch").locator("td")).to_have_text(["64", "64"])
    expect(parameters.locator(".row-different", has_text="--rate")).to_be_visible()


def test_a_chart_shows_values_by_pointer_and_by_keys(jobs: Submitter, open_console: Open) -> None:
    page = open_console(PROJECT, "/compare?jobs=learn_fast,learn_slow")
    chart = page.get_by_role("figure", name="Loss", exact=True)
    tip = chart.locator(".chart-tip")
    chart.locator(".chart-stage").hover()
    expect(tip).to_contain_text(re.compile("step [456]0"))
    expect(tip).to_contain_text("learn_fast")
    chart.locator(".chart-stage").focus()
    page.keyboard.press("End")
    expect(tip).to_contain_text("step 100")
    page.keyboard.press("ArrowLeft")
    expect(tip).to_contain_text("step 90")
    chart.get_by_role("button", name="learn_fast").click()
    expect(chart.locator(".chart-line")).to_have_count(1)


def test_jobs_come_to_a_comparison_by_name_and_go(jobs: Submitter, open_console: Open) -> None:
    page = open_console(PROJECT, "/compare")
    expect(page.get_by_test_id("empty")).to_be_visible()
    for name in ("learn_fast", "no_such_job"):
        page.get_by_test_id("compare-add").fill(name)
        page.get_by_test_id("compare-add").press("Enter")
        expect(page.get_by_test_id("compare-jobs")).to_contain_text(name)
    expect(page.get_by_test_id("error")).to_contain_text("no_such_job")
    page.get_by_role("button", name="Take no_such_job out").click()
    expect(page.get_by_test_id("compare-jobs")).not_to_contain_text("no_such_job")
    expect(page.get_by_test_id("compare-jobs")).to_contain_text("learn_fast")
