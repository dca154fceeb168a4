"""The words for a limit that user code reached: a replica, a host, or a build."""

from __future__ import annotations

from collections.abc import Mapping

from trainshed.domain.jobs.failure import FailureCause

_LIMIT_REMEDIES: Mapping[FailureCause, str] = {
    FailureCause.OUT_OF_MEMORY: (
        "Use a smaller batch size, read the data in parts, or raise the server's memory_limit_gb."
    ),
    FailureCause.TOO_MANY_PROCESSES: "Start fewer processes and threads, or raise the server's process_limit.",
    FailureCause.TOO_MANY_OPEN_FILES: (
        "Close files that are no longer needed. A program can raise the number itself with resource.setrlimit, up to "
        "the server's open_file_limit."
    ),
    FailureCause.FILE_TOO_LARGE: "Write several smaller files, or raise the server's file_size_limit_gb.",
    FailureCause.DISK_LIMIT: (
        "Remove files that are no longer needed, write results to a bucket, or raise the server's disk_limit_gb."
    ),
}
_BYTES_PER_GB, _BYTES_PER_MB = 1e9, 1e6


def limit_words(cause: FailureCause, facts: Mapping[str, object]) -> str:
    """Such as `out of memory: 15.8 of 16 GB`. Empty if no limit was the cause."""
    limit, used = facts.get("limit"), facts.get("used")
    if not isinstance(limit, int | float):
        return ""
    match cause:
        case FailureCause.OUT_OF_MEMORY:
            return f"out of memory: {_bytes(used, limit)}"
        case FailureCause.TOO_MANY_PROCESSES:
            counted = f"{used:,} of {limit:,}" if isinstance(used, int | float) else f"the limit is {limit:,}"
            return f"too many processes: {counted}"
        case FailureCause.TOO_MANY_OPEN_FILES:
            return f"too many open files: the limit of a process is {limit:,}"
        case FailureCause.FILE_TOO_LARGE:
            return f"file too large: the limit is {_bytes(None, limit)}"
        case FailureCause.DISK_LIMIT:
            return f"too much on the disk: {_bytes(used, limit)}"
    return ""


def limit_remedy(cause: FailureCause) -> str:
    """What to do about a limit that was reached."""
    return _LIMIT_REMEDIES.get(cause, "")


def _bytes(used: object, limit: float) -> str:
    """Such as `15.8 of 16 GB`."""
    unit, size = ("GB", _BYTES_PER_GB) if limit >= _BYTES_PER_GB else ("MB", _BYTES_PER_MB)
    text = f"{limit / size:.3g} {unit}"
    return f"{used / size:.3g} of {text}" if isinstance(used, int | float) else text
