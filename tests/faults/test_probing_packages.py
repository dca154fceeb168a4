"""A package whose installation runs code: it runs as its job does, and not in the server."""

from __future__ import annotations

import io
import json
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
while pid > 1:
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
}
with open(PROBE, "w") as file:
    json.dump(seen, file)
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
def test_the_code_of_a_setup_py_runs_as_its_job_does(server: RunningServer, tmp_path: Path) -> None:
    jobs = Submitter(server, "probing", tmp_path)
    probe, package = tmp_path / "probe.json", tmp_path / "trainer-1.0.tar.gz"
    files = {
        "setup.py": f"PROBE = {str(probe)!r}\n{SETUP}",
        "trainer/__init__.py": "",
        "trainer/task.py": "print('it runs')",
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
    assert "it runs" in jobs.lines("probe")
    seen: dict[str, Any] = json.loads(probe.read_text())
    assert server.pid not in seen["ancestors"]
    assert any("supervise" in command for command in seen["commands"]), seen["commands"]
    assert Path(seen["folder"]).is_relative_to(jobs.attempt("probe")), seen["folder"]
    assert seen["stdin"] == "/dev/null"
    assert server.token not in json.dumps(seen)
    assert [name for name in seen["environment"] if name.startswith("TRAINSHED_SERVER")] == []
    open_files = [path for path in seen["descriptors"] if path.startswith(str(server.home))]
    assert [path for path in open_files if not Path(path).is_relative_to(server.home / "jobs" / "probing")] == []
