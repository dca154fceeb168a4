"""The limits of each replica, host and build on this machine, and by which means they are kept."""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainshed.config import Home, Settings
from trainshed.node.sandbox import cgroups

LOG = logging.getLogger("trainshed.engines.local.limits")

CGROUPS, WATCHED, NONE = "cgroups", "watched", "none"
_MEMORY_SHARE = 0.75  #: of the machine's memory, that one replica may have by default
_BYTES_PER_GB = 1e9
_LEAST_DISK_BYTES = 1_000_000_000  #: even if the disk is nearly full: what fails then fails by itself
_NAME_DIGITS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class UserCodeLimits:
    """The limits of a replica, a host or a build, and the level in force for memory, processes and cores."""

    memory_bytes: int
    processes: int
    open_files: int
    file_bytes: int  #: 0: no limit
    disk_bytes: int = 0  #: in all files of its own; 0: half of what is free in `disk` when it starts
    disk: Path | None = None
    cpu_weight: int
    level: str = WATCHED
    reason: str = ""  #: why it is not a higher one
    folders: Mapping[str, str] = field(default_factory=dict)  #: of control groups, by controller

    @property
    def note(self) -> str:
        """A line for people."""
        return (
            f"Its limits are {self.memory_bytes / _BYTES_PER_GB:.3g} GB of memory, {self.processes:,} processes and "
            f"threads, and {self.open_files:,} open files, at the level "
            f"{self.level}{f': {self.reason}' if self.reason else ''}."
        )

    def render(self, *, cpu_weight: int | None = None) -> dict[str, Any]:
        """As `node.sandbox.limits` reads them."""
        return {
            "memory_bytes": self.memory_bytes,
            "processes": self.processes,
            "open_files": self.open_files,
            "file_bytes": self.file_bytes,
            "disk_bytes": self.disk_bytes or self._half_of_the_disk(),
            "cpu_weight": self.cpu_weight if cpu_weight is None else cpu_weight,
            "cgroups": dict(self.folders),
        }

    def _half_of_the_disk(self) -> int:
        free = shutil.disk_usage(self.disk).free if self.disk else 0
        return max(_LEAST_DISK_BYTES, free // 2)

    def sweep(self) -> None:
        """Remove the control groups of processes that are gone."""
        cgroups.sweep(self.folders.values())


def find_limits(home: Home, settings: Settings, machine_bytes: int) -> UserCodeLimits:
    """The limits that the settings mean on a machine with this memory. Tries whether control groups can be made, and
    removes those that an earlier server left."""
    folders, reason = _find_folders(home)
    limits = UserCodeLimits(
        memory_bytes=int(settings.memory_limit_gb * _BYTES_PER_GB) or int(machine_bytes * _MEMORY_SHARE),
        processes=settings.process_limit,
        open_files=settings.open_file_limit,
        file_bytes=int(settings.file_size_limit_gb * _BYTES_PER_GB),
        disk_bytes=int(settings.disk_limit_gb * _BYTES_PER_GB),
        disk=home.path,
        cpu_weight=settings.replica_cpu_weight,
        level=CGROUPS if folders else WATCHED,
        reason=reason,
        folders=folders,
    )
    LOG.info("limits.level level=%s reason=%s memory_bytes=%d", limits.level, reason, limits.memory_bytes)
    return limits


def _find_folders(home: Home) -> tuple[dict[str, str], str]:
    """The folders of control groups, or why there are none."""
    if os.geteuid() != 0:
        return {}, "only root can make control groups"
    digest = hashlib.sha256(os.fsencode(home.path)).hexdigest()[:_NAME_DIGITS]
    try:
        folders = cgroups.find_folders(f"trainshed-{digest}")
        cgroups.sweep(folders.values())
        cgroups.ControlGroup(folders, 1 << 30, 100, 100).remove()
    except OSError as exc:
        return {}, f"control groups can't be made ({exc.strerror or exc})"
    return folders, ""


def machine_memory() -> int:
    """Bytes of memory of this machine."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
