"""From a trainer package to a drawing that is classified: real TensorFlow, followed and deployed in the console."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from trainshed.testing.processes.servers import RunningServer
from trainshed.testing.workloads.digits import write_part
from trainshed.testing.workloads.drawings import DRAWN, draw

SAMPLE = Path(__file__).resolve().parents[2] / "samples" / "mnist_async"
TRAINSHED = Path(sys.executable).with_name("trainshed")
PROJECT = "console-path"
BUCKET = f"gs://{PROJECT}-ml"
JOB = "mnist_1"
STEPS = 20
WAIT_MS = 400_000.0
Open = Callable[..., Page]


@pytest.fixture(scope="module")
def server(framework_server: RunningServer) -> RunningServer:
    return framework_server


def trainshed(server: RunningServer, *words: object) -> None:
    env = server.env() | {"TRAINSHED_PROJECT": PROJECT}
    command = [str(word) for word in (TRAINSHED, *words)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def data(server: RunningServer, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A bucket with MNIST, of which a part is enough."""
    mnist, folder = tmp_path_factory.mktemp("mnist"), tmp_path_factory.mktemp("records")
    write_part(mnist, train=1000, test=200)
    script = SAMPLE / "scripts" / "create_records.py"
    words = ("--output-dir", folder, "--source-dir", mnist)
    subprocess.run([sys.executable, script, *words], check=True, timeout=300)
    trainshed(server, "buckets", "mb", BUCKET)
    trainshed(server, "buckets", "cp", folder / "train.tfrecords", folder / "test.tfrecords", f"{BUCKET}/data/")


def submit(server: RunningServer) -> None:
    """As a person does it in a shell. One replica; test_job_page.py looks at gangs, test_demo.py trains with one."""
    flags = (
        f"--package-path={SAMPLE / 'trainer'} --module-name=trainer.task --region=us-central1 "
        f"--job-dir={BUCKET}/{JOB} --staging-bucket={BUCKET} --runtime-version=2.21 --scale-tier=BASIC"
    ).split()
    args = (f"--data_dir={BUCKET}/data", f"--output_dir={BUCKET}/{JOB}", f"--train_steps={STEPS}")
    trainshed(server, "jobs", "submit", "training", JOB, *flags, "--", *args, "--log_interval_secs=1")


@pytest.mark.timeout(900)
@pytest.mark.usefixtures("data")
def test_from_submit_to_a_drawing_that_is_classified(server: RunningServer, open_console: Open) -> None:
    page = open_console(PROJECT, "/jobs")
    expect(page.get_by_test_id("empty")).to_be_visible()
    page.evaluate("window.sameWindow = true")

    submit(server)
    page.locator(f"tr[data-key={JOB}] a").click(timeout=WAIT_MS)
    state = page.get_by_test_id("job-state")
    expect(state).to_have_text(re.compile("Running|Succeeded"), timeout=WAIT_MS)  # so few steps may be done by now
    page.get_by_test_id("tab-charts").click()
    progress = page.get_by_test_id("job-progress")
    expect(progress).to_contain_text(re.compile(rf"step \d+ of {STEPS} · \d+ %"), timeout=WAIT_MS)
    expect(page.get_by_test_id("charts-cpu").locator("article")).to_have_count(1, timeout=WAIT_MS)
    expect(state).to_have_text("Succeeded", timeout=WAIT_MS)
    for chart in ("Loss", "Accuracy"):
        card = page.get_by_test_id("charts-training").locator("article", has=page.get_by_role("heading", name=chart))
        expect(card.locator(".chart-line").first).to_be_visible()

    page.get_by_test_id("job-deploy").click()  # the two clicks
    page.get_by_test_id("deploy-go").click()
    expect(page.get_by_test_id("deploy-done")).to_have_text("Version v1 of mnist is ready to predict.", timeout=WAIT_MS)
    page.get_by_role("link", name="Try it in the playground").click()
    classifies_a_drawing(page)

    a_version_from_the_jobs_export(page)
    assert page.evaluate("window.sameWindow"), "nothing was loaded again"


def classifies_a_drawing(page: Page) -> None:
    """As any digit, after so few steps. test_playground.py has a network that knows them all."""
    expect(page.get_by_test_id("pad")).to_be_visible()
    draw(page, DRAWN["3"])
    expect(page.get_by_test_id("digit")).to_have_text(re.compile(r"^\d$"))
    digit = int(page.get_by_test_id("digit").inner_text())
    bars = page.get_by_test_id("bars").get_by_role("listitem")
    expect(bars).to_have_count(10)
    expect(bars.nth(digit)).to_have_class("bar-row bar-best")


def a_version_from_the_jobs_export(page: Page) -> None:
    """The other way to a version: from the page of the model."""
    page.evaluate(f"location.hash = '#/p/{PROJECT}/models/mnist'")
    page.get_by_test_id("create-version").click()
    expect(page.get_by_test_id("version-new")).to_have_value("v2")
    page.get_by_test_id("export-job").select_option(JOB)
    expect(page.get_by_test_id("exports").get_by_role("radio")).to_have_count(1)
    folder = page.get_by_test_id("version-origin")
    expect(folder).to_have_value(re.compile(rf"^{BUCKET}/{JOB}/export/Servo/\d{{10}}/?$"))
    page.get_by_test_id("version-go").click()
    made = page.get_by_test_id("version-v2")
    expect(made.locator("[data-state=READY]")).to_be_visible(timeout=WAIT_MS)
    made.get_by_test_id("make-default").click()
    expect(made.get_by_test_id("default")).to_be_visible()
    page.evaluate(f"location.hash = '#/p/{PROJECT}/playground?model=mnist'")
    expect(page.get_by_test_id("version").locator("option:checked")).to_have_text("default (v2)")
    classifies_a_drawing(page)
