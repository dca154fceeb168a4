"""A real Chromium on a real server: signed in, and watched for errors that nobody sees."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, expect

from trainshed.testing.processes import browsers
from trainshed.testing.processes.servers import RunningServer
from trainshed.testing.workloads.submitter import Submitter

expect.set_options(timeout=browsers.PAGE_TIMEOUT_MS)

#: opens a place of a project, such as ("my-project", "/jobs/one"), in a window of its own
Open = Callable[..., Page]


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """Not for longer than a module: while it lives, no other test of the process can have an event loop."""
    with browsers.chromium() as browser:
        yield browser


class Windows:
    """Windows that are signed in as the server's owner. What went wrong in them fails the test at its end."""

    def __init__(self, browser: Browser, server: RunningServer) -> None:
        self._browser = browser
        self._server = server
        self._contexts: list[BrowserContext] = []
        self.troubles: list[str] = []

    def open(self, project: str, place: str = "", **how: Any) -> Page:
        """A window at a place of a project. `how` is as for `blank`."""
        page = self.blank(**how)
        browsers.sign_in(page.context, self._server)
        page.goto(f"{self._server.url}/#/p/{project}{place}")
        return page

    def blank(
        self, *, width: int = 1280, height: int = 900, scheme: browsers.Scheme = "light", touch: bool = False
    ) -> Page:
        """A window of someone whom the server does not know. `touch`: the screen of a phone."""
        context = browsers.patient(
            self._browser,
            viewport={"width": width, "height": height},
            accept_downloads=True,
            color_scheme=scheme,
            has_touch=touch,
            is_mobile=touch,
        )
        self._contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: self.troubles.append(str(error)))
        page.on("console", self._heard)
        return page

    def _heard(self, message: ConsoleMessage) -> None:
        """A breach of the Content-Security-Policy is an error here too. What the API refuses, the page must show."""
        of_the_api = "Failed to load resource" in message.text and "/console/" not in message.location["url"]
        if message.type == "error" and not of_the_api:
            self.troubles.append(message.text)

    def close(self) -> None:
        for context in self._contexts:
            context.close()


@pytest.fixture
def windows(chromium: Browser, server: RunningServer) -> Iterator[Windows]:
    opened = Windows(chromium, server)
    yield opened
    opened.close()
    assert opened.troubles == []


@pytest.fixture
def open_console(windows: Windows) -> Open:
    return windows.open


@pytest.fixture
def page(windows: Windows) -> Page:
    """A window that is signed in, in a project where nothing is."""
    return windows.open("console-empty")


@pytest.fixture(scope="session")
def trainers(server: RunningServer, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Submitter]:
    """Submitters of small jobs, one for each project."""
    known: dict[str, Submitter] = {}

    def of(project: str) -> Submitter:
        if project not in known:
            scratch: Path = tmp_path_factory.mktemp(project)
            known[project] = Submitter(server, project, scratch)
        return known[project]

    return of
