"""The uv program: where it is, how to call it, and what its errors mean."""

from __future__ import annotations

import contextlib
import re
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from trainshed.errors import CannotProceedError, DiskFullError, TrainshedError, UnavailableError

# variables of a surrounding shell that refer to another environment than the one being built
_UNSET_VARIABLES = (
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
    "PYTHONHOME",
    "PYTHONPATH",
    "UV_PROJECT",
    "UV_PYTHON",
    "UV_SYSTEM_PYTHON",
)

_NO_SPACE = re.compile(r"No space left on device|os error 28|Disk quota exceeded|os error 122")
_UNREACHABLE = re.compile(
    r"error sending request|dns error|failed to lookup|[Cc]onnection refused|[Nn]etwork is unreachable|timed? ?out"
    r"|network was disabled|network connectivity is disabled|error trying to connect"
)
#: A build of a package that common indexes do not have, as uv names it.
_LOCAL_BUILD = re.compile(r"\b([A-Za-z][\w.-]*)={2,3}[\w.]+\+(cpu|cu\d+)\b")
_MISSING = re.compile(
    r"No solution found|not found in the (package registry|provided package locations)|HTTP status .*404"
)


def find_uv() -> Path:
    """The uv program of this installation, or the one on the PATH. Raises `CannotProceedError` if there is none."""
    bundled = Path(sys.executable).with_name("uv")
    if bundled.is_file():
        return bundled
    with contextlib.suppress(ImportError, FileNotFoundError):  # the package may use another installation scheme
        from uv import find_uv_bin

        return Path(find_uv_bin())
    if on_path := shutil.which("uv"):
        return Path(on_path).absolute()
    raise CannotProceedError(
        "The program uv, which builds the environments of jobs, is not on this machine. "
        "Install it with `python -m pip install uv`."
    )


def uv_command(uv: Path, *arguments: str | Path, settings: Mapping[str, str] | None = None) -> list[str]:
    """The argument list of a call of uv, isolated from the server's environment variables."""
    unset = [part for name in _UNSET_VARIABLES for part in ("-u", name)]
    # TRAINSHED_BUILDING: the `python` of `trainshed shell` must not request the runtime that is being built.
    fixed = {"UV_NO_PROGRESS": "1", "NO_COLOR": "1", "TRAINSHED_BUILDING": "1"}
    assignments = [f"{name}={value}" for name, value in {**fixed, **(settings or {})}.items()]
    return ["/usr/bin/env", *unset, *assignments, str(uv), *map(str, arguments)]


def error_message(output: str, *, lines: int = 6) -> str:
    """The error at the end of uv's output, on one line, without progress and without passwords in URLs."""
    non_empty = [line.strip() for line in output.splitlines() if line.strip()]
    start = max((n for n, line in enumerate(non_empty) if re.match(r"error\b|×", line)), default=len(non_empty) - lines)
    message = " ".join(line.lstrip("×╰├│─▶ ") for line in non_empty[max(start, 0) :][:lines])
    message = re.sub(r"://[^/@\s]+@", "://", re.sub(r"\s+", " ", message)).removeprefix("error: ")
    return message.rstrip(".")[:800] or "it said nothing"


def explain_failure(what: str, output: str) -> TrainshedError:
    """The error for a failed call of uv, from its whole output. `what` is the failed action."""
    message = error_message(output)
    if _NO_SPACE.search(output):
        return DiskFullError(
            f"{what} failed because the disk is full. Make room, or put TRAINSHED_HOME and UV_CACHE_DIR on another "
            f"disk, and try again."
        )
    if _UNREACHABLE.search(output):
        remedy = (
            "The package index can't be reached: check the network, or name an index that can be with UV_DEFAULT_INDEX"
        )
    elif _MISSING.search(output) and (build := _LOCAL_BUILD.search(output)):
        remedy = (
            f"The package index has no build {build[2]!r} of {build[1]}: set TRAINSHED_SERVER_RUNTIME_FIND_LINKS (or "
            f"runtime_find_links in config.toml) to a folder with its wheel, or to a page that links to it, and start "
            f"the server again"
        )
    elif _MISSING.search(output):
        remedy = "The package index does not have this package: name one that does with UV_DEFAULT_INDEX"
    else:
        remedy = "Mend what uv names"
    return UnavailableError(f"{what} failed. uv says: {message}. {remedy}, and try again.", retry_after_s=60)
