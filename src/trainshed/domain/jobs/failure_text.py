"""The sentences about a failure: the job's errorMessage, and a summary with a remedy.

This is the one place where facts become sentences. Nothing reads them back.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from trainshed.domain.jobs.failure import Failure, FailureCause
from trainshed.domain.jobs.limit_words import limit_remedy, limit_words
from trainshed.domain.jobs.output_signs import find_sign, last_exception, truncate

_CRASH_SIGNALS = frozenset({signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGILL, signal.SIGFPE})
_MEMORY_REMEDY = "Use a smaller batch size, read the data in parts, or run fewer jobs at once."
_HANG_REMEDY = "Its log has the stack of each hang. Put right what it waits for there, and submit the job again."
_SUBMIT_AGAIN = "Nothing is wrong with the job itself: submit it again under a new name."

# What user code, Python, Podman or Docker print.
_MISSING_MODULE = re.compile(r"(?:ModuleNotFoundError|ImportError): No module named '?([\w.]+)'?")
_MISSING_MAIN_MODULE = re.compile(
    r"(?:^|\n)\S*python[\d.]*: (?:Error while finding module specification for '([\w.]+)'|No module named '?([\w.]+)'?)"
)
_MISSING_PACKAGE = re.compile(r"(?:DistributionNotFound|PackageNotFoundError): (.+)")
_NO_PROGRAM = re.compile(r"failed to exec pid1|executable file .* not found|stat .*: no such file or directory: OCI")
_DISK_FULL = re.compile(r"No space left on device|\[Errno 28\]")
_NO_JOB_DIR = re.compile(r"unrecognized arguments:.*--job-dir")


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """A failure for people: what happened in a sentence, and a remedy if one is known."""

    summary: str
    remedy: str = ""
    sign: str = ""  #: the name of the sign in the output that explains it; empty if there is none


# -- errorMessage


def error_message(failure: Failure, job: str) -> str:
    """The errorMessage of a job."""
    if failure.replica:
        opening = f"The replica {_replica_words(failure)} {_ending(failure)} \n{failure.output}"
        pointer = f"To find out more about why your job exited please check the logs: trainshed jobs logs {job}"
        parts = (opening, _restart_limit(failure), _advice(failure), pointer)
        return "\n\n".join(part.rstrip("\n") for part in parts if part)
    if failure.cause in _SUPERVISED:
        return " ".join(_SUPERVISED[failure.cause])
    match failure.cause:
        case FailureCause.TIME_LIMIT:
            return (
                f"The job ran longer than its maxRunningTime of {_amount(failure, 'limit_s'):g} s and was cancelled. "
                f"Raise scheduling.maxRunningTime if it needs longer."
            )
        case FailureCause.CANCELLED:
            return _cancelled(failure)
        case FailureCause.SUPERVISOR_LOST:
            return " ".join(_supervisor_lost(failure))
        case FailureCause.SUPERVISOR_FAILED:
            return (
                f"The supervisor of this job failed ({failure.message}) and ended it. Submit the job again under a new "
                f"name."
            )
        case (
            FailureCause.LAUNCH_FAILED
            | FailureCause.BUCKET_LIMIT
            | FailureCause.START_FAILED
            | FailureCause.METRIC_MISSING
            | FailureCause.TRIALS_FAILED
        ):
            return failure.message
    reason = f"{_installation(failure)}\n{failure.output}".rstrip()
    return f"{reason}\n\nTo find out more please check the logs: trainshed jobs logs {job}"


#: what happened and what to do, for ends that say nothing of the job itself
_SUPERVISED = {
    FailureCause.REAPER_LOST: (
        "The reaper process of this job was killed, and its replicas were ended with it.",
        _SUBMIT_AGAIN,
    ),
    FailureCause.SUPERVISOR_STOPPED: (
        "The supervisor of this job received SIGTERM, as when the machine shuts down, and ended its replicas.",
        _SUBMIT_AGAIN,
    ),
}


def _supervisor_lost(failure: Failure) -> tuple[str, str]:
    """What happened, with what is known of the job's processes, and what to do."""
    ended, left = int(_amount(failure, "ended")), int(_amount(failure, "left"))
    if "ended" not in failure.facts:
        return "The supervisor of this job is gone. It is not known whether processes of the job live.", _SUBMIT_AGAIN
    if not ended and not left:
        return "The supervisor of this job was killed, and its replicas were ended with it.", _SUBMIT_AGAIN
    summary = "The supervisor of this job and its reaper were both killed."
    if ended:
        summary += (
            f" The server found processes of the job and ended them: {_pids(failure.facts.get('ended_pids'), ended)}."
        )
    if not left:
        return summary, _SUBMIT_AGAIN
    pids = _pids(failure.facts.get("left_pids"), left)
    return (
        f"{summary} It can't end these, which belong to another user or hang in the kernel: {pids}.",
        "End them by hand (kill -9 PID, as root), then submit the job again under a new name.",
    )


