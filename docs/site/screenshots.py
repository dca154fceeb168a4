"""Take the pictures of the console that README.md and docs/console.md show: a project with real jobs and a real model.

python docs/site/screenshots.py              # trains, deploys and takes all pictures: about four minutes on two cores
python docs/site/screenshots.py --home DIR   # keeps the state in DIR; the next run with it only takes the pictures
python docs/site/screenshots.py jobs compare # only these
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import Browser, Page, expect

from trainshed.domain.jobs.states import TERMINAL_STATES
from trainshed.store.database import Database
from trainshed.testing.processes import browsers
from trainshed.testing.processes.servers import RunningServer
from trainshed.testing.workloads.drawings import DRAWN, draw
from trainshed.testing.workloads.searches import write_search

ROOT = Path(__file__).resolve().parents[2]
IMAGES = ROOT / "docs" / "images"
SAMPLES = ROOT / "samples"
TRAINSHED = Path(sys.executable).with_name("trainshed")
PROJECT = "digits"
BUCKET = f"gs://{PROJECT}-ml"
MAX_BYTES = 200_000
WAIT_MS = 60_000.0
WAIT_S = 600.0
RUN_FIRST_S = 30  # for some steps and some requests to show


def ready(page: Page, place: str) -> None:
    """Wait for an element, by its test id or by a selector."""
    found = page.locator(place[1:]) if place.startswith("=") else page.get_by_test_id(place)
    expect(found.first).to_be_visible(timeout=WAIT_MS)


def draws(page: Page) -> None:
    draw(page, DRAWN["3"])
    expect(page.get_by_test_id("digit")).to_have_text("3", timeout=WAIT_MS)


def asks_to_deploy(page: Page) -> None:
    page.get_by_test_id("job-deploy").click()
    expect(page.get_by_test_id("deploy-go")).to_be_visible(timeout=WAIT_MS)


def scrolls_to_the_charts(page: Page) -> None:
    expect(page.get_by_test_id("charts-training").locator(".chart-line").first).to_be_visible(timeout=WAIT_MS)


@dataclass(frozen=True, slots=True)
class Picture:
    """A page of the console, the element to wait for, and the steps before."""

    place: str
    wait: str
    act: Callable[[Page], None] | None = None
    height: int = 800
    width: int = 1280
    scheme: browsers.Scheme = "light"


PICTURES = {
    "overview": Picture("", "=main .spark, main svg"),
    "jobs": Picture("/jobs", "=tbody tr[data-key]", height=620),
    "job-logs": Picture("/jobs/mnist_gang?tab=logs", "log-row"),
    "job-charts": Picture("/jobs/mnist_gang?tab=charts", "charts-training", scrolls_to_the_charts, height=940),
    "job-charts-dark": Picture(
        "/jobs/mnist_gang?tab=charts", "charts-training", scrolls_to_the_charts, height=940, scheme="dark"
    ),
    "job-running": Picture("/jobs/RUNNING?tab=replicas", "replica-table", height=640),
    "job-failed": Picture("/jobs/mnist_typo", "job-failure", height=720),
    "search": Picture("/jobs/digits_search", "plot-parallel", height=1500),
    "deploy": Picture("/jobs/mnist_gang?tab=files", "file-table", asks_to_deploy, height=640),
    "compare": Picture("/compare?jobs=mnist_gang,mnist_slow", "compare-results", height=1000),
    "buckets": Picture(f"/buckets/{PROJECT}-ml/mnist_gang/", "=main tbody tr", height=620),
    "model": Picture("/models/mnist", "traffic", height=900),
    "playground": Picture("/playground?model=mnist", "pad", draws, height=760),
    "playground-narrow": Picture("/playground?model=mnist", "pad", draws, height=1240, width=390),
}


class Project:
    """The content of the pictures, created by the command line."""

    def __init__(self, server: RunningServer, scratch: Path) -> None:
        self._server = server
        self._scratch = scratch

    def trainshed(self, *words: object) -> None:
        env = self._server.env() | {"TRAINSHED_PROJECT": PROJECT}
        subprocess.run([str(word) for word in (TRAINSHED, *words)], env=env, check=True, stdout=subprocess.DEVNULL)

    def submit(self, job: str, sample: str, *args: str, gang: str = "", labels: str) -> None:
        config = ("--config", SAMPLES / sample / "config" / gang) if gang else ("--scale-tier", "BASIC")
        flags = (
            f"--package-path={SAMPLES / sample / 'trainer'} --module-name=trainer.task --region=us-central1 "
            f"--staging-bucket={BUCKET} --job-dir={BUCKET}/{job} --runtime-version=2.21 --labels={labels}"
        ).split()
        self.trainshed("jobs", "submit", "training", job, *flags, *config, "--", *args)

    def mnist(self, job: str, steps: int, *more: str, data: str = "data", gang: str = "", labels: str) -> None:
        args = (f"--data_dir={BUCKET}/{data}", f"--output_dir={BUCKET}/{job}", f"--train_steps={steps}", *more)
        self.submit(job, "mnist_async", *args, "--log_interval_secs=1", gang=gang, labels=labels)

    def wait(self, job: str, *states: str) -> None:
        deadline = time.monotonic() + WAIT_S
        while (state := self._server.call("GET", f"/v1/projects/{PROJECT}/jobs/{job}")["state"]) not in states:
            if state in TERMINAL_STATES or time.monotonic() > deadline:
                raise SystemExit(f"Job {job} is {state}, and not {' or '.join(states)}.")
            time.sleep(0.5)

    def make(self) -> None:
        """Data, four jobs that end, and a model with two versions."""
        self.trainshed("buckets", "mb", BUCKET)
        script = SAMPLES / "mnist_async" / "scripts" / "create_records.py"
        subprocess.run([sys.executable, script, "--output-dir", self._scratch, "--limit", "10000"], check=True)
        self.trainshed("buckets", "cp", *sorted(self._scratch.glob("*.tfrecords")), f"{BUCKET}/data/")
        self.trainshed("buckets", "cp", *sorted((SAMPLES / "iris" / "data").glob("*.csv")), f"{BUCKET}/iris/")
        files = (f"--train_file={BUCKET}/iris/iris_training.csv", f"--test_file={BUCKET}/iris/iris_test.csv")
        self.submit("iris_1", "iris", *files, f"--outdir={BUCKET}/iris_1", labels="course=flowers,owner=lin")
        self.wait("iris_1", "SUCCEEDED")
        self.mnist("mnist_typo", 400, data="dta", labels="course=digits,owner=ada")
        self.mnist("mnist_slow", 80, "--learning_rate=0.002", labels="course=digits,owner=ada")
        self.wait("mnist_slow", "SUCCEEDED")
        self.mnist("mnist_gang", 200, gang="config_small.yaml", labels="course=digits,owner=ada")
        self.wait("mnist_gang", "SUCCEEDED")
        self.trainshed("models", "create", "mnist", "--regions=us-central1")
        for version, job in (("v1", "mnist_slow"), ("v2", "mnist_gang")):
            [export] = (self._server.home / "buckets" / f"{PROJECT}-ml" / job / "export" / "Servo").iterdir()
            origin = f"{BUCKET}/{job}/export/Servo/{export.name}"
            self.trainshed(
                "versions", "create", version, "--model=mnist", f"--origin={origin}", "--runtime-version=2.21"
            )
        self.trainshed("versions", "set-default", "v2", "--model=mnist")
        with closing(Database(self._server.home / "state.db")) as database:
            write_search(database, PROJECT, "digits_search", trials=60)  # as rows: 60 trainings would take an hour

    @contextmanager
    def alive(self) -> Iterator[str]:
        """The name of a job that runs, and people who ask the model, for as long as pictures are taken."""
        job = f"mnist_long_{time.strftime('%H%M%S')}"
        self.mnist(job, 20_000, gang="config_small.yaml", labels="course=digits,owner=lin")
        over = threading.Event()
        asking = threading.Thread(target=self._ask, args=(over,))
        asking.start()
        try:
            self.wait(job, "RUNNING")
            time.sleep(RUN_FIRST_S)
            yield job
        finally:
            over.set()
            asking.join()
            self.trainshed("jobs", "cancel", job)
            self.wait(job, "CANCELLED")

    def _ask(self, over: threading.Event) -> None:
        """Some requests a second, more and fewer in turn."""
        request = self._scratch / "request.json"
        script = SAMPLES / "mnist_async" / "scripts" / "make_request.py"
        subprocess.run([sys.executable, script, "--output", request], check=True, stdout=subprocess.DEVNULL)
        instances = [json.loads(line) for line in request.read_text().splitlines()]
        number = 0
        while not over.wait(0.05 + 0.3 * (time.time() // 20 % 3)):
            number += 1
            body = {"instances": [instances[number % len(instances)]]}
            self._server.call("POST", f"/v1/projects/{PROJECT}/models/mnist:predict", body)


def take(browser: Browser, server: RunningServer, name: str, running: str) -> None:
    """Take one picture, with few colours to keep it small."""
    how = PICTURES[name]
    context = browser.new_context(
        viewport={"width": how.width, "height": how.height}, color_scheme=how.scheme, reduced_motion="reduce"
    )
    browsers.sign_in(context, server)
    page = context.new_page()
    page.goto(f"{server.url}/#/p/{PROJECT}{how.place.replace('RUNNING', running)}")
    ready(page, how.wait)
    if how.act:
        how.act(page)
    page.wait_for_timeout(2500)  # figures come in by themselves
    target = IMAGES / f"{name}.png"
    page.screenshot(path=target)
    context.close()
    subprocess.run(["pngquant", "--force", "--skip-if-larger", "--ext=.png", "--speed=1", "128", target], check=False)
    size = target.stat().st_size
    print(f"{target.relative_to(ROOT)}: {size / 1000:.0f} KB")
    if size > MAX_BYTES:
        raise SystemExit(f"{target} is larger than {MAX_BYTES / 1000:.0f} KB: show less in it.")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pictures", nargs="*", help="which to take; without any, all")
    parser.add_argument("--home", type=Path, help="a state folder to keep, and to use if it is there")
    args = parser.parse_args()
    if unknown := set(args.pictures) - set(PICTURES):
        parser.error(f"there is no picture {', '.join(sorted(unknown))}; there are {', '.join(PICTURES)}")
    if not shutil.which("pngquant"):
        raise SystemExit("This needs pngquant, to make the pictures small. Install it with: apt-get install pngquant")
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        home = args.home or scratch / "home"
        made = home / "made"  # there once the project is whole
        if not home.exists():
            home.mkdir(parents=True)
            cache = ROOT / ".cache" / "runtimes"
            cache.mkdir(parents=True, exist_ok=True)
            (home / "runtimes").symlink_to(cache.resolve())
        server = RunningServer(home).start()
        try:
            project = Project(server, scratch)
            if not made.exists():
                project.make()
                made.touch()
            with project.alive() as running, browsers.chromium() as browser:
                for name in args.pictures or PICTURES:
                    take(browser, server, name, running)
        finally:
            server.stop()


if __name__ == "__main__":
    main()
