"""The uv program: where it is, how it is called, and what its errors mean."""

from __future__ import annotations

import contextlib
import re
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from trainshed.errors import CannotProceedError, DiskFullError, TrainshedError, UnavailableError

# What a shell around the server may have set for another environment than the one that is being built.
_FOREIGN = ("VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONHOME", "PYTHONPATH", "UV_PROJECT", "UV_PYTHON", "UV_SYSTEM_PYTHON")

_NO_SPACE = re.compile(r"No space left on device|os error 28|Disk quota exceeded|os error 122")
_UNREACHABLE = re.compile(
    r"error sending request|dns error|failed to lookup|[Cc]onnection refused|[Nn]etwork is unreachable|timed? ?out"
    r"|network was disabled|network connectivity is disabled|error trying to connect"
)
_MISSING = re.compile(
    r"No solution found|not found in the (package registry|provided package locations)|HTTP status .*404"
)


def find_uv() -> Path:
    """The uv program of this installation, else the one on the PATH. `CannotProceedError` if there is none."""
    beside = Path(sys.executable).with_name("uv")
    if beside.is_file():
        return beside
    with contextlib.suppress(ImportError, FileNotFoundError):  # the package may be installed in another scheme
        from uv import find_uv_bin

        return Path(find_uv_bin())
    if found := shutil.which("uv"):
        return Path(found).absolute()
    raise CannotProceedError(
        "The program uv, which builds the environments of jobs, is not on this machine. "
        "Install it with `python -m pip install uv`."
    )


def uv_command(uv: Path, *arguments: str | Path, settings: Mapping[str, str] | None = None) -> list[str]:
    """The argument list for a call of uv that is not led astray by the environment the server was started from."""
    unset = [part for name in _FOREIGN for part in ("-u", name)]
    # The last one: the `python` of `trainshed shell` must not ask for the runtime that is being built.
    fixed = {"UV_NO_PROGRESS": "1", "NO_COLOR": "1", "TRAINSHED_BUILDING": "1"}
    put = [f"{name}={value}" for name, value in {**fixed, **(settings or {})}.items()]
    return ["/usr/bin/env", *unset, *put, str(uv), *map(str, arguments)]


def last_words(output: str, *, lines: int = 6) -> str:
    """What uv said at the end of its output, on one line, without its progress and without passwords in URLs."""
    kept = [line.strip() for line in output.splitlines() if line.strip()]
    start = max((n for n, line in enumerate(kept) if re.match(r"error\b|×", line)), default=len(kept) - lines)
    words = " ".join(line.lstrip("×╰├│─▶ ") for line in kept[max(start, 0) :][:lines])
    words = re.sub(r"://[^/@\s]+@", "://", re.sub(r"\s+", " ", words)).removeprefix("error: ")
    return words.rstrip(".")[:800] or "it said nothing"


def explain_failure(what: str, output: str) -> TrainshedError:
    """The error for a call of uv that failed while it did `what`, from all that it wrote."""
    words = last_words(output)
    if _NO_SPACE.search(output):
        return DiskFullError(
            f"{what} failed because the disk is full. Make room, or put TRAINSHED_HOME and UV_CACHE_DIR on another "
            f"disk, and try again."
        )
    if _UNREACHABLE.search(output):
        remedy = (
            "The package index can't be reached: check the network, or name an index that can be with UV_DEFAULT_INDEX"
        )
    elif _MISSING.search(output):
        remedy = "The package index does not have this package: name one that does with UV_DEFAULT_INDEX"
    else:
        remedy = "Mend what uv names"
    return UnavailableError(f"{what} failed. uv says: {words}. {remedy}, and try again.", retry_after_s=60)
