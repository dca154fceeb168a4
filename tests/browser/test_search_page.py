"""The trials of tuning jobs and of studies, in a real browser. The jobs are rows: no trial ever ran."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, Route, expect

from trainshed.store.database import Database
from trainshed.testing.processes.servers import RunningServer
from trainshed.testing.workloads.searches import write_search
from trainshed.testing.workloads.submitter import Submitter

Open = Callable[..., Page]
PROJECT = "console-search"
TRIALS = 30
STUDIES = f"/v1/projects/{PROJECT}/locations/us-central1/studies"

#: how many pixels of a plot's lower canvas are not empty
PAINTED = """
(canvas) => {
  const { width, height } = canvas;
  const data = canvas.getContext("2d").getImageData(0, 0, width, height).data;
  let painted = 0;
  for (let at = 3; at < data.length; at += 4) painted += Number(data[at] > 0);
  return painted;
}
"""


@pytest.fixture(scope="module", autouse=True)
def _searches(server: RunningServer) -> None:
    with closing(Database(server.home / "state.db")) as database:
        write_search(database, PROJECT, "first", trials=TRIALS)
        write_search(database, PROJECT, "second", trials=10, first=TRIALS + 1, resume="first")
        write_search(database, PROJECT, "exports", trials=12, job_dir=f"gs://{PROJECT}-models/out")


def painted(plot: Locator) -> int:
    plot.scroll_into_view_if_needed()
    expect(plot.locator("canvas").first).not_to_have_attribute("width", "300")  # of a canvas that was never drawn
    return int(plot.locator("canvas").first.evaluate(PAINTED))


def trials(page: Page) -> Locator:
    """The table, scrolled to: rows far from the screen are not in the page."""
    table = page.get_by_test_id("trials")
    table.scroll_into_view_if_needed()
    return table


def test_a_tuning_job_shows_its_best_trial_and_every_plot(open_console: Open) -> None:
    page = open_console(PROJECT, "/jobs/first")
    expect(page.get_by_test_id("search-counts")).to_contain_text("30 trials · ")
    expect(page.get_by_test_id("search-counts")).to_contain_text("without a value")
    for name in ("history", "parallel", "curves", "timeline", "contour"):
        assert painted(page.get_by_test_id(f"plot-{name}")) > 500, name
    assert page.get_by_test_id("plot-slices").locator("figure").count() == 4
    expect(page.get_by_test_id("plot-importance").locator(".bar-row")).to_have_count(4)
    page.get_by_test_id("search-best-trial").click()
    expect(page.get_by_test_id("trial-card")).to_contain_text("place 1 of")
    page.get_by_test_id("trial-card").get_by_role("link", name="Log").click()
    expect(page.get_by_role("button", name="Show all trials")).to_be_visible()


def test_one_choice_holds_for_all_plots_and_is_in_the_address(open_console: Open) -> None:
    page = open_console(PROJECT, "/jobs/first")
    page.get_by_test_id("best-share").click()
    expect(page.get_by_test_id("chosen")).to_have_text("3 of 30 trials chosen, in all plots")
    expect(trials(page).locator("tbody tr[data-key]")).to_have_count(3)
    page.reload()
    expect(page.get_by_test_id("best-share")).to_have_attribute("aria-pressed", "true")
    page.get_by_test_id("clear-choice").click()
    parallel = page.get_by_test_id("plot-parallel")
    parallel.scroll_into_view_if_needed()
    box = parallel.bounding_box()
    assert box is not None
    across = box["x"] + 58  # the first axis
    page.mouse.move(across, box["y"] + 60)
    page.mouse.down()
    page.mouse.move(across, box["y"] + 150, steps=4)
    page.mouse.up()
    expect(page.get_by_test_id("chosen")).to_contain_text("of 30 trials chosen")
    assert "where=p.learning_rate" in page.url
    parallel.get_by_role("group").focus()
    page.keyboard.press("Delete")
    expect(page.get_by_test_id("chosen")).to_have_text("30 trials")


def test_trials_are_reached_by_keyboard_and_a_stopped_one_says_why(open_console: Open) -> None:
    page = open_console(PROJECT, "/jobs/first")
    history = page.get_by_test_id("plot-history")
    history.get_by_role("group").focus()
    page.keyboard.press("Home")
    expect(history.get_by_role("status")).to_contain_text("Trial 1")
    page.keyboard.press("Enter")
    expect(page.get_by_test_id("trial-card")).to_contain_text("Trial 1")
    rows = trials(page)
    rows.get_by_role("button", name="Open trial 3", exact=True).click()
    expect(page.get_by_test_id("trial-reason")).to_contain_text("below the median")
    rows.get_by_role("button", name="units").click()
    expect(rows.locator("th[aria-sort=ascending]")).to_have_text("units")
    page.get_by_test_id("trial-close").click()
    expect(page.get_by_test_id("trial-card")).to_be_hidden()


def test_what_can_be_done_with_a_trial_is_in_sight_beside_many_columns(open_console: Open) -> None:
    page = open_console(PROJECT, "/jobs/first", width=1000)
    cell = trials(page).locator("tr[data-key] .cell-actions").first
    expect(cell.get_by_role("link", name="Log")).to_be_visible()
    table, actions = page.get_by_test_id("trials").bounding_box(), cell.bounding_box()
    assert table is not None
    assert actions is not None
    scroller = page.get_by_test_id("trials").locator(".table-scroll")
    assert scroller.evaluate("(node) => node.scrollWidth > node.clientWidth")  # else this test would see nothing
    assert actions["x"] + actions["width"] <= table["x"] + table["width"]


def test_a_continued_search_is_one_and_can_go_on(open_console: Open) -> None:
    page = open_console(PROJECT, "/jobs/second", width=390, height=800)
    expect(page.get_by_test_id("search-counts")).to_contain_text("30 of earlier jobs: first")
    expect(page.get_by_test_id("chosen")).to_have_text("40 trials")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.get_by_test_id("search-continue").click()
    expect(page.get_by_test_id("clone-trials")).to_have_value("10")
    page.get_by_test_id("clone-trials").fill("25")
    page.get_by_test_id("clone-parallel").fill("2")
    page.get_by_test_id("tab-json").click()
    expect(page.get_by_test_id("clone-raw")).to_have_value(re.compile(r'"maxTrials": 25\b'))
    expect(page.get_by_test_id("clone-raw")).to_have_value(re.compile(r'"maxParallelTrials": 2\b'))
    expect(page.get_by_test_id("clone-raw")).to_have_value(re.compile('"resumePreviousJobId": "second"'))


def test_the_best_trial_becomes_a_version_or_a_job_by_keyboard(
    open_console: Open, server: RunningServer, tmp_path: Path
) -> None:
    """What is deployed is the best trial's. The version is made by the answers of this test: no model is there."""
    page = open_console(PROJECT, "/jobs/exports", width=390, height=800, scheme="dark")
    best = page.get_by_test_id("search-best-trial").inner_text().removeprefix("Trial ")
    expect(page.get_by_test_id("job-clone")).to_be_visible()
    expect(page.get_by_test_id("job-deploy")).to_be_hidden()  # the search's own button does it
    page.get_by_test_id("search-promote").focus()
    page.keyboard.press("Enter")
    window = page.get_by_test_id("dialog")
    expect(window).to_contain_text(f"No folder of trial {best} holds a model")
    page.keyboard.press("Escape")
    server.call("POST", f"/storage/v1/b?project={PROJECT}", {"name": f"{PROJECT}-models"})
    jobs = Submitter(server, PROJECT, tmp_path, bucket=f"{PROJECT}-models")
    (tmp_path / "model.joblib").write_bytes(b"a model")
    jobs.upload(tmp_path / "model.joblib", f"out/{best}/export/model.joblib")
    sent: list[Any] = []
    operation = f"projects/{PROJECT}/operations/create_exports"

    def create(route: Route) -> None:
        if route.request.method != "POST":
            return route.fulfill(status=404, json={"error": {"code": 404, "message": "no model"}})
        sent.append(route.request.post_data_json)
        return route.fulfill(json={"name": operation})

    page.route("**/models/exports/versions", create)
    page.route("**/models/exports/versions/*", lambda route: route.fulfill(json={"progress": "Comparing"}))
    page.route(f"**/v1/{operation}", lambda route: route.fulfill(json={"done": True}))
    page.get_by_test_id("search-promote").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_test_id("deploy-go")).to_be_focused()
    expect(window).to_contain_text(f"out/{best}/export/")
    page.keyboard.press("Enter")
    expect(page.get_by_test_id("deploy-done")).to_contain_text(f"Version exports_trial_{best} of exports is ready")
    assert sent[0]["deploymentUri"] == f"gs://{PROJECT}-models/out/{best}/export/"
    page.keyboard.press("Escape")
    page.get_by_test_id("search-train").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_test_id("clone-folder")).to_have_value(f"gs://{PROJECT}-models/out/exports_2")
    expect(page.get_by_test_id("clone-args")).to_have_value(re.compile("--optimizer"))
    expect(page.get_by_test_id("clone-trials")).to_be_hidden()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_a_running_trial_can_be_stopped_and_the_search_steered(open_console: Open, server: RunningServer) -> None:
    """The answer is that of a job that runs; what the page does with it is its own."""
    page = open_console(PROJECT, "/jobs")
    stopped: list[str] = []

    def running(route: Route) -> None:
        table = server.call("GET", f"/trainshed/v1/projects/{PROJECT}/jobs/first/search")
        at: dict[str, Any] = table["trials"][-1]
        at |= {"state": "CANCELLING" if stopped else "RUNNING", "metrics": [None], "endTime": None}
        route.fulfill(json=table | {"ended": False, "state": "RUNNING", "maxTrials": 40})

    def stop(route: Route) -> None:
        stopped.append(route.request.url)
        route.fulfill(json={})

    sent: list[Any] = []

    def steer(route: Route) -> None:
        sent.append((route.request.url.rpartition(":")[2], route.request.post_data_json))
        route.fulfill(json={})

    page.route("**/jobs/first:*", steer)
    page.route("**/jobs/first/search", running)
    page.route("**/trials/30:stop", stop)
    page.goto(f"{server.url}/#/p/{PROJECT}/jobs/first")
    expect(page.get_by_test_id("search-counts")).to_contain_text("1 running of 4 at a time")
    row = trials(page).locator("tr[data-key='30']")
    row.get_by_test_id("stop-30").click()
    page.get_by_test_id("confirm-yes").click()
    expect(row).to_contain_text("Stopping")
    assert len(stopped) == 1
    page.get_by_test_id("search-change").click()
    page.get_by_test_id("change-trials").fill("50")
    page.get_by_test_id("change-go").click()
    page.get_by_test_id("search-try").click()
    window = page.get_by_test_id("dialog")
    window.get_by_label("optimizer").select_option("adam")
    window.get_by_label("units").fill("64")
    page.get_by_test_id("try-go").click()
    page.get_by_test_id("search-finish").click()
    page.get_by_test_id("confirm-yes").click()
    expect(page.get_by_test_id("toast").last).to_contain_text("comes to its end")
    assert sent[0] == ("changeSearch", {"maxTrials": 50, "maxParallelTrials": 4})
    point = sent[1][1]["hyperparameters"]
    assert (sent[1][0], point["units"], point["optimizer"]) == ("tryPoint", 64, "adam")
    assert sent[2][0] == "finishSearch"


