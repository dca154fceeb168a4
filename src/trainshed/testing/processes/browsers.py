"""A real Chromium for tests, measurements and pictures of the console."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from trainshed.testing.processes.servers import RunningServer

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)

#: for a job's log: goes through the whole list from the top, and takes each line that comes by
READ_ALL = """
async () => {
  const list = document.querySelector("[data-testid=log-list]");
  const frame = () => new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)));
  const found = new Map();
  for (let top = 0; ; top += list.clientHeight) {
    list.scrollTop = top;
    await frame();
    for (const row of list.querySelectorAll(".log-row")) {
      found.set(Number(row.dataset.number), row.querySelector(".log-text").textContent);
    }
    if (top >= list.scrollHeight) break;
  }
  return [...found].sort(([a], [b]) => a - b).map(([, text]) => text);
}
"""

Scheme = Literal["light", "dark"]

START_MS = 180_000.0
PATIENCE_MS = 60_000.0  #: for whatever one waits for in a page: other tests need the same two cores


@contextmanager
def chromium() -> Iterator[Browser]:
    """The machine's own Chromium, without a window."""
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    assert found, "This needs Chromium. Install it with: bash tests/needs.sh"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=list(FLAGS), timeout=START_MS)
        try:
            yield browser
        finally:
            browser.close()


def patient(browser: Browser, **how: Any) -> BrowserContext:
    """A context of its own, `how` as for `new_context`, in which clicks wait as long for their element as tests do."""
    context = browser.new_context(**how)
    context.set_default_timeout(PATIENCE_MS)
    return context


def until(page: Page, true: Callable[[], bool], *, within_ms: float = 1.5 * PATIENCE_MS) -> None:
    """Let the page go on until something is so.

    Its policy forbids the browser to wait for an expression: it is asked again and again instead.
    """
    deadline = time.monotonic() + within_ms / 1000
    while not true():
        assert time.monotonic() < deadline, "it never came to that"
        page.wait_for_timeout(50)


def sign_in(context: BrowserContext, server: RunningServer) -> None:
    """From now on, the pages of this context are those of the server's owner."""
    answer = context.request.post(f"{server.url}/trainshed/v1/session", data={"token": server.token})
    assert answer.ok, answer.text()
