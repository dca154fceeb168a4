"""Installs the packages of a job into a folder that all jobs with the same packages and runtime share.

Runs as a process of the job, since a package's setup.py is user code. The runtime itself never changes. Requirements
that the runtime lacks go into the same folder as the packages.
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
from .failure import INSTALL_FAILED, INSTALLATION, NodeFailureError, read_failure, write_failure

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_REQUIREMENT = re.compile(r"^Requires-Dist:\s*(.+?)\s*$", re.MULTILINE)
_EXTRA = re.compile(r";.*\bextra\s*==")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_PLANNED = re.compile(r"^ \+ (\S+?)(?:==(\S+))?(?: \(from (\S+)\)| @ (\S+))?$", re.MULTILINE)
_BUILD_SYSTEM = re.compile(r"^\s*\[build-system\]", re.MULTILINE)
_ANSI = re.compile(r"\x1b\[[0-9;]*m")


class InstallError(NodeFailureError):
    """The packages can't be installed."""

    def __init__(self, message: str, output: str = "") -> None:
        super().__init__(message, INSTALL_FAILED, output)


def install(folder: str) -> int:
    """Install the packages of the spec in `folder`. Returns 1 on failure, with the reason on
    stderr and in `install.failure`.

    Leaves the package sources in `packages`.
    """
    with open(os.path.join(folder, "spec.json"), "rb") as file:
        spec = json.loads(file.read().decode())
    sys.stdout.flush()
    try:
        _install_once(folder, spec)
    except (InstallError, BadArchiveError, OSError) as exc:
        failed = exc if isinstance(exc, InstallError) else InstallError(str(exc))
        write_failure(folder, INSTALLATION, failed.failure)
        sys.stderr.write("%s\n" % failed)  # the log has the output of uv already
        return 1
    return 0


def _install_once(folder: str, spec: dict[str, Any]) -> None:
    """Fill `site`, or wait for another process that does. The folder appears complete or not at all."""
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
        sources = os.path.join(folder, "packages")
        os.makedirs(sources, mode=0o700, exist_ok=True)
        sandbox = spec.get("sandbox")
        if sandbox is None or sandbox["level"] == "none":
            _fill(partial, sources, spec)
        else:
            _fill_in_cell(partial, sources, spec)
        os.sync()  # else a power cut may leave a folder that looks complete without its files
        os.rename(partial, site)


def _fill(partial: str, sources: str, spec: dict[str, Any]) -> None:
    """Install all packages and what they require into a folder. Runs their code."""
    uv = _Uv(spec["uv"], spec["python"])
    for index, package in enumerate(spec["packages"]):
        source = _fetch(package, os.path.join(sources, str(index)))
        _log("Installing the package: %s" % package["uri"])
        uv.run(["--target", partial, "--no-deps", *_build_options(source), source], package["uri"])
    _install_requirements(uv, partial)


def _fill_in_cell(partial: str, sources: str, spec: dict[str, Any]) -> None:
    """As `_fill`, in a sandbox that can write nothing but the two folders."""
    from .sandbox.builds import run_build  # late: remote nodes do not need it

    def fill() -> int:
        try:
            _fill(partial, sources, spec)
        except (InstallError, BadArchiveError, OSError) as exc:
            failed = exc if isinstance(exc, InstallError) else InstallError(str(exc))
            write_failure(sources, INSTALLATION, failed.failure)
            return 1
        return 0

    status = run_build(spec, partial, sources, fill)
    if status != 0:
        failure = read_failure(sources, INSTALLATION) or {}
        message = failure.get("message") or "The installation of the packages was interrupted."
        raise InstallError(str(message), str(failure.get("output") or ""))


def _sha256(path: str) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        for chunk in iter(lambda: file.read(1 << 20), b""):
            digest.update(chunk)
    return digest.hexdigest()


def _fetch(package: dict[str, Any], folder: str) -> str:
    """Copy and check the package. Returns what to install: a wheel or an extracted folder."""
    _log("Downloading the package: %s" % package["uri"])
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
    """The folder with the setup.py: the archive's root, or the only folder in it."""
    names = os.listdir(unpacked)
    for folder in [unpacked] + ([os.path.join(unpacked, names[0])] if len(names) == 1 else []):
        if any(os.path.isfile(os.path.join(folder, name)) for name in ("setup.py", "pyproject.toml")):
            return folder
    raise InstallError("The package %s has no setup.py and no pyproject.toml, so it can't be installed." % uri)


def _build_options(source: str) -> list[str]:
    """Options for uv: a package without its own build system is built with the runtime's setuptools."""
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
    """Install requirements that neither the packages in `site` nor the runtime satisfy."""
    required = requirements(site)
    if not required:
        return
    plan = uv.run(["--dry-run", *required], "its requirements (%s)" % ", ".join(required))
    missing = missing_requirements(plan)
    if missing:
        _log("Installing what the packages require: %s" % ", ".join(missing))
        uv.run(["--target", site, "--no-deps", *missing], "the requirements of the packages")


def requirements(site: str) -> list[str]:
    """Requirements of the packages in `site`, verbatim, without each other and without extras."""
    result: list[str] = []
    installed = {
        _canonical(os.path.basename(path).split("-")[0]) for path in glob.glob(glob.escape(site) + "/*.dist-info")
    }
    for path in sorted(glob.glob(glob.escape(site) + "/*.dist-info/METADATA")):
        with open(path, encoding="utf-8", errors="replace") as file:
            headers = file.read().split("\n\n")[0]
        for requirement in _REQUIREMENT.findall(headers):
            name = _NAME.match(requirement)
            satisfied = name is not None and _canonical(name.group()) in installed
            if not satisfied and not _EXTRA.search(requirement) and requirement not in result:
                result.append(requirement)
    return result


def missing_requirements(plan: str) -> list[str]:
    """The exact requirements that a dry run of uv would install."""
    result = []
    for name, version, source, url in _PLANNED.findall(_ANSI.sub("", plan)):
        result.append("%s @ %s" % (name, source or url) if source or url else "%s==%s" % (name, version))
    return result


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


class _Uv:
    """Runs uv for one Python. Its output goes to the log."""

    def __init__(self, path: str, python: str) -> None:
        self._command = [path, "pip", "install", "--python", python]

    def run(self, arguments: list[str], what: str) -> str:
        """Run uv and return its output. Raises `InstallError` with that output if uv fails."""
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
                _log(line.rstrip("\n"))
        output = "".join(lines)
        if process.returncode != 0:
            raise InstallError("The package can't be installed: %s." % what, output[-3000:].strip())
        return output


def _log(line: str) -> None:
    sys.stdout.write("%s\n" % line)
    sys.stdout.flush()
