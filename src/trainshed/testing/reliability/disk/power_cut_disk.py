"""A disk whose power can be cut, for a state folder. Its process is `disk_process`, which needs libfuse."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trainshed.testing.eventually import eventually
from trainshed.testing.reliability.stamps import processes_of

CUT = "user.trainshed.cut"  #: the extended attribute of the disk that cuts its power
_PROCESS = "trainshed.testing.reliability.disk.disk_process"
_SETUP_TIMEOUT_S = 60.0


def unavailable_reason() -> str:
    """Why no such disk can be mounted here. Empty if one can."""
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        return "/dev/fuse can't be used"
    return "" if shutil.which("fusermount3") else "fusermount3 is missing: install Debian's package fuse3"


class PowerCutDisk:
    """A mounted disk, for one process at a time to mount and cut."""

    def __init__(self, folder: Path, image: Path) -> None:
        self.folder = folder
        self._image = image
        self._process: subprocess.Popen[bytes] | None = None

    def mount(self) -> None:
        """Mount what the last cut left, or an empty disk."""
        self.folder.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", _PROCESS, str(self._image), str(self.folder)]
        self._process = subprocess.Popen(command, start_new_session=True)
        eventually(lambda: self._is_up(self._process), within_s=_SETUP_TIMEOUT_S)

    def _is_up(self, process: subprocess.Popen[bytes] | None) -> bool:
        assert process is not None and process.poll() is None, "the disk can't be mounted"
        return self.folder.is_mount()

    def cut(self, seed: str) -> None:
        """Kill all processes that use the disk, lose what is not synced, and unmount it.

        An empty seed loses all of it, any other one some.
        """
        self.kill_users()
        os.setxattr(self.folder, CUT, seed.encode())
        self.unmount()

    def kill_users(self) -> None:
        """Send SIGKILL to all processes whose command line or environment names the folder, until there is none."""

        def killed() -> dict[int, str]:
            users = processes_of(self.folder)
            users.pop(self._process.pid if self._process else 0, None)
            for pid in users:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            return users

        eventually(killed, lambda users: not users, within_s=_SETUP_TIMEOUT_S)

    def unmount(self) -> None:
        """Unmount it. Idempotent. Without a cut before, all that was not in the image is lost."""
        if self._process is None:
            return
        subprocess.run(["fusermount3", "-u", "-z", str(self.folder)], check=False, capture_output=True)
        self._process.kill()  # a file that is still open would keep it
        self._process.wait(timeout=_SETUP_TIMEOUT_S)
        self._process = None


@contextmanager
def power_cut_disk(folder: Path, image: Path) -> Iterator[PowerCutDisk]:
    """A mounted disk. What still uses it at the end is killed."""
    disk = PowerCutDisk(folder, image)
    disk.mount()
    try:
        yield disk
    finally:
        disk.kill_users()
        disk.unmount()