def _pids(listed: object, count: int) -> str:
    """Such as: pid 12, 13 and 4 more."""
    more = count - len(str(listed).split())
    return f"pid {listed}" + (f" and {more} more" if more > 0 else "")


def _amount(failure: Failure, name: str) -> float:
    value = failure.facts.get(name)
    return value if isinstance(value, int | float) else 0.0


def _replica_words(failure: Failure) -> str:
    """Such as: master 0."""
    kind, _, index = failure.replica.rpartition("-replica-")
    return f"{kind} {index}"


def _ending(failure: Failure) -> str:
    match failure.cause, failure.signal:
        case FailureCause.NODE_LOST, _:
            return "was lost with the machine that it ran on."
        case FailureCause.REPLICA_HUNG, _:
            return "hung, and was killed so that it restarts, but its restarts are used up."
        case FailureCause.OUT_OF_MEMORY, None:
            return f"ran out-of-memory and exited with a non-zero status of {failure.exit_code}."
        case FailureCause.OUT_OF_MEMORY, int(number):
            return f"ran out-of-memory and exited with a non-zero status of {number}({signal_name(number)})."
        case _, int(number):
            return f"was killed by signal {number} ({signal_name(number)})."
    return f"exited with a non-zero status of {failure.exit_code}."


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIGRTMIN+{number - signal.SIGRTMIN}"


def _restart_limit(failure: Failure) -> str:
    facts = failure.facts
    if "gang_restarts" not in facts:
        return ""
    subject = "The job" if facts.get("gang_size") == 1 else "The whole gang"
    message = f"{subject} had been restarted {facts['gang_restarts']} times already, which is the limit."
    if count := facts.get("replica_restarts"):
        message = f"{failure.replica} had been restarted {count} times since the gang last was. {message}"
    return message


def _cancelled(failure: Failure) -> str:
    by = failure.facts.get("by")
    if user := failure.facts.get("disabled_user"):
        return f"The job was cancelled because {by} disabled its user, {user}."
    return f"The job was cancelled by {by}." if by else "The job was cancelled."


def _installation(failure: Failure) -> str:
    if failure.message:
        return failure.message
    if failure.signal is not None:
        return f"The installation of the job's packages was killed by signal {failure.signal}."
    return f"The installation of the job's packages exited with the status {failure.exit_code}."


# -- advice in an errorMessage


def _advice(failure: Failure) -> str:
    """Empty if the case is not a common one."""
    if "image" in failure.facts and (advice := _container_advice(failure)):
        return advice
    if words := limit_words(failure.cause, failure.facts):
        return f"It reached its limit, {words}. {limit_remedy(failure.cause)}"
    if advice := _common_advice(failure):
        return advice
    return _import_advice(failure) if "module" in failure.facts else ""


def _container_advice(failure: Failure) -> str:
    image, missing = failure.facts["image"], _MISSING_MODULE.search(_last_line(failure.output))
    if _NO_PROGRAM.search(failure.output):
        command = failure.facts.get("command") or "its ENTRYPOINT"
        return f"The image {image} does not hold {command}, or it can't be run there."
    if missing:
        return f"The module {missing[1]} is not in the image {image}. Install it there."
    if failure.cause is FailureCause.OUT_OF_MEMORY and failure.signal is not None:
        limit = _amount(failure, "memory_limit_bytes") / 1e9
        return (
            f"It needed more memory than the {limit:g} GB of its machine type, or than was left. Use a larger type, a "
            f"smaller batch size, or read the data in parts."
        )
    return ""


