"""The edge of the server: odd addresses are denied, odd paths stay one line of the log, the log stays small."""

from __future__ import annotations

import errno
import subprocess
import sys
from pathlib import Path

import pytest
from starlette.requests import Request

from trainshed.api.app import _as_sent
from trainshed.api.http.auth import check_host, check_origin
from trainshed.api.http.responses import error_response
from trainshed.errors import PermissionDeniedError


def request(**headers: str) -> Request:
    sent = [(name.encode(), value.encode()) for name, value in headers.items()]
    return Request({"type": "http", "method": "GET", "path": "/", "headers": sent})


@pytest.mark.parametrize("host", ["[::1", "[", "]", "[x]:1", "a[b", "", "evil.example"])
def test_a_host_that_is_none_is_denied(host: str) -> None:
    with pytest.raises(PermissionDeniedError):
        check_host(request(host=host), allowed_hosts=("localhost",))


@pytest.mark.parametrize("origin", ["http://[::1", "http://[", "null", "http://localhost.evil.example"])
def test_an_origin_that_is_none_is_denied(origin: str) -> None:
    check_origin(request(host="localhost", origin="http://localhost"), None)
    with pytest.raises(PermissionDeniedError, match="other sites"):
        check_origin(request(host="localhost", origin=origin), None)


@pytest.mark.parametrize(
    ("raw", "line"),
    [
        (b"/v1/projects/a/jobs/b:cancel", "/v1/projects/a/jobs/b:cancel"),
        (b"/a%0a2026-01-01 INFO forged", "/a%0a2026-01-01%20INFO%20forged"),
        (b"/\xff\n\x1b[2J", "/%FF%0A%1B[2J"),
    ],
)
def test_a_path_is_one_line_of_ascii_in_the_log(raw: bytes, line: str) -> None:
    assert _as_sent(raw) == line


@pytest.mark.parametrize(("number", "status"), [(errno.ENOSPC, 507), (errno.EDQUOT, 507), (errno.EIO, 500)])
def test_a_full_disk_is_told_as_such(number: int, status: int) -> None:
    assert error_response(OSError(number, "no good")).status_code == status


WRITER = """
import logging, os, sys
from pathlib import Path
from trainshed.server import log_to_stderr
log_to_stderr(Path(sys.argv[1]), limit=2000)
for number in range(100):
    logging.getLogger("x").info("event number=%d", number)
print("by itself", file=sys.stderr, flush=True)
print("by stdout", flush=True)
"""


def test_a_full_log_is_put_aside(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    with open(path, "ab") as log:
        subprocess.run([sys.executable, "-c", WRITER, path], stdout=log, stderr=log, check=True, timeout=60)
    assert {entry.name for entry in tmp_path.iterdir()} == {"server.log", "server.log.1"}
    aside, kept = (tmp_path / "server.log.1").read_text(), path.read_text()
    assert 2000 < len(aside) < 2200
    assert len(kept) < 2200
    assert kept.endswith("number=99\nby itself\nby stdout\n")
    numbers = [int(line.rpartition("=")[2]) for line in (aside + kept).splitlines() if "=" in line]
    assert numbers == list(range(numbers[0], 100))
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_log_that_is_kept_elsewhere_is_left_alone(tmp_path: Path) -> None:
    path, other = tmp_path / "server.log", tmp_path / "other.log"
    path.touch()
    with open(other, "ab") as log:
        subprocess.run([sys.executable, "-c", WRITER, path], stdout=log, stderr=log, check=True, timeout=60)
    assert set(tmp_path.iterdir()) == {path, other}
    assert other.read_text().count("number=") == 100
    assert path.stat().st_size == 0
