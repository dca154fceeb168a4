"""Why a job failed, in words: the replica, how it ended, its last lines, and what to do about it if that is known."""

from __future__ import annotations

import re
import signal

from ..process.exit_status import ExitStatus
from .log_writer import printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_TEXT_LIMIT = 2048
_LINES = 20
_TRACEBACK = "Traceback (most recent call last):"
_MISSING = re.compile(r"(?:ModuleNotFoundError|ImportError): No module named '?([\w.]+)'?")
_NO_MODULE = re.compile(
    r"(?:^|\n)\S*python[\d.]*: (?:Error while finding module specification for '([\w.]+)'|No module named '?([\w.]+)'?)"
)
_CONNECTION = re.compile(
    r"Unavailable|UNAVAILABLE|AbortedError|ABORTED:|Socket closed|[Cc]onnection (?:reset|refused|closed|aborted|lost)"
    r"|ConnectionError|Connection\w+Error|BrokenPipeError|Broken pipe|[Ff]ailed to connect|[Hh]eartbeat timeout"
)
_LOST_PACKAGE = re.compile(r"(?:DistributionNotFound|PackageNotFoundError): (.+)")


def is_peer_loss(tail: str) -> bool:
    """Whether the last words of a replica are of a connection that broke: the effect of another replica's end."""
    lines = [line for line in tail.split("\n") if line.strip()]
    starts = [index for index, line in enumerate(lines) if line.startswith(_TRACEBACK)]
    return _CONNECTION.search("\n".join(lines[starts[-1] :] if starts else lines[-_LINES:])) is not None


def explain(
    spec: dict[str, Any], replica: dict[str, Any], end: ExitStatus, tail: str, oom: bool, more: str = ""
) -> str:
    """The job's errorMessage. `tail` is the end of what the replica wrote; `oom`: the kernel killed for memory;
    `more` is what else there is to say about the replica."""
    parts = ["%s\n%s" % (_opening(replica, end, tail, oom), _excerpt(tail))]
    if more:
        parts.append(more)
    contained = "container" in replica
    advice = (
        advise_container(replica["container"], end, tail, oom) if contained else advise(spec["module"], end, tail, oom)
    )
    if advice:
        parts.append(advice)
    parts.append(
        "To find out more about why your job exited please check the logs: trainshed jobs logs %s" % spec["job"]
    )
    return "\n\n".join(part.rstrip("\n") for part in parts)


def _opening(replica: dict[str, Any], end: ExitStatus, tail: str, oom: bool) -> str:
    who = "The replica %s %d" % (replica["type"], replica["index"])
    if end.node_lost:
        return "%s was lost with the machine that it ran on. " % who
    if end.signal is not None:
        name = _signal_name(end.signal)
        if end.signal == signal.SIGKILL and oom:
            return "%s ran out-of-memory and exited with a non-zero status of 9(SIGKILL). " % who
        return "%s was killed by signal %d (%s). " % (who, end.signal, name)
    if _last_line(tail).startswith("MemoryError"):
        return "%s ran out-of-memory and exited with a non-zero status of %s. " % (who, end.code)
    return "%s exited with a non-zero status of %s. " % (who, end.code)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "SIGRTMIN+%d" % (number - signal.SIGRTMIN)


def _last_line(tail: str) -> str:
    lines = [line for line in tail.split("\n") if line.strip()]
    return lines[-1] if lines else ""


def _excerpt(tail: str) -> str:
    """The last traceback, else the last lines, in at most 2 KiB or so: what is left out is the oldest."""
    lines = [line for line in tail.split("\n") if line.strip()]
    starts = [index for index, line in enumerate(lines) if line.startswith(_TRACEBACK)]
    if starts:
        return "\n".join(_shorten(lines[starts[-1] + 1 :], [_TRACEBACK], "  [...]"))
    return "\n".join(_shorten(lines[-_LINES:], [], "[...]"))


def _shorten(lines: list[str], head: list[str], mark: str) -> list[str]:
    kept: list[str] = []
    room = _TEXT_LIMIT
    for line in reversed(lines):
        if len(line) + 1 > room:
            if not kept:
                kept.append(line[:room])
            return [*head, mark, *reversed(kept)]
        room -= len(line) + 1
        kept.append(line)
    return [*head, *reversed(kept)]


