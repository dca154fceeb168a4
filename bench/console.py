"""The console in Chromium: its first page, a log of 1,000 lines a second, and a search among 10,000 jobs.

python bench/console.py                        # about three minutes
python bench/console.py --jobs 1000 --rounds 5 # smaller
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, expect

from control import JOBS, PROJECT, a_server, fill_queue
from report import Row, publish
from trainshed.testing.processes.browsers import READ_ALL, chromium, sign_in
from trainshed.testing.processes.servers import RunningServer
from trainshed.testing.workloads.submitter import Submitter

LINES_PER_S, SECONDS = 1000, 20
WAIT_MS = 120_000.0

#: writes the time into each line, and a tenth of a second's lines at once, as many as are due
TALKER = f"""
import sys, time
began, written = time.time(), 0
while written < {LINES_PER_S * SECONDS}:
    due = min(int((time.time() - began) * {LINES_PER_S}), {LINES_PER_S * SECONDS})
    for number in range(written, due):
        print(f"line {{number}} {{time.time():.3f}} loss = 0.1234, and some more words that make it a usual line")
    sys.stdout.flush()
    written = due
    time.sleep(0.01)
"""

#: the time since the navigation began, when something that SELECTOR finds is painted for the first time
WATCH = """
new MutationObserver((changes, observer) => {
  if (!document.querySelector(SELECTOR)) return;
  observer.disconnect();
  requestAnimationFrame(() => setTimeout(() => { window.shownAt = performance.now(); }));
}).observe(document, {childList: true, subtree: true});
"""

#: from the key that makes the search TEXT to the frame with rows that all have it
SEARCH = """
(text) => new Promise((resolve) => {
  let pressed = 0;
  const input = document.querySelector("[data-testid=job-search]");
  input.addEventListener("keydown", (event) => { pressed = event.timeStamp; }, {once: true});
  const look = () => {
    const keys = [...document.querySelectorAll("tbody tr[data-key]")].map((row) => row.dataset.key);
    if (pressed && keys.length > 0 && keys.every((key) => key.includes(text))) {
      requestAnimationFrame(() => setTimeout(() => { window.answered = performance.now() - pressed; }));
    } else requestAnimationFrame(look);
  };
  window.answered = 0;
  look();
  resolve();
})
"""

#: seconds between the writing of the last line in sight and now
BEHIND = """
() => {
  const rows = document.querySelectorAll("[data-testid=log-row]");
  const found = /line \\d+ (\\d+\\.\\d+) /.exec(rows.length ? rows[rows.length - 1].textContent : "");
  return found ? Date.now() / 1000 - Number(found[1]) : null;
}
"""
ASK = """
async (path) => { const began = performance.now(); await (await fetch(path)).json(); return performance.now() - began; }
"""


def wide_ms(values: Sequence[float]) -> str:
    """Median and worst."""
    return f"{statistics.median(values):.0f} / {max(values):.0f} ms"


def until(page: Page, script: str) -> Any:
    """What a script gives once it gives something. The console's policy forbids the browser to wait for it itself."""
    for _ in range(int(WAIT_MS / 20)):
        if found := page.evaluate(script):
            return found
        page.wait_for_timeout(20)
    raise SystemExit(f"The page never came to {script}.")


@contextmanager
def static_page() -> Iterator[str]:
    """The address of a page of a few words, served by Python's own server."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "index.html").write_text("<!doctype html><title>bare</title><main><p>Words.</p></main>")
        handler = partial(Quiet, directory=folder)
        httpd = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=httpd.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{httpd.server_address[1]}/"
        httpd.shutdown()
        httpd.server_close()


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name it has in the library
        """Say nothing."""


def opening(browser: Browser, url: str, selector: str, server: RunningServer | None) -> float:
    """Milliseconds from going to an address, with nothing in the browser's cache, to its content on the screen."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    if server:
        sign_in(context, server)
    page = context.new_page()
    page.add_init_script(WATCH.replace("SELECTOR", f"{selector!r}"))
    page.goto(url)
    shown = float(until(page, "window.shownAt || 0"))
    context.close()
    return shown


