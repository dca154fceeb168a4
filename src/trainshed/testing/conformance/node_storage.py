"""The calls of the system tests of Node's @google-cloud/storage, written anew: its package has no tests.

The client is in `trainshed shell`, and finds the server through the proxy, as in a job.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from trainshed.testing.conformance.environments import ROOT
from trainshed.testing.conformance.pytest_results import read_report
from trainshed.testing.conformance.storage_clients import key_file
from trainshed.testing.conformance.suites import Case, Installed, Suite
from trainshed.testing.conformance.targets import Target

PACKAGE, VERSION = "@google-cloud/storage", "7.22.0"
PROGRAM = Path(__file__).with_name("programs") / "node_storage.mjs"
_TIMEOUT_S = 900


def install(folder: Path) -> Installed:
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        raise RuntimeError("The suite needs node and npm on the PATH.")
    wanted = {"private": True, "dependencies": {PACKAGE: VERSION}}
    packages = folder / VERSION
    if not (packages / "node_modules" / PACKAGE).is_dir():
        packages.mkdir(parents=True, exist_ok=True)
        (packages / "package.json").write_text(json.dumps(wanted))
        subprocess.run([npm, "install", "--silent"], cwd=packages, check=True)
    version = subprocess.run([node, "--version"], check=True, capture_output=True, text=True).stdout.strip()
    return Installed(Path(node), {PACKAGE: VERSION, "node": version.removeprefix("v")})


def run(installed: Installed, target: Target, folder: Path) -> Sequence[Case]:
    environment = {
        **target.environment,
        "STORAGE_URL": target.url,
        "STORAGE_KEY_FILE": str(key_file(target, folder)),
        "STORAGE_PROJECT": target.project,
    }
    report = folder / "report.xml"
    options = ["--test", "--test-reporter=junit", f"--test-reporter-destination={report}"]
    command = target.in_shell(installed.program, *options, PROGRAM)
    packages = ROOT / "node_storage" / VERSION
    done = subprocess.run(
        command, cwd=packages, env=environment, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
    )
    if not report.exists():
        raise RuntimeError(f"node ended with {done.returncode}:\n{done.stdout[-1500:]}{done.stderr[-1500:]}")
    cases = read_report(report.read_text())
    return [Case(case.name.removeprefix("test."), case.outcome, case.message) for case in cases]


_NOT_KEPT = "a setting that is not kept is refused"
_ACL = "policies and access lists are not kept: tokens decide"
_REASONS = {
    r"(can be given|change access|become public|change their access).*": _ACL,
    r"(have uniform|prevent public|have a default key|let requesters|choose storage|keep what).*": _NOT_KEPT,
    r"(have a recovery|are retained on).*": _NOT_KEPT,
    r"log to another bucket": "policies and logging of buckets are not kept",
    r"send notifications": "there is no Pub/Sub here",
    r"have a name and folders below it": "objects are files, and a file has no folder of its name",
    r"are encrypted with keys of the client": "keys of clients are refused: objects would lie unencrypted",
    r"v. policies of forms": "policies of forms are not offered",
    r"(has a service account|makes HMAC keys)": "not offered",
}

SUITE = Suite(
    name="node_storage",
    title="Node's @google-cloud/storage, tests written anew",
    install=install,
    run=run,
    reasons=_REASONS,
)
