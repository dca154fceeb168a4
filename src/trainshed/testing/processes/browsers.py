"""A real Chromium for tests, measurements and screenshots of the console."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from trainshed.testing.processes import without_netlink
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

#: for a job's log: scrolls through the whole list from the top, and collects each line
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

START_TIMEOUT_MS = 180_000.0
PAGE_TIMEOUT_MS = 60_000.0  #: for any condition in a page: other tests need the same two cores


@contextmanager
def chromium() -> Iterator[Browser]:
    """Yield the machine's own Chromium, headless. The headless shell, if it is there, needs half of the CPU time."""
    names = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
    executable = next(filter(None, map(shutil.which, names)), None)
    assert executable, "This needs Chromium. Install it with: bash tests/needs.sh"
    with sync_playwright() as playwright, TemporaryDirectory() as folder:
        launcher = Path(folder, "chromium")
        launcher.write_text(f'#!/bin/sh\nexec {sys.executable} -I {without_netlink.__file__} {executable} "$@"\n')
        launcher.chmod(0o755)
        browser = playwright.chromium.launch(executable_path=launcher, args=list(FLAGS), timeout=START_TIMEOUT_MS)
        try:
            yield browser
        finally:
            browser.close()


def patient(browser: Browser, **options: Any) -> BrowserContext:
    """Return a new context, `options` as for `new_context`, whose default timeout is PAGE_TIMEOUT_MS."""
    context = browser.new_context(**options)
    context.set_default_timeout(PAGE_TIMEOUT_MS)
    return context


def until(page: Page, condition: Callable[[], bool], *, within_ms: float = 1.5 * PAGE_TIMEOUT_MS) -> None:
    """Let the page run until a condition is true.

    The page's policy forbids the browser to wait for an expression, so this polls.
    """
    deadline = time.monotonic() + within_ms / 1000
    while not condition():
        assert time.monotonic() < deadline, "it never came to that"
        page.wait_for_timeout(50)


def sign_in(context: BrowserContext, server: RunningServer) -> None:
    """Sign the context in as the server's owner."""
    response = context.request.post(f"{server.url}/trainshed/v1/session", data={"token": server.token})
    assert response.ok, response.text()
