"""The page of a job, in a real browser, with real jobs."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Page, Route, expect

from trainshed.testing.workloads.submitter import PACKAGE, Submitter

PROJECT = "console-job"
Open = Callable[..., Page]

WAIT_MS = 90_000.0

STEPS = """
import os, sys, time
sys.stdout.reconfigure(line_buffering=True)
for step in range(0, 101, 10):
    while step == 50 and sys.argv[2] == "wait" and not os.path.exists("go"):
        time.sleep(0.05)
    print(f"step {step}: loss = {2 / (step + 1):.4f}, accuracy = {step / 101:.4f}")
"""
WAITS = """
import time
print("waiting", flush=True)
time.sleep(600)
"""
STOPS = """
import os, signal
os.kill(os.getpid(), signal.SIGSTOP)
"""
FAILS = """
def load(path):
    raise FileNotFoundError(f"there is no file {path}")
load("<b>data</b>.csv")
"""
WRITES = """
import argparse, json, pathlib
parser = argparse.ArgumentParser()
parser.add_argument("--job-dir")
out = pathlib.Path(parser.parse_args().job_dir)
(out / "export").mkdir(parents=True)
(out / "notes.txt").write_text("first line\\nsecond line\\n")
(out / "result.json").write_text(json.dumps({"accuracy": 0.98}))
(out / "<i>page<i>.html").write_text("<script>document.title = 'harmed'</script>")
(out / "export" / "weights.bin").write_bytes(bytes(2048))
"""

EXPORTS = """
import argparse, pathlib
parser = argparse.ArgumentParser()
parser.add_argument("--job-dir")
folder = pathlib.Path(parser.parse_args().job_dir) / "export" / "1605475055"
folder.mkdir(parents=True)
(folder / "saved_model.pb").touch()
"""


@pytest.fixture
def jobs(trainers: Callable[[str], Submitter]) -> Submitter:
    return trainers(PROJECT)


def test_a_stopped_replica_is_shown_with_a_remedy_until_it_goes_on(jobs: Submitter, open_console: Open) -> None:
    jobs.submit("stops_1", STOPS)
    page = open_console(PROJECT, "/jobs/stops_1")
    box = page.get_by_test_id("job-hang")
    expect(box).to_contain_text("A replica is stopped", timeout=WAIT_MS)
    expect(box).to_contain_text("master-replica-0")
    remedy = re.search(r"kill -CONT (\d+)", box.inner_text())
    assert remedy is not None
    os.kill(int(remedy[1]), signal.SIGCONT)
    expect(page.get_by_test_id("job-state")).to_have_text("Succeeded", timeout=WAIT_MS)
    expect(box).to_have_count(0)


def test_the_page_follows_a_job_without_a_reload(jobs: Submitter, open_console: Open) -> None:
    jobs.submit("follow_1", STEPS, args=["--train_steps=100", "wait"])
    page = open_console(PROJECT, "/jobs/follow_1?tab=charts")
    page.evaluate("window.sameWindow = true")
    state = page.get_by_test_id("job-state")
    expect(state).to_have_text("Running", timeout=WAIT_MS)
    expect(page.get_by_test_id("job-progress")).to_contain_text(re.compile(r"step \d+ of 100 · \d+ %"), timeout=WAIT_MS)
    (jobs.attempt("follow_1") / "work" / "go").touch()
    expect(state).to_have_text("Succeeded", timeout=WAIT_MS)
    expect(page.get_by_test_id("job-progress")).to_be_hidden()
    expect(page.get_by_test_id("job-measures")).to_contain_text("Loss0.0198")
    expect(page.get_by_test_id("job-cancel")).to_be_hidden()
    expect(page).to_have_title(re.compile("follow_1 · Succeeded"))
    assert page.evaluate("window.sameWindow") is True


def test_a_failure_is_explained_at_the_top(jobs: Submitter, open_console: Open) -> None:
    jobs.submit("fail_1", FAILS)
    page = open_console(PROJECT, "/jobs/fail_1")
    failure = page.get_by_test_id("job-failure")
    expect(failure).to_contain_text("FileNotFoundError: there is no file <b>data</b>.csv", timeout=WAIT_MS)
    expect(failure.locator("b")).to_have_count(0)
    expect(page.get_by_test_id("job-state")).to_have_text("Failed")
    failure.get_by_role("link", name="All its errors in the log").click()
    expect(page.get_by_test_id("log-severity")).to_have_value("ERROR")
    expect(page.get_by_test_id("log-row").first).to_have_class(re.compile("log-ERROR"))
    expect(page.get_by_test_id("log-list").locator(".log-INFO")).to_have_count(0)


def test_a_job_is_cancelled_once_it_is_confirmed(jobs: Submitter, open_console: Open) -> None:
    jobs.submit("cancel_1", WAITS)
    page = open_console(PROJECT, "/jobs/cancel_1")
    expect(page.get_by_test_id("job-state")).to_have_text("Running", timeout=WAIT_MS)
    page.get_by_test_id("job-cancel").click()
    page.keyboard.press("Escape")
    expect(page.get_by_test_id("dialog")).to_have_count(0)
    assert jobs.get("cancel_1")["state"] == "RUNNING"
    page.get_by_test_id("job-cancel").click()
    page.get_by_test_id("confirm-yes").click()
    expect(page.get_by_test_id("job-state")).to_have_text("Cancelled", timeout=WAIT_MS)
    assert jobs.get("cancel_1")["state"] == "CANCELLED"


def test_a_clone_is_offered_a_name_that_is_free(jobs: Submitter, open_console: Open) -> None:
    for name in ("again_1", "again_2"):
        jobs.submit(name, STEPS, args=["1", "0"])
    page = open_console(PROJECT, "/jobs/again_1")
    page.get_by_test_id("job-clone").click()
    expect(page.get_by_test_id("clone-name")).to_have_value("again_3")


def test_a_clone_has_the_changes_and_the_servers_sentences_are_at_their_fields(
    jobs: Submitter, open_console: Open
) -> None:
    folder = f"gs://{jobs.bucket}/clone_1"
    jobs.submit("clone_1", STEPS, args=["--train_steps=100", "0"], jobDir=folder, scheduling={"priority": 3})
    page = open_console(PROJECT, "/jobs/clone_1")
    page.get_by_test_id("job-clone").click()
    name = page.get_by_test_id("clone-name")
    expect(name).to_have_value("clone_2")
    expect(page.get_by_test_id("clone-folder")).to_have_value(f"gs://{jobs.bucket}/clone_2")
    name.fill("clone_1")
    page.get_by_test_id("clone-submit").click()
    expect(page.locator(".field", has=name).get_by_role("alert")).to_contain_text("already exists")
    expect(name).to_be_focused()
    name.fill("")
    name.fill("cloned")
    output = page.get_by_test_id("clone-folder")
    expect(output).to_have_value(f"gs://{jobs.bucket}/cloned")
    output.fill("gs://no-such-bucket/cloned")
    page.get_by_test_id("clone-submit").click()
    expect(page.locator(".field", has=output).get_by_role("alert")).to_have_text(re.compile("^The bucket gs://no-such"))
    expect(output).to_be_focused()
    output.fill(f"gs://{jobs.bucket}/cloned")
    page.get_by_test_id("clone-args").fill("--train_steps=50\n0\n\n--words=two words")
    page.get_by_test_id("clone-labels").fill("team=blue\nkind=")
    page.get_by_test_id("clone-submit").click()
    expect(page.get_by_test_id("job-name")).to_have_text("cloned")
    made = jobs.get("cloned")
    assert made["trainingInput"]["args"] == ["--train_steps=50", "0", "--words=two words"]
    assert made["trainingInput"]["jobDir"] == f"gs://{jobs.bucket}/cloned"
    assert made["trainingInput"]["scheduling"] == {"priority": 3}
    assert made["labels"] == {"team": "blue", "kind": ""}


def test_a_clone_can_be_written_as_json(jobs: Submitter, open_console: Open) -> None:
    jobs.submit("json_1", STEPS, args=["--train_steps=100", "0"])
    page = open_console(PROJECT, "/jobs/json_1")
    page.get_by_test_id("job-clone").click()
    page.get_by_test_id("clone-args").fill("--from=form\n0")
    page.get_by_test_id("dialog").get_by_role("tab", name="JSON").click()
    raw = page.get_by_test_id("clone-raw")
    body: dict[str, Any] = json.loads(raw.input_value())
    assert body["trainingInput"]["args"] == ["--from=form", "0"]
    raw.fill("{ no json")
    page.get_by_test_id("clone-submit").click()
    expect(page.get_by_test_id("dialog")).to_contain_text("This is not JSON")
    body["trainingInput"]["args"] = ["--from=json", "0"]
    raw.fill(json.dumps(body))
    page.get_by_test_id("clone-submit").click()
    expect(page.get_by_test_id("job-name")).to_have_text("json_2")
    assert jobs.get("json_2")["trainingInput"]["args"] == ["--from=json", "0"]


def test_the_command_submits_the_same_job_again(jobs: Submitter, open_console: Open) -> None:
    args = ["--train_steps=100", "0", "--quote", 'it\'s "here" $HOME `id`', "*", "a\nb"]
    jobs.submit("command_1", STEPS, args=args, jobDir=f"gs://{jobs.bucket}/command_1")
    page = open_console(PROJECT, "/jobs/command_1?tab=details")
    command = page.get_by_test_id("job-command").locator("code").inner_text()
    words = shlex.split(command.replace("\\\n", " "))  # as a shell joins lines
    assert words[:5] == ["trainshed", "jobs", "submit", "training", "command_2"]
    assert words[words.index("--") + 1 :] == args
    assert words[words.index("--packages") + 1] == f"gs://{jobs.bucket}/command_1/{PACKAGE}"
    assert words[words.index("--job-dir") + 1] == f"gs://{jobs.bucket}/command_2"
    page.get_by_role("tab", name="gcloud").click()
    expect(page.get_by_test_id("job-command")).to_contain_text("gcloud ai-platform jobs submit training command_2")
    expect(page.get_by_test_id("job-events")).to_contain_text("Job command_1 is queued.")
    expect(page.get_by_test_id("job-events")).to_contain_text("Job completed successfully.", timeout=WAIT_MS)


@pytest.mark.fault("F67")
def test_files_are_shown_and_looked_into_and_can_do_no_harm(jobs: Submitter, open_console: Open) -> None:
    jobs.submit("files_1", WRITES, jobDir=f"gs://{jobs.bucket}/files_1")
    page = open_console(PROJECT, "/jobs/files_1?tab=files")
    table = page.get_by_test_id("file-table")
    expect(table).to_contain_text("notes.txt", timeout=WAIT_MS)
    table.get_by_role("button", name="result.json").click()
    expect(page.get_by_test_id("preview")).to_contain_text('"accuracy": 0.98')
    page.keyboard.press("Escape")
    table.get_by_role("button", name="<i>page<i>.html").click()
    expect(page.get_by_test_id("preview")).to_contain_text("<script>document.title = 'harmed'</script>")
    page.keyboard.press("Escape")
    with page.expect_download() as download:
        table.get_by_role("link", name="Download notes.txt").click()
    assert download.value.path().read_text() == "first line\nsecond line\n"
    table.get_by_role("button", name="export/").click()
    expect(page.get_by_test_id("file-table")).to_contain_text("weights.bin")
    expect(page.get_by_test_id("file-table")).to_contain_text("2 KB")
    assert "harmed" not in page.title()


def test_replicas_and_their_use_stand_side_by_side_and_one_can_be_killed(jobs: Submitter, open_console: Open) -> None:
    gang = {"scaleTier": "CUSTOM", "masterType": "standard", "workerType": "standard", "workerCount": "1"}
    jobs.submit("gang_1", WAITS, **gang)
    page = open_console(PROJECT, "/jobs/gang_1?tab=replicas")
    row = page.get_by_test_id("replica-table").get_by_role("row", name=re.compile("worker-replica-0"))
    expect(row).to_contain_text("running", timeout=WAIT_MS)
    page.get_by_test_id("kill-worker-replica-0").click()
    expect(page.get_by_test_id("dialog")).to_contain_text("The whole gang is started again.")
    page.get_by_test_id("confirm-yes").click()
    expect(row.get_by_role("cell").nth(7)).to_have_text("1", timeout=WAIT_MS)
    page.get_by_test_id("tab-charts").click()
    for use in ("charts-cpu", "charts-memory"):
        expect(page.get_by_test_id(use).locator("article")).to_have_count(2, timeout=WAIT_MS)
    jobs.server.call("POST", f"/v1/projects/{PROJECT}/jobs/gang_1:cancel", {})


def test_tabs_are_places_and_keys_move_between_them(jobs: Submitter, open_console: Open) -> None:
    jobs.submit("tabs_1", STEPS, args=["--train_steps=100", "0"])
    page = open_console(PROJECT, "/jobs/tabs_1?tab=replicas")
    tab = page.get_by_test_id("tab-replicas")
    expect(tab).to_have_attribute("aria-selected", "true")
    tab.focus()
    page.keyboard.press("ArrowRight")
    expect(page.get_by_test_id("tab-files")).to_be_focused()
    expect(page).to_have_url(re.compile(r"\?tab=files$"))
    page.reload()
    expect(page.get_by_test_id("tab-files")).to_have_attribute("aria-selected", "true")


def test_a_job_that_is_not_there_is_said_to_be_absent(jobs: Submitter, open_console: Open) -> None:
    page = open_console(PROJECT, "/jobs/<b>none<b>")
    expect(page.get_by_test_id("empty")).to_contain_text("There is no such job")
    expect(page.get_by_role("heading", name="<b>none<b>")).to_be_visible()


@pytest.mark.parametrize("tab", ["logs", "charts", "replicas", "files", "details"])
def test_nothing_is_wider_than_a_narrow_screen(tab: str, jobs: Submitter, open_console: Open) -> None:
    job = f"narrow_{tab}_{'x' * 60}"
    jobs.submit(job, STEPS, args=["--train_steps=100", "0", "y" * 200], jobDir=f"gs://{jobs.bucket}/{job}")
    page = open_console(PROJECT, f"/jobs/{job}?tab={tab}", width=390, height=800)
    expect(page.get_by_test_id("job-state")).to_have_text("Succeeded", timeout=WAIT_MS)
    assert page.evaluate("document.scrollingElement.scrollWidth") <= 390


def test_a_deployment_is_followed_over_a_lost_connection_and_a_failure_can_be_mended(
    jobs: Submitter, open_console: Open
) -> None:
    jobs.submit("exports_1", EXPORTS, jobDir=f"gs://{jobs.bucket}/exports_1")
    jobs.wait("exports_1")
    page = open_console(PROJECT, "/jobs/exports_1")
    operation = f"projects/{PROJECT}/operations/create_exports_v1-1"
    answers = [None, {}, {"done": True, "error": {"message": "It is <b>no model</b>."}}, {}, {"done": True}]

    def tell(route: Route) -> None:
        answer = answers.pop(0)
        route.abort("connectionrefused") if answer is None else route.fulfill(json=answer)

    page.route("**/models/exports/versions", lambda route: route.fulfill(json={"name": operation}))
    page.route("**/models/exports/versions/v1", lambda route: route.fulfill(json={"progress": "Comparing"}))
    page.route(f"**/v1/{operation}", tell)
    page.get_by_test_id("job-deploy").click(timeout=WAIT_MS)
    page.get_by_test_id("deploy-go").click()
    dialog = page.get_by_test_id("dialog")
    expect(dialog).to_contain_text("It is <b>no model</b>.", timeout=WAIT_MS)
    page.get_by_test_id("deploy-go").click()
    expect(page.get_by_test_id("deploy-done")).to_have_text("Version v1 of exports is ready to predict.")
    assert answers == []