def _common_advice(failure: Failure) -> str:
    if failure.cause is FailureCause.OUT_OF_MEMORY:
        return f"The machine had no memory left for it. {_MEMORY_REMEDY}"
    if failure.cause is FailureCause.REPLICA_HUNG:
        return _HANG_REMEDY
    if failure.signal == signal.SIGKILL:
        return (
            "Trainshed did not send this signal. Most often it is the kernel, when the machine's memory runs out: "
            "use a smaller batch size, read the data in parts, or run fewer jobs at once."
        )
    if _DISK_FULL.search(failure.output):
        return "The disk is full. Delete what you no longer need, such as old checkpoints in buckets, and submit again."
    if _NO_JOB_DIR.search(failure.output):
        return (
            "Every trainer is given --job-dir. Add it to your parser, "
            "parser.add_argument('--job-dir'), or ignore what you don't know with parser.parse_known_args()."
        )
    return ""


def _import_advice(failure: Failure) -> str:
    module = str(failure.facts["module"])
    direct = _MISSING_MAIN_MODULE.search(failure.output)
    missing = _MISSING_MODULE.search(_last_line(failure.output))
    name = (direct[1] or direct[2]) if direct else missing[1] if missing else ""
    own = name and (module == name or module.startswith(f"{name}."))
    if sibling := failure.facts.get("sibling_module"):
        return " ".join(_sibling_words(module, str(sibling)))
    if own or direct:
        return (
            f"There is no module {name} in the package that was submitted. Check --module-name (it is {module}, as "
            f"PACKAGE.MODULE) and --package-path (the folder PACKAGE, with an __init__.py in it)."
        )
    if missing:
        return (
            f"The module {name} is not in this runtime or in your package. If it belongs to another package, add that "
            f"to install_requires in setup.py; if it is yours, check that its folder has an __init__.py."
        )
    if lost := _MISSING_PACKAGE.search(failure.output):
        return f"The package {lost[1].strip()} is not installed. Add it to install_requires in setup.py."
    return ""


def _sibling_words(module: str, name: str) -> tuple[str, str]:
    """What happened and what to do about an import that only Python 2 takes as one of the same package."""
    package = module.rpartition(".")[0]
    return (
        f"The module {name} is in the package {package}, but Python 3 does not look for it there.",
        f"Write `from {package} import {name}` in place of `import {name}`.",
    )


def _last_line(output: str) -> str:
    lines = [line for line in output.split("\n") if line.strip()]
    return lines[-1] if lines else ""


# -- summary and remedy


def diagnose(failure: Failure, *, runtime: str = "") -> Diagnosis:
    """Summarize a failure: by its cause, or by signs in the output of user code and of installers."""
    if failure.cause in _SUPERVISED:
        summary, remedy = _SUPERVISED[failure.cause]
        return Diagnosis(summary=summary, remedy=remedy)
    if write := _BY_CAUSE.get(failure.cause):
        return _truncated(*write(failure))
    if sibling := failure.facts.get("sibling_module"):
        summary, remedy = _sibling_words(str(failure.facts.get("module")), str(sibling))
        return Diagnosis(summary=summary, remedy=remedy, sign="relative import")
    who = failure.replica or "The job"
    if found := find_sign(failure.output, who=who, runtime=runtime):
        name, summary, remedy = found
        return Diagnosis(summary=summary, remedy=remedy, sign=name)
    if not failure.replica:
        return _truncated(failure.message or _installation(failure), "")
    status = f"{who} ended with status {failure.exit_code}"
    first_line = _first_words(last_exception(failure.output))
    return _truncated(f"{status}: {first_line}" if first_line else status, "")


def _first_words(exception: str) -> str:
    """The first line, with the second if the first only announces it, such as `Graph execution error:`."""
    first, _, rest = exception.partition("\n")
    return f"{first} {rest.partition(chr(10))[0]}".rstrip() if first.endswith(" error:") else first


def _limit(failure: Failure) -> tuple[str, str]:
    words = limit_words(failure.cause, failure.facts)
    return f"{failure.replica} reached its limit, {words}.", limit_remedy(failure.cause)


def _memory(failure: Failure) -> tuple[str, str]:
    if limit_words(failure.cause, failure.facts):
        return _limit(failure)
    return f"{failure.replica or 'The job'} ran out of memory.", _MEMORY_REMEDY


