"""Models in a real browser, served by real hosts: deployed, split, rolled back, refused and called."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from trainshed.testing.clusters.containers import Podman
from trainshed.testing.processes.servers import RunningServer
from trainshed.testing.workloads.deployer import Deployer

PROJECT = "console-models"
HARM = "<img src=x onerror=document.title='harmed'>"
WAIT_MS = 90_000.0
#: answers what files there are, which is enough to be healthy
SERVE = (
    "import http.server as s; "
    "s.test(s.SimpleHTTPRequestHandler, port=int(os.environ['AIP_HTTP_PORT']), bind='127.0.0.1')"
)
Open = Callable[..., Page]


@pytest.fixture(scope="module")
def server(framework_server: RunningServer) -> RunningServer:
    return framework_server


@pytest.fixture(scope="module")
def scored(server: RunningServer, tmp_path_factory: pytest.TempPathFactory) -> Deployer:
    """A model with two versions that answer two numbers."""
    deployer = Deployer(server, PROJECT, tmp_path_factory.mktemp("models"), model="scored")
    answer = "return [[0.25, 0.75] for each in instances]"
    for version in ("v1", "v2"):
        deployer.deploy_routine(version, answer=answer, description=HARM)
    return deployer


def test_a_model_is_created_and_deleted(open_console: Open) -> None:
    page = open_console(PROJECT, "/models")
    page.get_by_test_id("create-model").click()
    page.get_by_test_id("model-name").fill("no name")
    page.get_by_test_id("create-model-go").click()
    expect(page.get_by_role("alert")).to_contain_text("The name of a model starts with a letter")
    page.get_by_test_id("model-name").fill("empty")
    page.get_by_test_id("create-model-go").click()
    expect(page.get_by_test_id("empty")).to_contain_text("trainshed versions create v1 --model empty")
    page.get_by_test_id("delete-model").click()
    page.get_by_test_id("confirm-yes").click()
    expect(page.get_by_role("heading", name="Models", exact=True)).to_be_visible()


def test_versions_traffic_and_what_serves_them_are_shown(scored: Deployer, open_console: Open) -> None:
    for _ in range(7):
        scored.predict("", [1.0])
    page = open_console(PROJECT, "/models/scored")
    first = page.get_by_test_id("version-v1")
    expect(first).to_contain_text("default")
    expect(first).to_contain_text("runtime 2.21")
    expect(first).to_contain_text(re.compile(r"\d+ requests in the last hour"))
    expect(first).to_contain_text(HARM)
    expect(page.get_by_test_id("figures")).to_contain_text("requests")
    before = int(re.sub(r"\D", "", page.get_by_test_id("figures").locator("b").first.text_content() or ""))
    scored.predict("", [1.0])
    expect(page.get_by_test_id("figures").locator("b").first).to_have_text(str(before + 1))  # live
    assert "harmed" not in page.title()


def test_the_list_has_the_default_the_traffic_and_errors(scored: Deployer, open_console: Open) -> None:
    scored.predict("v1", [1.0])
    page = open_console(PROJECT, "/models")
    row = page.get_by_test_id("models").locator("tr").filter(has_text="scored")
    expect(row).to_contain_text("v1")
    expect(row).to_contain_text("Ready")
    row.get_by_role("link", name="scored").click()
    expect(page.get_by_test_id("version-v2")).to_be_visible()


def test_default_split_and_roll_back(scored: Deployer, open_console: Open) -> None:
    page = open_console(PROJECT, "/models/scored")
    second = page.get_by_test_id("version-v2")
    second.get_by_test_id("make-default").click()
    expect(second.get_by_test_id("default")).to_be_visible()

    page.get_by_test_id("split").click()
    page.get_by_test_id("share-v1").fill("10")
    expect(page.get_by_test_id("share-v2")).to_have_value("90")
    page.get_by_test_id("split-go").click()
    expect(page.get_by_test_id("split-bar")).to_contain_text("v2 90 %")

    page.get_by_test_id("version-v1").get_by_test_id("delete-version").click()
    page.get_by_test_id("confirm-yes").click()
    expect(page.get_by_test_id("toast").last).to_contain_text(
        "Version v1 gets 10 % of the requests"
    )  # as the server says

    page.get_by_test_id("rollback").click()
    page.get_by_test_id("confirm-yes").click()
    expect(page.get_by_test_id("split-bar")).to_have_count(0)
    page.get_by_test_id("rollback").click()
    page.get_by_test_id("confirm-yes").click()
    expect(page.get_by_test_id("version-v1").get_by_test_id("default")).to_be_visible()


def test_a_rollout_is_watched_stopped_and_promoted(scored: Deployer, open_console: Open) -> None:
    rollouts = f"/trainshed{scored.path}/rollouts"
    default = scored.server.call("GET", scored.path)["defaultVersion"]["name"].rpartition("/")[2]
    other = {"v1": "v2", "v2": "v1"}[default]
    plan = {"version": other, "shadowSeconds": 600, "steps": [50, 100], "abortIf": ["changed>1%"], "minRequests": 3}
    page = open_console(PROJECT, "/models/scored")
    scored.server.call("POST", rollouts, plan)
    card = page.get_by_test_id("rollout-running")
    expect(card.get_by_role("status")).to_contain_text("0 of 3 requests")
    expect(card).to_contain_text("Rolled back if changed>1%")
    for _ in range(3):
        scored.predict("", [1.0])
    expect(card).to_contain_text("0 of 3")  # changed answers of those that were compared
    page.get_by_test_id("rollout-stop").click()
    expect(page.get_by_test_id("rollouts")).to_contain_text("stopped")

    scored.server.call("POST", rollouts, plan)
    page.get_by_test_id("rollout-promote").click()
    page.get_by_test_id("confirm-yes").click()
    expect(page.get_by_test_id("rollouts")).to_contain_text(f"{other} became the default")
    expect(page.get_by_test_id(f"version-{other}").get_by_test_id("default")).to_be_visible()
    scored.server.call("POST", f"/trainshed{scored.path}:rollback", {})


def test_a_version_that_can_not_be_loaded_says_why_and_is_deleted(scored: Deployer, open_console: Open) -> None:
    uri = scored.upload("broken/model.joblib", b"no model").rpartition("/")[0]
    page = open_console(PROJECT, "/models/scored")
    page.get_by_test_id("create-version").click()
    page.get_by_test_id("version-new").fill("broken")
    page.get_by_test_id("version-origin").fill(f"gs://{scored.bucket}/nothing")
    page.get_by_test_id("version-go").click()
    expect(page.get_by_test_id("dialog").get_by_role("alert")).to_contain_text("There are no files in")
    page.get_by_test_id("version-origin").fill(uri)
    page.get_by_test_id("version-go").click()
    broken = page.get_by_test_id("version-broken")
    expect(broken.get_by_test_id("error")).to_contain_text("Create Version failed", timeout=WAIT_MS)
    broken.get_by_test_id("delete-version").click()
    page.get_by_test_id("confirm-yes").click()
    expect(broken).to_have_count(0, timeout=WAIT_MS)


def test_a_version_can_be_a_container(scored: Deployer, open_console: Open, podman: Podman) -> None:
    image = podman.base()
    program = f"import os, time; os.mkdir('/tmp/w'); os.chdir('/tmp/w'); open('ok', 'w').close(); {SERVE}"
    container = {"image": image, "command": ["python3", "-c"], "args": [program]}
    body = {"name": "box", "container": container, "routes": {"health": "/ok"}}
    scored.finish(scored.server.call("POST", f"{scored.path}/versions", body))
    page = open_console(PROJECT, "/models/scored")
    box = page.get_by_test_id("version-box")
    expect(box).to_contain_text(f"the container {image}")
    expect(box).not_to_contain_text("runtime")
    box.get_by_test_id("version-name").click()
    expect(page.get_by_test_id("dialog")).to_contain_text(f"Served bythe container {image}")
    page.keyboard.press("Escape")
    page.get_by_test_id("create-version").click()
    page.get_by_test_id("version-new").fill("silent")
    page.get_by_test_id("version-container").get_by_text("A container of your own").click()
    page.get_by_test_id("version-image").fill("not an image")
    page.get_by_test_id("version-go").click()
    expect(page.get_by_test_id("dialog").get_by_role("alert")).to_contain_text("does not name an image")
    page.get_by_test_id("version-image").fill("localhost/no-such-image:1")
    page.get_by_test_id("version-port").fill("9000")
    page.get_by_test_id("version-health").fill("/health")
    page.get_by_test_id("version-go").click()
    silent = page.get_by_test_id("version-silent")
    expect(silent.get_by_test_id("error")).to_contain_text("is not on this machine", timeout=WAIT_MS)
    assert scored.get("silent")["container"]["ports"] == [{"containerPort": 9000}]
    assert scored.get("silent")["routes"] == {"health": "/health"}
    for version in ("box", "silent"):
        scored.finish(scored.delete(version))


def test_the_line_for_curl_works_and_no_line_holds_a_token(
    scored: Deployer, server: RunningServer, open_console: Open, tmp_path: Path
) -> None:
    page = open_console(PROJECT, "/models/scored")
    lines = page.get_by_test_id("calls")
    shown = ""
    for name in ("client", "google", "trainshed", "gcloud", "curl"):
        lines.get_by_test_id(f"tab-{name}").click()
        expect(lines.get_by_test_id(f"tab-{name}")).to_have_attribute("aria-selected", "true")
        shown = lines.locator("pre").text_content() or ""
        assert server.token not in shown
        assert "scored" in shown
    line = shown.replace("@request.json", "'{\"instances\": [[1.0]]}'")
    command = line.replace("$(trainshed auth print-access-token)", server.token)
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, cwd=tmp_path, check=True)
    assert "0.75" in done.stdout