def test_studies_are_listed_and_one_with_two_metrics_has_a_front(open_console: Open, server: RunningServer) -> None:
    page = open_console(PROJECT, "/studies")
    expect(page.get_by_test_id("empty")).to_contain_text("No studies in this project")
    metrics = [{"metric": "accuracy", "goal": "MAXIMIZE"}, {"metric": "latency", "goal": "MINIMIZE"}]
    spec = {"parameter": "<b>rate</b>", "type": "DOUBLE", "doubleValueSpec": {"minValue": 0, "maxValue": 1}}
    server.call("POST", f"{STUDIES}?studyId=both", {"studyConfig": {"metrics": metrics, "parameters": [spec]}})
    for accuracy, latency in ((0.9, 30.0), (0.8, 10.0), (0.7, 20.0)):
        values = [{"metric": "accuracy", "value": accuracy}, {"metric": "latency", "value": latency}]
        point = [{"parameter": "<b>rate</b>", "floatValue": accuracy}]
        trial = {"state": "COMPLETED", "parameters": point, "finalMeasurement": {"metrics": values}}
        server.call("POST", f"{STUDIES}/both/trials", trial)
    page.reload()
    page.get_by_role("link", name="both").click()
    expect(page.get_by_test_id("search-best")).to_contain_text("2 trials")
    expect(page.get_by_test_id("study-state")).to_have_text("Active")
    assert painted(page.get_by_test_id("plot-pareto")) > 300
    assert page.locator("main b", has_text="rate").count() == 0
    server.call("POST", f"{STUDIES}/both/trials:suggest", {"clientId": "w", "suggestionCount": 1})
    trials(page).get_by_test_id("stop-4").click()
    page.get_by_test_id("confirm-yes").click()
    expect(trials(page).locator("tr[data-key='4']")).to_contain_text("Stopping")
    page.goto(f"{server.url}/#/p/{PROJECT}/studies/us-central1/absent")
    expect(page.get_by_test_id("empty")).to_contain_text("no study of this name in us-central1")