def _killed(failure: Failure) -> tuple[str, str]:
    number = failure.signal or 0
    name = signal_name(number)
    if number == signal.SIGKILL:
        return (
            f"{failure.replica} was killed by signal 9 (SIGKILL), and not by Trainshed.",
            f"Most often it is the kernel, when the machine's memory runs out. {_MEMORY_REMEDY}",
        )
    if number in _CRASH_SIGNALS:
        return (
            f"{failure.replica} crashed in compiled code ({name}).",
            "Most often two packages don't go together: pin the versions in install_requires to those that the runtime "
            "has, or leave them out. `trainshed runtimes list` shows the runtimes.",
        )
    return (
        f"{failure.replica} was killed by signal {number} ({name}).",
        "Someone or something on this machine sent it. Submit the job again; it goes on from its last checkpoint if "
        "the trainer does.",
    )


def _hung(failure: Failure) -> tuple[str, str]:
    return f"{failure.replica} hung again and again, and its restarts are used up.", _HANG_REMEDY


def _node_lost(failure: Failure) -> tuple[str, str]:
    return (
        f"{failure.replica} was lost with the machine that it ran on.",
        "Submit the job again; it goes on from its last checkpoint if the trainer does.",
    )


def _time_limit(failure: Failure) -> tuple[str, str]:
    return (
        f"The job ran longer than its time limit of {_amount(failure, 'limit_s'):g} s.",
        "Give it more time with scheduling.maxRunningTime, or continue from its last checkpoint in a new job.",
    )


def _container_tool(failure: Failure) -> tuple[str, str]:
    facts = failure.facts
    broken = f"{facts.get('broken')} does not work on this machine: {facts.get('detail')}"
    why = broken if "broken" in facts else f"this machine has no {facts.get('wanted')}"
    return (
        f"The job's image can't be run: {why}.",
        "Install Podman on the server's machine, which needs no daemon: sudo apt-get install podman",
    )


def _image_missing(failure: Failure) -> tuple[str, str]:
    return (
        f"There is no image {failure.facts.get('image')} here, and it can't be pulled: {failure.facts.get('detail')}.",
        "Build it on the server's machine, or check its name and whether that machine reaches the registry.",
    )


def _image_architecture(failure: Failure) -> tuple[str, str]:
    facts = failure.facts
    return (
        f"The image {facts.get('image')} is made for {facts.get('architecture')}, and the machine is "
        f"{facts.get('machine')}.",
        f"Build it for this machine, with --platform linux/{facts.get('machine')}.",
    )


def _own_words(failure: Failure) -> tuple[str, str]:
    """The part that failed says what to do itself."""
    return failure.message.partition("\n")[0], ""


def _supervisor_failed(failure: Failure) -> tuple[str, str]:
    return f"The supervisor of this job failed ({failure.message}).", "Submit the job again under a new name."


_BY_CAUSE: Mapping[FailureCause, Callable[[Failure], tuple[str, str]]] = {
    FailureCause.OUT_OF_MEMORY: _memory,
    FailureCause.TOO_MANY_PROCESSES: _limit,
    FailureCause.TOO_MANY_OPEN_FILES: _limit,
    FailureCause.FILE_TOO_LARGE: _limit,
    FailureCause.DISK_LIMIT: _limit,
    FailureCause.REPLICA_KILLED: _killed,
    FailureCause.REPLICA_HUNG: _hung,
    FailureCause.NODE_LOST: _node_lost,
    FailureCause.TIME_LIMIT: _time_limit,
    FailureCause.CANCELLED: lambda failure: (_cancelled(failure), ""),
    FailureCause.SUPERVISOR_FAILED: _supervisor_failed,
    FailureCause.SUPERVISOR_LOST: _supervisor_lost,
    FailureCause.CONTAINER_TOOL_MISSING: _container_tool,
    FailureCause.IMAGE_MISSING: _image_missing,
    FailureCause.IMAGE_ARCHITECTURE: _image_architecture,
    **dict.fromkeys(
        (FailureCause.START_FAILED, FailureCause.NODE_SETUP_FAILED, FailureCause.LAUNCH_FAILED), _own_words
    ),
    **dict.fromkeys((FailureCause.METRIC_MISSING, FailureCause.TRIALS_FAILED, FailureCause.BUCKET_LIMIT), _own_words),
}


def _truncated(summary: str, remedy: str) -> Diagnosis:
    return Diagnosis(summary=truncate(summary, stop=True), remedy=truncate(remedy))
