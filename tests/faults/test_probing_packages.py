"""A package whose installation runs code: it runs in a sandbox, and not in the server."""

from __future__ import annotations

import io
import json
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from trainshed.testing.processes.servers import RunningServer
from trainshed.testing.workloads.submitter import Submitter

#: Writes what it can see of the process that runs it.
SETUP = """
import json, os
def parent_of(pid):
    with open("/proc/%d/stat" % pid) as file:
        return int(file.read().rpartition(")")[2].split()[1])
def command_of(pid):
    with open("/proc/%d/cmdline" % pid) as file:
        return file.read().split(chr(0))
ancestors, pid = [], os.getpid()
while pid > 0:
    pid = parent_of(pid)
    ancestors.append(pid)
seen = {
    "ancestors": ancestors,
    "commands": [command_of(pid) for pid in ancestors if pid],
    "folder": os.getcwd(),
    "environment": dict(os.environ),
    "user": os.getuid(),
    "stdin": os.readlink("/proc/self/fd/0"),
    "descriptors": [os.readlink("/proc/self/fd/" + fd) for fd in os.listdir("/proc/self/fd")
                    if os.path.exists("/proc/self/fd/" + fd)],
    "reached": [path for path in HIDDEN if os.path.lexists(path)],
    "written": [],
}
for path in UNWRITABLE:
    try:
        with open(path + "/left-by-a-build", "w"):
            seen["written"].append(path)
    except OSError:
        continue
with open("trainer/seen.py", "w") as file:
    file.write("SEEN = " + repr(json.dumps(seen)))
from setuptools import setup
setup(name="trainer", version="1.0", packages=["trainer"])
"""


def source_package(files: dict[str, str]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name, text in files.items():
            info = tarfile.TarInfo(f"trainer-1.0/{name}")
            info.size = len(text.encode())
            archive.addfile(info, io.BytesIO(text.encode()))
    return out.getvalue()


@pytest.mark.fault("F70")
def test_the_code_of_a_setup_py_runs_in_a_sandbox(server: RunningServer, tmp_path: Path) -> None:
    jobs = Submitter(server, "probing", tmp_path)
    package, home = tmp_path / "trainer-1.0.tar.gz", server.home
    (home / "packages" / "another").mkdir(parents=True, exist_ok=True)
    hidden = [str(home / name) for name in ("token", "state.db", "packages/another", "buckets/probing-bucket", "hosts")]
    unwritable = [str(home / "packages"), str(home / "packages" / "probing"), str(home / "node"), sys.prefix]
    files = {
        "setup.py": f"HIDDEN, UNWRITABLE = {hidden!r}, {unwritable!r}\n{SETUP}",
        "trainer/__init__.py": "",
        "trainer/task.py": "from trainer.seen import SEEN\nprint('SEEN', SEEN)",
    }
    package.write_bytes(source_package(files))
    training = {
        "region": "us-central1",
        "runtimeVersion": "python",
        "packageUris": [jobs.upload(package, package.name)],
        "pythonModule": "trainer.task",
    }
    server.call("POST", "/v1/projects/probing/jobs", {"jobId": "probe", "trainingInput": training})
    assert jobs.wait("probe")["state"] == "SUCCEEDED"
    [line] = [line for line in jobs.lines("probe") if line.startswith("SEEN ")]
    seen: dict[str, Any] = json.loads(line.removeprefix("SEEN "))
    assert (seen["reached"], seen["written"]) == ([], [])
    assert seen["ancestors"][-2:] == [1, 0], "the first process of its own namespace, and none outside"
    assert len(seen["ancestors"]) < 8, seen["commands"]
    assert Path(seen["folder"]).is_relative_to(jobs.attempt("probe")), seen["folder"]
    assert seen["stdin"] == "/dev/null"
    assert server.token not in json.dumps(seen)
    assert [name for name in seen["environment"] if name.startswith("TRAINSHED_SERVER")] == []
    open_files = [path for path in seen["descriptors"] if path.startswith(str(server.home))]
    assert [path for path in open_files if not Path(path).is_relative_to(server.home / "jobs" / "probing")] == []
