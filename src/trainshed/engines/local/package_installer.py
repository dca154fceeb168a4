"""Installs the packages of a version in a separate process, since a setup.py is user code."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import orjson

from trainshed.artifacts.staging import Package
from trainshed.engines.local.sandbox import Sandbox
from trainshed.engines.reaped_process import ReapedRun, describe_exit, log_tail, start_reaped, wait
from trainshed.errors import DeadlineExceededError, FailedPreconditionError
from trainshed.node.failure import INSTALLATION, read_failure
from trainshed.node.process.environment import build_environment


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallTarget:
    """Where packages are installed, for which interpreter, and whose they are."""

    project: str
    python: Path
    site: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageInstaller:
    """`ship` returns the folder of shipped code, `uv` is the installer, `env` returns what it gets of the server's
    environment."""

    uv: Path
    ship: Callable[[], Path]
    env: Callable[[], Mapping[str, str]] = build_environment
    sandbox: Sandbox | None = None  #: without one, packages are built as the server runs
    timeout_s: float = 1800.0

    def install(
        self, packages: tuple[Package, ...], *, target: InstallTarget, folder: Path, check: Callable[[], None]
    ) -> None:
        """Fill the target, unless it exists. `folder` is for the log. What `check` raises meanwhile ends it.

        Raises `FailedPreconditionError` with the installer's message if it fails.
        """
        if target.site.is_dir():
            return
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(mode=0o700, parents=True)
        spec = {
            "python": str(target.python),
            "uv": str(self.uv),
            "site": str(target.site),
            "packages": [{"uri": each.uri, "path": str(each.path), "sha256": each.sha256} for each in packages],
            "sandbox": self.sandbox and self.sandbox.build(target.project),
        }
        (folder / "spec.json").write_bytes(orjson.dumps(spec))
        log = folder / "log"
        arguments = ("install", str(folder))
        run = ReapedRun(start_reaped(target.python, self.ship(), arguments, log=log, work=folder, env=self.env()))
        try:
            status = wait(run, timeout_s=self.timeout_s, check=check)
        except DeadlineExceededError as exc:
            raise FailedPreconditionError(f"It took longer than {self.timeout_s:g} s.") from exc
        if status != 0:
            failure = read_failure(str(folder), INSTALLATION)
            reason = f"{failure.get('message', '')}\n{failure.get('output', '')}" if failure else log_tail(log)
            raise FailedPreconditionError(reason.strip() or f"The installer {describe_exit(status)}.")
