"""Installing the packages of a job into a folder of their own, once for all jobs with the same packages and runtime.

Runs as a process of the job, since a package's setup.py is the user's code. The runtime itself is never changed: what a
package requires and the runtime lacks goes into the same folder as the package.
"""

from __future__ import annotations

import fcntl
import glob
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys

from .archives.extract import BadArchiveError, check, extract
from .supervisor.failure_message import write_install_failure

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_REQUIRES = re.compile(r"^Requires-Dist:\s*(.+?)\s*$", re.MULTILINE)
_EXTRA = re.compile(r";.*\bextra\s*==")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_MISSING = re.compile(r"^ \+ (\S+?)(?:==(\S+))?(?: \(from (\S+)\)| @ (\S+))?$", re.MULTILINE)
_BUILD_SYSTEM = re.compile(r"^\s*\[build-system\]", re.MULTILINE)
_ANSI = re.compile(r"\x1b\[[0-9;]*m")


class InstallError(Exception):
    """The packages can't be installed. The text is for the user whose packages they are."""


def install(folder: str) -> int:
    """Install what the spec in `folder` names. 1: it can't be; the reason is on stderr and in `install.error`.

    What it was installed from is left in `packages`.
    """
    with open(os.path.join(folder, "spec.json"), "rb") as file:
        spec = json.loads(file.read().decode())
    try:
        _install_once(folder, spec)
    except (InstallError, BadArchiveError, OSError) as exc:
        write_install_failure(folder, str(exc))
        sys.stderr.write("%s\n" % str(exc).split("\n")[0])  # what uv said is in the log already
        return 1
    return 0


def _install_once(folder: str, spec: dict[str, Any]) -> None:
    """Fill `site`, or wait for the one who does. It appears whole or not at all."""
    site = spec["site"]
    os.makedirs(os.path.dirname(site), mode=0o700, exist_ok=True)
    with open(site + ".lock", "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if os.path.isdir(site):
            return
        for stale in glob.glob(glob.escape(site) + ".partial-*"):
            shutil.rmtree(stale)
        partial = "%s.partial-%d" % (site, os.getpid())
        os.mkdir(partial, 0o700)
        uv = _Uv(spec["uv"], spec["python"])
        for number, package in enumerate(spec["packages"]):
            source = _fetch(package, os.path.join(folder, "packages", str(number)))
            _say("Installing the package: %s" % package["uri"])
            uv.run(["--target", partial, "--no-deps", *_build_options(source), source], package["uri"])
        _install_requirements(uv, partial)
        os.sync()  # a power cut must not leave a folder that counts as whole without its files
        os.rename(partial, site)


def _sha256(path: str) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        for piece in iter(lambda: file.read(1 << 20), b""):
            digest.update(piece)
    return digest.hexdigest()


def _fetch(package: dict[str, Any], folder: str) -> str:
    """Copy the package, look at it with suspicion, and return what to install: a wheel or an unpacked folder."""
    _say("Downloading the package: %s" % package["uri"])
    os.makedirs(folder, mode=0o700)
    name = package["uri"].rpartition("/")[2]
    copy = os.path.join(folder, "package" if name in ("", ".", "..") else name)
    try:
        shutil.copyfile(package["path"], copy)
    except FileNotFoundError:
        raise InstallError("There is no package %s. Upload it before you submit the job." % package["uri"]) from None
    if _sha256(copy) != package["sha256"]:
        raise InstallError(
            "The package %s was replaced while the job was being started. Submit the job again under a new name."
            % package["uri"]
        )
    try:
        if copy.endswith(".whl"):
            check(copy)
            return copy
        unpacked = os.path.join(folder, "unpacked")
        os.mkdir(unpacked, 0o700)
        extract(copy, unpacked)
    except BadArchiveError as exc:
        raise InstallError("The package %s can't be unpacked. %s" % (package["uri"], exc)) from exc
    os.unlink(copy)
    return _project(unpacked, package["uri"])


def _project(unpacked: str, uri: str) -> str:
    """The folder with the setup.py: that of the archive, or the only one in it."""
    names = os.listdir(unpacked)
    for folder in [unpacked] + ([os.path.join(unpacked, names[0])] if len(names) == 1 else []):
        if any(os.path.isfile(os.path.join(folder, name)) for name in ("setup.py", "pyproject.toml")):
            return folder
    raise InstallError("The package %s has no setup.py and no pyproject.toml, so it can't be installed." % uri)


def _build_options(source: str) -> list[str]:
    """A package that says how it is built is built so; any other one with the setuptools of the runtime."""
    if source.endswith(".whl"):
        return []
    try:
        with open(os.path.join(source, "pyproject.toml"), encoding="utf-8", errors="replace") as file:
            if _BUILD_SYSTEM.search(file.read()):
                return []
    except FileNotFoundError:
        return ["--no-build-isolation"]
    return ["--no-build-isolation"]


def _install_requirements(uv: _Uv, site: str) -> None:
    """Add what the packages in `site` require and neither they nor the runtime have."""
    wanted = requirements(site)
    if not wanted:
        return
    plan = uv.run(["--dry-run", *wanted], "its requirements (%s)" % ", ".join(wanted))
    missing = missing_requirements(plan)
    if missing:
        _say("Installing what the packages require: %s" % ", ".join(missing))
        uv.run(["--target", site, "--no-deps", *missing], "the requirements of the packages")


def requirements(site: str) -> list[str]:
    """What the packages in `site` require beyond each other, extras left out, as they wrote it."""
    found: list[str] = []
    installed = {
        _canonical(os.path.basename(path).split("-")[0]) for path in glob.glob(glob.escape(site) + "/*.dist-info")
    }
    for path in sorted(glob.glob(glob.escape(site) + "/*.dist-info/METADATA")):
        with open(path, encoding="utf-8", errors="replace") as file:
            head = file.read().split("\n\n")[0]
        for requirement in _REQUIRES.findall(head):
            name = _NAME.match(requirement)
            known = name is not None and _canonical(name.group()) in installed
            if not known and not _EXTRA.search(requirement) and requirement not in found:
                found.append(requirement)
    return found


def missing_requirements(plan: str) -> list[str]:
    """The requirements, exact, that a dry run of uv would install."""
    found = []
    for name, version, source, url in _MISSING.findall(_ANSI.sub("", plan)):
        found.append("%s @ %s" % (name, source or url) if source or url else "%s==%s" % (name, version))
    return found


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


class _Uv:
    """uv, installing for one Python. What it prints goes to the log."""

    def __init__(self, path: str, python: str) -> None:
        self._command = [path, "pip", "install", "--python", python]

    def run(self, arguments: list[str], what: str) -> str:
        """Returns all that it printed. `InstallError`, with its own words, if it fails."""
        lines = []
        with subprocess.Popen(
            [*self._command, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            universal_newlines=True,
            errors="backslashreplace",
            env=dict(os.environ, NO_COLOR="1", UV_NO_PROGRESS="1"),
        ) as process:
            assert process.stdout is not None
            for line in process.stdout:
                lines.append(line)
                _say(line.rstrip("\n"))
        output = "".join(lines)
        if process.returncode != 0:
            raise InstallError("The package can't be installed: %s.\n%s" % (what, output[-3000:].strip()))
        return output


def _say(line: str) -> None:
    sys.stdout.write("%s\n" % line)
    sys.stdout.flush()
