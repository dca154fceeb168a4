"""How `make test` distributes the test files over its processes: in which order, and which of them go together."""

from __future__ import annotations

from pathlib import PurePosixPath

#: The longest files come first, so that all processes end at about the same time.
FOLDERS = ("tests/e2e", "tests/faults", "tests/browser", "tests/contract", "tests/wire", "tests/unit")
#: These share a cluster, which takes long to start. The one that loses nodes comes last.
RAY_FILES = ("tests/e2e/test_ray_jobs.py", "tests/e2e/test_ray_hosts.py", "tests/e2e/test_bridge.py")


def order(file: str) -> tuple[int, int]:
    """Return the sort key of a test file: by folder, with those of the cluster first."""
    folder = FOLDERS.index("/".join(PurePosixPath(file).parts[:2]))
    return folder, RAY_FILES.index(file) if file in RAY_FILES else len(RAY_FILES)


def work_unit(file: str) -> str:
    """Return the name of what one process runs as a whole: the file, or all files of the cluster."""
    return "ray" if file in RAY_FILES else file
