"""What suites of storage clients share: sources of packages, which hold their tests, and a key of a service account."""

from __future__ import annotations

import json
import os
import subprocess
import tarfile
from pathlib import Path

from trainshed.testing.conformance.suites import Installed
from trainshed.testing.conformance.targets import Target
from trainshed.testing.processes.servers import ask

_ACCOUNT = "conformance"
_PROXIES = frozenset({"http_proxy", "https_proxy", "all_proxy"})


def fetch_source(installed: Installed, package: str, version: str, folder: Path) -> Path:
    """Return the folder of a package's source, fetched from the index once. The environment needs pip.

    Raises `CalledProcessError` if the index has no source of that version.
    """
    stem = f"{package.replace('-', '_')}-{version}"
    if not (folder / stem).is_dir():
        command = [str(installed.program), "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:"]
        subprocess.run([*command, "--no-build-isolation", "--dest", str(folder), f"{package}=={version}"], check=True)
        with tarfile.open(folder / f"{stem}.tar.gz") as archive:
            archive.extractall(folder / "unpacked", filter="data")
        (folder / "unpacked" / stem).rename(folder / stem)
    return folder / stem


def key_file(target: Target, folder: Path) -> Path:
    """Return a file with a new key of a service account that owns the project, in Google's form."""
    headers = {"authorization": f"Bearer {target.token}"}
    account = {"name": _ACCOUNT, "kind": "service-account"}
    made = ask(target.url, "POST", "/trainshed/v1/users", body=account, headers=headers)
    if made.status not in (200, 409):
        raise RuntimeError(f"No service account: {made.body[:300]!r}")
    body = {"user": _ACCOUNT, "project": target.project, "role": "owner"}
    answer = ask(target.url, "POST", "/trainshed/v1/tokens:createKey", body=body, headers=headers)
    path = folder / "key.json"
    path.write_text(json.dumps(answer.json["keyFile"]))
    return path


def direct_environment(target: Target, key: Path) -> dict[str, str]:
    """The environment of a client that connects to the server itself, with a key."""
    kept = {name: value for name, value in os.environ.items() if name.lower() not in _PROXIES}
    return kept | {"GOOGLE_APPLICATION_CREDENTIALS": str(key), "GOOGLE_CLOUD_PROJECT": target.project}
