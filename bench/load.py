"""Load on a URL by wrk, and its results."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

_SCRIPT = """
wrk.method = "POST"
local file = io.open(os.getenv("BENCH_BODY"), "rb")
wrk.body = file:read("*a")
file:close()
wrk.headers["content-type"] = "application/json"
local length = os.getenv("BENCH_JSON_LENGTH")
if length ~= "" then wrk.headers["inference-header-content-length"] = length end
if os.getenv("BENCH_TOKEN") ~= "" then wrk.headers["authorization"] = "Bearer " .. os.getenv("BENCH_TOKEN") end
function done(summary, latency, requests)
  local bad = 0
  for _, count in pairs(summary.errors) do bad = bad + count end
  io.write(string.format('\\nRESULT {"requests": %d, "us": %d, "bad": %d, "p50": %f, "p99": %f}\\n',
    summary.requests, summary.duration, bad, latency:percentile(50), latency:percentile(99)))
end
"""


@dataclass(frozen=True, slots=True)
class Load:
    """Results of a server under load."""

    rate: float  #: requests per second
    p50_ms: float
    p99_ms: float


def ask_for_wrk() -> None:
    """Exit with an error if wrk is missing."""
    if shutil.which("wrk") is None:
        raise SystemExit("This bench needs wrk. Install it with: apt-get install wrk")


def drive(url: str, body: bytes, *, concurrency: int, seconds: float, token: str = "", json_length: int = 0) -> Load:
    """Send `body` repeatedly over several connections. Raises `RuntimeError` if a response was bad.

    `json_length` is that of the JSON before binary tensors; 0 if there are none.
    """
    with tempfile.TemporaryDirectory() as scratch:
        script, content = Path(scratch) / "post.lua", Path(scratch) / "body"
        script.write_text(_SCRIPT)
        content.write_bytes(body)
        done = subprocess.run(
            ["wrk", "-t1", f"-c{concurrency}", f"-d{seconds:g}s", "--timeout", "20s", "-s", str(script), url],
            env={
                "PATH": "/usr/bin:/bin",
                "BENCH_BODY": str(content),
                "BENCH_TOKEN": token,
                "BENCH_JSON_LENGTH": str(json_length or ""),
            },
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
    said = json.loads(done.stdout.rpartition("RESULT ")[2])
    if said["bad"]:
        raise RuntimeError(f"{said['bad']} of {said['requests']} requests to {url} failed.")
    return Load(said["requests"] / said["us"] * 1e6, said["p50"] / 1000, said["p99"] / 1000)