_NO_PROGRAM = re.compile(r"failed to exec pid1|executable file .* not found|stat .*: no such file or directory: OCI")


def advise_container(container: dict[str, Any], end: ExitStatus, tail: str, oom: bool) -> str:
    """The same for a replica in a container."""
    missing = _MISSING.search(_last_line(tail))
    if _NO_PROGRAM.search(tail):
        command = container["command"][0] if container["command"] else "its ENTRYPOINT"
        return "The image %s does not hold %s, or it can't be run there." % (container["image"], command)
    if missing:
        return "The module %s is not in the image %s. Install it there." % (missing.group(1), container["image"])
    if end.signal == signal.SIGKILL and oom:
        return (
            "It needed more memory than the %g GB of its machine type, or than was left. Use a larger type, a smaller "
            "batch size, or read the data in parts." % (container["memory_bytes"] / 1e9)
        )
    return _advise_any(end, tail, oom)


def advise(module: str, end: ExitStatus, tail: str, oom: bool) -> str:
    """What to do about it, or nothing if this is no common case."""
    return _advise_any(end, tail, oom) or _advise_import(module, tail)


def _advise_any(end: ExitStatus, tail: str, oom: bool) -> str:
    if (end.signal == signal.SIGKILL and oom) or _last_line(tail).startswith("MemoryError"):
        return (
            "The machine had no memory left for it. Use a smaller batch size, read the data in parts, or run fewer "
            "jobs at once."
        )
    if end.signal == signal.SIGKILL:
        return (
            "Trainshed did not send this signal. Most often it is the kernel, when the machine's memory runs out: "
            "use a smaller batch size, read the data in parts, or run fewer jobs at once."
        )
    if "No space left on device" in tail or "[Errno 28]" in tail:
        return "The disk is full. Delete what you no longer need, such as old checkpoints in buckets, and submit again."
    if "unrecognized arguments:" in tail and "--job-dir" in tail:
        return (
            "Every trainer is given --job-dir. Add it to your parser, "
            "parser.add_argument('--job-dir'), or ignore what you don't know with parser.parse_known_args()."
        )
    return ""


def _advise_import(module: str, tail: str) -> str:
    direct = _NO_MODULE.search(tail)
    missing = _MISSING.search(_last_line(tail))
    name = (direct.group(1) or direct.group(2)) if direct else missing.group(1) if missing else ""
    own = name and (module == name or module.startswith(name + "."))
    if own or direct:
        return (
            "There is no module %s in the package that was submitted. Check --module-name (it is %s, as PACKAGE.MODULE)"
            " and --package-path (the folder PACKAGE, with an __init__.py in it)." % (name, module)
        )
    if missing:
        return (
            "The module %s is not in this runtime or in your package. If it belongs to another package, add that to "
            "install_requires in setup.py; if it is yours, check that its folder has an __init__.py." % name
        )
    lost = _LOST_PACKAGE.search(tail)
    if lost:
        return "The package %s is not installed. Add it to install_requires in setup.py." % lost.group(1).strip()
    return ""


def write_install_failure(folder: str, reason: str) -> None:
    """Leave word of why a job's packages, or its images, can't be had, for `install_failure` to find."""
    with open("%s/install.error" % folder, "w", encoding="utf-8", errors="backslashreplace") as out:
        out.write(reason)


def install_failure(folder: str, job: str, end: ExitStatus) -> str:
    """The job's errorMessage when its packages can't be installed: what the installer left, if it could."""
    try:
        with open("%s/install.error" % folder, "rb") as file:
            reason = "\n".join(printable(line) for line in file.read(_TEXT_LIMIT * 2).split(b"\n"))
    except FileNotFoundError:
        reason = "The installation of the job's packages was killed by signal %s." % end.signal
        if end.signal is None:
            reason = "The installation of the job's packages exited with the status %s." % end.code
    return "%s\n\nTo find out more please check the logs: trainshed jobs logs %s" % (reason.rstrip(), job)
