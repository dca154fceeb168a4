"""The error message of a failed job: the replica, its exit status, its log tail and, if known, a remedy."""

from __future__ import annotations

import re
import signal

from ..process.exit_status import ExitStatus
from .log_writer import printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_EXCERPT_MAX_BYTES = 2048
_EXCERPT_MAX_LINES = 20
_TRACEBACK = "Traceback (most recent call last):"
_MISSING_MODULE = re.compile(r"(?:ModuleNotFoundError|ImportError): No module named '?([\w.]+)'?")
_MISSING_MAIN_MODULE = re.compile(
    r"(?:^|\n)\S*python[\d.]*: (?:Error while finding module specification for '([\w.]+)'|No module named '?([\w.]+)'?)"
)
_CONNECTION_ERROR = re.compile(
    r"Unavailable|UNAVAILABLE|AbortedError|ABORTED:|Socket closed|[Cc]onnection (?:reset|refused|closed|aborted|lost)"
    r"|ConnectionError|Connection\w+Error|BrokenPipeError|Broken pipe|[Ff]ailed to connect|[Hh]eartbeat timeout"
)
_MISSING_PACKAGE = re.compile(r"(?:DistributionNotFound|PackageNotFoundError): (.+)")


def is_peer_loss(tail: str) -> bool:
    """Whether the log tail of a replica ends in a broken connection, the effect of another replica's exit."""
    lines = [line for line in tail.split("\n") if line.strip()]
    starts = [index for index, line in enumerate(lines) if line.startswith(_TRACEBACK)]
    return (
        _CONNECTION_ERROR.search("\n".join(lines[starts[-1] :] if starts else lines[-_EXCERPT_MAX_LINES:])) is not None
    )


def explain(
    spec: dict[str, Any], replica: dict[str, Any], status: ExitStatus, tail: str, oom: bool, more: str = ""
) -> str:
    """The job's errorMessage. `tail` is the replica's log tail. `oom` means that the kernel killed a process for
    memory. `more` is added to the message."""
    parts = ["%s\n%s" % (_opening(replica, status, tail, oom), _excerpt(tail))]
    if more:
        parts.append(more)
    contained = "container" in replica
    advice = (
        advise_container(replica["container"], status, tail, oom)
        if contained
        else advise(spec["module"], status, tail, oom)
    )
    if advice:
        parts.append(advice)
    parts.append(
        "To find out more about why your job exited please check the logs: trainshed jobs logs %s" % spec["job"]
    )
    return "\n\n".join(part.rstrip("\n") for part in parts)


def _opening(replica: dict[str, Any], status: ExitStatus, tail: str, oom: bool) -> str:
    subject = "The replica %s %d" % (replica["type"], replica["index"])
    if status.node_lost:
        return "%s was lost with the machine that it ran on. " % subject
    if status.signal is not None:
        name = _signal_name(status.signal)
        if status.signal == signal.SIGKILL and oom:
            return "%s ran out-of-memory and exited with a non-zero status of 9(SIGKILL). " % subject
        return "%s was killed by signal %d (%s). " % (subject, status.signal, name)
    if _last_line(tail).startswith("MemoryError"):
        return "%s ran out-of-memory and exited with a non-zero status of %s. " % (subject, status.code)
    return "%s exited with a non-zero status of %s. " % (subject, status.code)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "SIGRTMIN+%d" % (number - signal.SIGRTMIN)


def _last_line(tail: str) -> str:
    lines = [line for line in tail.split("\n") if line.strip()]
    return lines[-1] if lines else ""


def _excerpt(tail: str) -> str:
    """The last traceback, or else the last lines, in about 2 KiB. The oldest lines are dropped."""
    lines = [line for line in tail.split("\n") if line.strip()]
    starts = [index for index, line in enumerate(lines) if line.startswith(_TRACEBACK)]
    if starts:
        return "\n".join(_shorten(lines[starts[-1] + 1 :], [_TRACEBACK], "  [...]"))
    return "\n".join(_shorten(lines[-_EXCERPT_MAX_LINES:], [], "[...]"))


def _shorten(lines: list[str], head: list[str], mark: str) -> list[str]:
    newest: list[str] = []
    free = _EXCERPT_MAX_BYTES
    for line in reversed(lines):
        if len(line) + 1 > free:
            if not newest:
                newest.append(line[:free])
            return [*head, mark, *reversed(newest)]
        free -= len(line) + 1
        newest.append(line)
    return [*head, *reversed(newest)]


_NO_PROGRAM = re.compile(r"failed to exec pid1|executable file .* not found|stat .*: no such file or directory: OCI")


def advise_container(container: dict[str, Any], status: ExitStatus, tail: str, oom: bool) -> str:
    """Remedy for a replica in a container. Empty if the case is not a common one."""
    missing = _MISSING_MODULE.search(_last_line(tail))
    if _NO_PROGRAM.search(tail):
        command = container["command"][0] if container["command"] else "its ENTRYPOINT"
        return "The image %s does not hold %s, or it can't be run there." % (container["image"], command)
    if missing:
        return "The module %s is not in the image %s. Install it there." % (missing.group(1), container["image"])
    if status.signal == signal.SIGKILL and oom:
        return (
            "It needed more memory than the %g GB of its machine type, or than was left. Use a larger type, a smaller "
            "batch size, or read the data in parts." % (container["memory_bytes"] / 1e9)
        )
    return _advise_any(status, tail, oom)


def advise(module: str, status: ExitStatus, tail: str, oom: bool) -> str:
    """Remedy for a replica. Empty if the case is not a common one."""
    return _advise_any(status, tail, oom) or _advise_import(module, tail)


def _advise_any(status: ExitStatus, tail: str, oom: bool) -> str:
    if (status.signal == signal.SIGKILL and oom) or _last_line(tail).startswith("MemoryError"):
        return (
            "The machine had no memory left for it. Use a smaller batch size, read the data in parts, or run fewer "
            "jobs at once."
        )
    if status.signal == signal.SIGKILL:
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
    direct = _MISSING_MAIN_MODULE.search(tail)
    missing = _MISSING_MODULE.search(_last_line(tail))
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
    lost = _MISSING_PACKAGE.search(tail)
    if lost:
        return "The package %s is not installed. Add it to install_requires in setup.py." % lost.group(1).strip()
    return ""


def write_install_failure(folder: str, reason: str) -> None:
    """Write why a job's packages or images can't be installed, for `install_failure`."""
    with open("%s/install.error" % folder, "w", encoding="utf-8", errors="backslashreplace") as out:
        out.write(reason)


def install_failure(folder: str, job: str, status: ExitStatus) -> str:
    """The job's errorMessage after a failed installation: the installer's reason, or else its exit status."""
    try:
        with open("%s/install.error" % folder, "rb") as file:
            reason = "\n".join(printable(line) for line in file.read(_EXCERPT_MAX_BYTES * 2).split(b"\n"))
    except FileNotFoundError:
        reason = "The installation of the job's packages was killed by signal %s." % status.signal
        if status.signal is None:
            reason = "The installation of the job's packages exited with the status %s." % status.code
    return "%s\n\nTo find out more please check the logs: trainshed jobs logs %s" % (reason.rstrip(), job)
