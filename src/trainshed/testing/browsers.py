"""A real Chromium for tests, measurements and pictures of the console."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from playwright.sync_api import Browser, BrowserContext, sync_playwright

from trainshed.testing.servers import RunningServer

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


@contextmanager
def chromium() -> Iterator[Browser]:
    """The machine's own Chromium, without a window."""
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    assert found, "This needs Chromium. Install it with: bash tests/needs.sh"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=list(FLAGS))
        try:
            yield browser
        finally:
            browser.close()


def sign_in(context: BrowserContext, server: RunningServer) -> None:
    """From now on, the pages of this context are those of the server's owner."""
    answer = context.request.post(f"{server.url}/trainshed/v1/session", data={"token": server.token})
    assert answer.ok, answer.text()
