"""The sandbox around user code on this machine: which level the machine allows, and what each attempt sees in it."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

import trainshed
from trainshed.config import Home
from trainshed.engines.base import AttemptSpec
from trainshed.engines.local.limits import UserCodeLimits
from trainshed.engines.local.networks import Networks
from trainshed.errors import CannotProceedError

LOG = logging.getLogger("trainshed.engines.local.sandbox")

FULL, LANDLOCK, NONE, AUTO = "full", "landlock", "none", "auto"
_STRENGTH = {NONE: 0, LANDLOCK: 1, FULL: 2}
HOST_CPU_WEIGHT = 100  #: of hosts and what else answers people, beside `replica_cpu_weight`
FIRST_UID = 1_900_000_000  #: as root, of the users that user code has; no distribution gives users such numbers
UIDS = 200_000_000
_CHECK_TIMEOUT_S = 30.0
_CHECK = "import sys; sys.path.insert(0, sys.argv.pop(1)); from trainshed.node.main import main; main(sys.argv[1:])"


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxLevel:
    """The level in force."""

    level: str
    reason: str = ""  #: why it is not a higher one
    uid: int = 0  #: as root, the first of the users that processes in it can have; 0: they have the server's
    network: bool = False  #: whether processes in it can have a network of their own
    network_reason: str = ""  #: why they can't
    redirects: bool = False  #: whether all of their connections can be led to the forwarder, and not only its proxy's
    redirects_reason: str = ""  #: why they can't

    @property
    def note(self) -> str:
        """A line for people."""
        return f"The sandbox has the level {self.level}{f': {self.reason}' if self.reason else ''}."

    @property
    def network_note(self) -> str:
        """A line for people about a sandbox without a network of its own. Empty without a sandbox."""
        if self.level == NONE:
            return ""
        return f"Its network is the machine's{f': {self.network_reason}' if self.network_reason else ''}."


class SandboxCheck:
    """Finds the level that this machine allows, in a process of its own, while the server starts."""

    def __init__(self, home: Home, setting: str) -> None:
        """`setting` is the least level that is accepted; `auto`: the strongest that there is; `none`: no sandbox."""
        self._setting = setting
        self._process: subprocess.Popen[bytes] | None = None
        if setting != NONE:
            folder = tempfile.mkdtemp(prefix="sandbox-", dir=home.path)
            uid = str(FIRST_UID if os.geteuid() == 0 else 0)
            root = Path(trainshed.__file__).parent.parent
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _CHECK, root, "sandbox", folder, uid],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd="/",
            )

    def result(self) -> SandboxLevel:
        """Wait for the result. Raises `CannotProceedError` if the level is less than the setting asks for."""
        if self._process is None:
            return SandboxLevel(level=NONE, reason="the setting `sandbox` turns it off")
        found = _wait(self._process)
        LOG.info("sandbox.level level=%s uid=%d reason=%s", found.level, found.uid, found.reason)
        LOG.info("sandbox.network own=%s reason=%s", found.network, found.network_reason or found.redirects_reason)
        require(found, self._setting)
        return found


def require(found: SandboxLevel, setting: str) -> None:
    """Raises `CannotProceedError` if the level is less than the setting asks for."""
    if _STRENGTH[found.level] < _STRENGTH.get(setting, 0):
        raise CannotProceedError(
            f"The setting sandbox is {setting!r}, but this machine allows the level {found.level} alone: "
            f"{found.reason}. The full level needs Linux 5.12 with user namespaces: see {_REMEDY}. Or set "
            f"sandbox to {found.level!r}."
        )


_REMEDY = (
    "`sysctl user.max_user_namespaces kernel.unprivileged_userns_clone kernel.apparmor_restrict_unprivileged_userns`"
)


def _wait(process: subprocess.Popen[bytes]) -> SandboxLevel:
    try:
        out, err = process.communicate(timeout=_CHECK_TIMEOUT_S)
        body = orjson.loads(out)
        return SandboxLevel(**body)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return SandboxLevel(level=NONE, reason=f"the check did not end within {_CHECK_TIMEOUT_S:g} s")
    except (ValueError, TypeError):
        lines = err.decode(errors="replace").strip().splitlines()
        return SandboxLevel(level=NONE, reason=lines[-1] if lines else f"the check ended with {process.returncode}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sandbox:
    """What user code on this machine sees. `paths` are folders that all of it can read, such as data sets.

    As root, each project has a user, by its `number`. Without a level there are no `limits`.
    """

    home: Home
    level: SandboxLevel
    paths: tuple[Path, ...] = ()
    number: Callable[[str], int] = lambda project: 0
    limits: UserCodeLimits | None = None
    networks: Networks | None = None  #: None: user code has the machine's network

    def uid(self, project: str) -> int:
        """The user of a project's processes; 0: the server's."""
        return self.level.uid + self.number(project) % UIDS if self.level.uid else 0

    def cell(
        self,
        project: str,
        *,
        private: Path,
        readable: Iterable[Path] = (),
        writable: Iterable[Path] = (),
        listen: Path | None = None,
        network: bool = True,
    ) -> Mapping[str, Any] | None:
        """The sandbox of a process below a reaper, as `node.sandbox.reaped` reads it; None without one.

        `private` is a folder for what it alone uses. `listen` is the path of a socket that becomes its standard input.
        Without `network`, it has the machine's.
        """
        if self.level.level == NONE:
            return None
        return {
            **self._common(project, cpu_weight=HOST_CPU_WEIGHT),
            "read_only": [str(path) for path in (*self.paths, *readable)],
            "writable": [str(path) for path in writable],
            "private": str(private),
            "listen": str(listen or ""),
            "network": self.networks.render(project) if self.networks and network else None,
        }

    def build(self, project: str) -> Mapping[str, Any]:
        """The sandbox of a package build, to which `node.sandbox.builds` adds what it needs."""
        return {
            **self._common(project),
            "read_only": [str(path) for path in self.paths],
            "build_network": self.networks.render_build() if self.networks else None,
        }

    def _common(self, project: str, *, cpu_weight: int | None = None) -> dict[str, Any]:
        return {
            "level": self.level.level,
            "uid": self.uid(project),
            "hidden": [str(self.home.path)],
            "limits": self.limits.render(cpu_weight=cpu_weight) if self.limits else None,
        }

    def sweep(self) -> None:
        """Remove what processes that were killed have left of their limits."""
        if self.limits is not None:
            self.limits.sweep()

    def render(self, attempt: AttemptSpec) -> Mapping[str, Any]:
        """The part of a spec file about the sandbox of an attempt's replicas."""
        return {
            **self._common(attempt.project),
            "note": self.level.note,
            "limits_note": self.limits.note if self.limits else "",
            "network": self.networks.render(attempt.project, server=True) if self.networks else None,
            "build_network": self.networks.render_build() if self.networks else None,
            "network_note": self.networks.note(attempt.project) if self.networks else self.level.network_note,
            "read_only": [str(path) for path in (*self.paths, *attempt.readable)],
            "writable": [str(path) for path in attempt.writable],
        }
