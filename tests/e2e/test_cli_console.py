"""`trainshed console`: a link that signs a browser in, opened or printed."""

from __future__ import annotations

import http.client
import json
import re
import stat
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

from trainshed.testing.processes.servers import RunningServer


def console(server: RunningServer, *words: str, browser: str = "", status: int = 0) -> tuple[str, str]:
    env = server.env() | {"BROWSER": browser, "PATH": "/nonexistent", "DISPLAY": ""}
    command = [sys.executable, "-m", "trainshed.cli", "console", *words]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == status, done.stderr
    return done.stdout, done.stderr


def opened(url: str) -> tuple[int, str, str]:
    """What a browser gets for a link: the status, where to, and the cookie."""
    address = urlsplit(url)
    connection = http.client.HTTPConnection(address.netloc, timeout=60)
    try:
        connection.request("GET", f"{address.path}?{address.query}")
        answer = connection.getresponse()
        return answer.status, answer.headers.get("location", ""), answer.headers.get("set-cookie", "")
    finally:
        connection.close()


def test_the_link_is_printed_and_works_once(server: RunningServer) -> None:
    out, err = console(server, "--no-browser", "--project", "my-project")
    url = out.strip()
    assert url.startswith(f"{server.url}/console/enter?code=")
    assert "within a minute" in err
    status, where, cookie = opened(url)
    assert (status, where) == (303, "/#/p/my-project")
    assert cookie.startswith("trainshed-")
    assert opened(url)[0] == 401


def test_without_a_browser_the_link_is_printed_too(server: RunningServer) -> None:
    out, _ = console(server)
    assert opened(out.strip())[0] == 303


def test_a_browser_is_told_to_open_the_link(server: RunningServer, tmp_path: Path) -> None:
    seen, browser = tmp_path / "seen", tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {seen}\n')
    browser.chmod(0o700)
    out, err = console(server, browser=f"{browser} %s")
    assert out == ""
    assert f"Opened the console of {server.url} in your browser." in err
    page = Path(seen.read_text().strip().removeprefix("file://"))
    assert page == server.home / "console.html", "others on the machine can read command lines"
    assert stat.S_IMODE(page.stat().st_mode) == 0o600
    [url] = set(re.findall(r"http://[^\"]+", page.read_text()))
    assert url in err.splitlines(), "some browsers can't read hidden folders"
    assert opened(url)[0] == 303


def test_a_program_reads_the_link(server: RunningServer) -> None:
    said = json.loads(console(server, "--no-browser", "--format", "json")[0])
    assert said["opened"] is False
    assert opened(said["url"])[0] == 303


def test_it_starts_nothing(server: RunningServer, tmp_path: Path) -> None:
    absent = RunningServer(tmp_path / "absent")
    _, err = console(absent, status=1)
    assert "Start one with: trainshed up" in err
    assert not (tmp_path / "absent").exists()