def first_page(browser: Browser, server: RunningServer, rounds: int) -> Row:
    place = f"{server.url}/#/p/{PROJECT}"
    content = "[data-testid=machine] svg"  # the last thing on it that is drawn from an answer
    with static_page() as bare:
        opening(browser, place, content, server)  # the server is warm
        opening(browser, bare, "main p", None)
        pairs = [
            (opening(browser, place, content, server), opening(browser, bare, "main p", None)) for _ in range(rounds)
        ]
    ours, theirs = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    return Row(
        what="the overview, nothing cached, median / worst",
        value=wide_ms(ours),
        against=f"a static page of one line: {wide_ms(theirs)}",
        ratio=f"{statistics.median(ours) / statistics.median(theirs):.1f}×",
        aim="under 1 s",
    )


def talking(page: Page, server: RunningServer, jobs: Submitter) -> list[Row]:
    """A log that is followed from its first line to its last, and then read from the top."""
    jobs.submit("talker", TALKER)
    page.goto(f"{server.url}/#/p/{PROJECT}/jobs/talker?tab=logs")
    lags: list[float] = []
    count = page.get_by_test_id("log-count")
    for _ in range(int(WAIT_MS / 200)):
        if (behind := page.evaluate(BEHIND)) is not None:
            lags.append(behind)
        if jobs.get("talker")["state"] == "SUCCEEDED":
            break
        page.wait_for_timeout(200)
    expect(count).to_have_attribute("data-ended", "true", timeout=WAIT_MS)
    for _ in range(100):
        if "+" not in count.inner_text():
            break
        page.get_by_test_id("log-list").evaluate("list => { list.scrollTop = 0; }")
        page.wait_for_timeout(100)
    held = [text for text in page.evaluate(READ_ALL) if text.startswith("line ")]
    numbers = [int(text.split()[1]) for text in held]
    total = LINES_PER_S * SECONDS
    right = "each once and in order" if numbers == list(range(total)) else "NOT each once and in order"
    return [
        Row(
            what=f"a log at {LINES_PER_S:,} lines/s for {SECONDS} s",
            value=f"{len(numbers):,} lines in the page, {right}",
            against=f"{total:,} lines written",
            ratio=f"{len(numbers) / total:.2f}",
            aim="no line dropped",
        ),
        Row(
            what="how far its last line is behind the trainer, median / worst",
            value=wide_ms([lag * 1000 for lag in lags]),
        ),
    ]


def searching(page: Page, server: RunningServer, jobs: Submitter, total: int, rounds: int) -> Row:
    fill_queue(server, jobs, total)
    page.goto(f"{server.url}/#/p/{PROJECT}/jobs")
    search = page.get_by_test_id("job-search")
    answered, asked = [], []
    for number in range(rounds):
        text = f"{number * 7 % 100:02}{number % 10}"
        search.fill(text[:-1])
        page.wait_for_timeout(1000)
        search.press("End")
        page.evaluate(SEARCH, text)
        search.press(text[-1])
        answered.append(float(until(page, "window.answered")))
        asked.append(float(page.evaluate(ASK, f"/trainshed{JOBS}?pageSize=100&search={text}")))
    server.call("POST", f"{JOBS}/sleeper:cancel", {})
    return Row(
        what=f"a key in the search among {total:,} jobs to its rows, median / worst",
        value=wide_ms(answered),
        against=f"the same question by `fetch`: {wide_ms(asked)}",
        ratio=f"{statistics.median(answered) / statistics.median(asked):.1f}×",
        aim="under 200 ms",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=10_000, help="how many jobs are in the table")
    parser.add_argument("--rounds", type=int, default=20, help="how often a page is opened, and a key pressed")
    args = parser.parse_args()
    with a_server(slots=1) as (server, jobs), chromium() as browser:
        rows = [first_page(browser, server, args.rounds)]
        context = browser.new_context(viewport={"width": 1280, "height": 900})
        sign_in(context, server)
        page = context.new_page()
        rows += talking(page, server, jobs)
        rows.append(searching(page, server, jobs, args.jobs, args.rounds))
    publish("console", rows)


if __name__ == "__main__":
    main()
