"""Buckets that jobs get by gs:// alone."""

from __future__ import annotations

from pathlib import Path

from trainshed.testing.processes.servers import RunningServer
from trainshed.testing.workloads.submitter import Submitter

LOOK = """
import os, sys

print("arguments", *sys.argv[1:3])
print("folders", *(os.path.isdir(path) for path in sys.argv[3:5]))
"""


def test_a_bucket_with_versioning_is_no_folder_of_a_job(server: RunningServer, tmp_path: Path) -> None:
    jobs = Submitter(server, "wire-guarded", tmp_path)
    kept = {"name": "wire-guarded-kept", "versioning": {"enabled": True}}
    server.call("POST", "/storage/v1/b?project=wire-guarded", kept)
    folders = [server.home / "buckets" / name for name in ("wire-guarded-kept", jobs.bucket)]
    args = ["gs://wire-guarded-kept/a", f"gs://{jobs.bucket}/b", *map(str, folders)]
    jobs.submit("look", LOOK, args=args)
    done = jobs.wait("look")
    assert done["state"] == "SUCCEEDED", done["errorMessage"]
    text = "\n".join(jobs.lines("look"))
    assert "arguments gs://wire-guarded-kept/a" in text
    assert "folders False True" in text
