"""TensorBoard within the console, in a real Chromium: it works, and it can't act as the console."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from trainshed.testing.processes import browsers
from trainshed.testing.processes.servers import RunningServer
from trainshed.testing.workloads.event_files import write_events
from trainshed.testing.workloads.submitter import Submitter

PROJECT = "board-in-chromium"

#: what a script of a user's could try: the API, the page around it, and the cookie
ATTACK = """async (url) => {
  const tries = { origin: window.origin, cookie: document.cookie };
  const body = JSON.stringify({user: "mallory", project: "*", role: "owner"});
  for (const [name, path, how] of [
    ["read", "/trainshed/v1/session", {credentials: "include"}],
    ["change", "/trainshed/v1/tokens", {method: "POST", credentials: "include", body}],
    ["blind", "/trainshed/v1/tokens", {method: "POST", credentials: "include", body, mode: "no-cors"}],
  ]) {
    tries[name] = await fetch(url + path, how).then((answer) => answer.type, () => "refused");
  }
  try { tries.around = String(window.parent.document.title); } catch (error) { tries.around = "refused"; }
  return tries;
}"""


@pytest.mark.timeout(600)
def test_tensorboard_works_in_the_console_and_has_no_part_in_it(
    chromium: Browser, framework_server: RunningServer, runtime_python: Path, tmp_path: Path
) -> None:
    server = framework_server
    jobs = Submitter(server, PROJECT, tmp_path)
    jobs.submit("board", "pass", jobDir=f"gs://{jobs.bucket}/board")
    jobs.wait("board")
    points = [(time.time(), step, {"loss": 1 / (step + 1)}) for step in range(20)]
    write_events(server.home / "buckets" / jobs.bucket / "board" / "run <b>1</b>", *points)
    context = browsers.patient(chromium, viewport={"width": 1280, "height": 900})
    try:
        answer = context.request.post(f"{server.url}/trainshed/v1/session", data={"token": server.token})
        assert answer.ok
        page = context.new_page()
        page.goto(f"{server.url}/#/p/{PROJECT}/jobs/board?tab=tensorboard")
        element = page.get_by_test_id("tensorboard")
        expect(element).to_be_visible(timeout=240_000)
        frame = element.content_frame
        expect(frame.get_by_text("run <b>1</b>").first).to_be_visible()
        expect(frame.get_by_text("loss", exact=True).first).to_be_visible()
        [inner] = [each for each in page.frames if "/tensorboard/" in each.url]
        before = server.call("GET", "/trainshed/v1/tokens")
        tries = inner.evaluate(ATTACK, server.url)
        assert tries == {
            "origin": "null",
            "cookie": "",
            "read": "refused",
            "change": "refused",
            "blind": "refused",  # it was sent, the server said no, and even that is not for it
            "around": "refused",
        }
        assert server.call("GET", "/trainshed/v1/tokens") == before
        assert page.evaluate("fetch('/trainshed/v1/session').then((answer) => answer.status)") == 200
    finally:
        context.close()
