"""Diagnosis of failed jobs: a table of known causes. The first cause that matches a job's error wins."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import product

_EXIT_LINE = re.compile(r"The replica (\w+) (\d+) (.*)")
_STATUS = re.compile(r"exited with a non-zero status of (-?\d+)")
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z])")
_POINTER = re.compile(r"\s*To find out more\b.*", re.DOTALL)
_TRACEBACK = "Traceback (most recent call last):"
_MODULES = re.compile(r"\A(?:[A-Za-z_]\w*\.)+(?=[A-Za-z_]\w*(?::|\Z))")  #: the module path before an exception's name
_MAX_CHARACTERS = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """A failure for people: the cause in a sentence, and a remedy if one is known."""

    summary: str
    remedy: str = ""
    replica: str = ""  #: the replica that ended the job; empty if none did
    cause: str = ""  #: its name in CAUSES; empty if no cause matches


@dataclass(frozen=True, slots=True)
class Cause:
    """A known cause. `sign` is searched in the exit line and in the last output of the replica.

    The sentences can use the named groups of `sign`, and `who`, the replica.
    """

    name: str
    sign: re.Pattern[str]
    summary: str
    remedy: str
    runtime: str = ""  #: only for runtimes whose version starts with this


def _cause(name: str, sign: str, summary: str, remedy: str, *, runtime: str = "") -> Cause:
    return Cause(name, re.compile(sign, re.MULTILINE), summary, remedy, runtime)


_MEMORY_REMEDY = "Use a smaller batch size, read the data in parts, or run fewer jobs at once."

#: The first match wins, so specific causes come before general ones.
CAUSES = (
    _cause(
        "time limit",
        r"ran longer than its maxRunningTime of (?P<limit>[\d.e+]+ s)",
        "The job ran longer than its time limit of {limit}.",
        "Give it more time with scheduling.maxRunningTime, or continue from its last checkpoint in a new job.",
    ),
    _cause(
        "container tool",
        r"A container image needs (?P<name>[\w ]+) to run it, and (?P<why>[^.]+)",
        "The job's image can't be run: {why}.",
        "Install Podman on the server's machine, which needs no daemon: sudo apt-get install podman",
    ),
    _cause(
        "image",
        r"The image (?P<image>\S+) is not on this machine, and it can't be pulled: (?P<why>.+?)\. Build it here",
        "There is no image {image} here, and it can't be pulled: {why}.",
        "Build it on the server's machine, or check its name and whether that machine reaches the registry.",
    ),
    _cause(
        "image architecture",
        r"The image (?P<image>\S+) is made for (?P<theirs>[\w ]+), and this machine is (?P<ours>\w+)",
        "The image {image} is made for {theirs}, and the machine is {ours}.",
        "Build it for this machine, with --platform linux/{ours}.",
    ),
    _cause(
        "memory",
        r"ran out-of-memory|^MemoryError|std::bad_alloc|OOM when allocating|ResourceExhaustedError: (?!.*space)"
        r"|Unable to allocate [\d.]+ \w+ for an array|Cannot allocate memory",
        "{who} ran out of memory.",
        _MEMORY_REMEDY,
    ),
    _cause(
        "killed",
        r"was killed by signal 9 \(SIGKILL\)",
        "{who} was killed by signal 9 (SIGKILL), and not by Trainshed.",
        "Most often it is the kernel, when the machine's memory runs out. " + _MEMORY_REMEDY,
    ),
    _cause(
        "crash",
        r"was killed by signal \d+ \((?P<signal>SIGSEGV|SIGABRT|SIGBUS|SIGILL|SIGFPE)\)",
        "{who} crashed in compiled code ({signal}).",
        "Most often two packages don't go together: pin the versions in install_requires to those that the runtime "
        "has, or leave them out. `trainshed runtimes list` shows the runtimes.",
    ),
    _cause(
        "signal",
        r"was killed by signal (?P<number>\d+) \((?P<signal>[\w+]+)\)",
        "{who} was killed by signal {number} ({signal}).",
        "Someone or something on this machine sent it. Submit the job again; it goes on from its last checkpoint if "
        "the trainer does.",
    ),
    _cause(
        "disk",
        r"No space left on device|\[Errno 28\]|Disk quota exceeded",
        "The disk is full.",
        "Delete what you no longer need, such as old checkpoints in buckets, and submit again.",
    ),
    _cause(
        "job-dir",
        r"unrecognized arguments:.*--job-dir",
        "The trainer does not take --job-dir, which every trainer is given.",
        "Add it to the parser, parser.add_argument('--job-dir'), or ignore what is not known with "
        "parser.parse_known_args().",
    ),
    _cause(
        "arguments",
        r"error: unrecognized arguments: (?P<given>.+)",
        "The trainer does not take these arguments: {given}.",
        "Check what stands behind ` -- ` in the submit command: it reaches the trainer as it is.",
    ),
    _cause(
        "missing arguments",
        r"error: the following arguments are required: (?P<missing>.+)",
        "The trainer was not given what it needs: {missing}.",
        "Add it behind ` -- ` at the end of the submit command.",
    ),
    _cause(
        "own module",
        r"^\S*python[\d.]*: (?:Error while finding module specification for '(?P<name>[\w.]+)'"
        r"|No module named '?(?P<other>[\w.]+)'?)",
        "There is no module {name}{other} in the package that was submitted.",
        "Check --module-name (PACKAGE.MODULE) and --package-path (the folder PACKAGE, with an __init__.py in it).",
    ),
    _cause(
        "TensorFlow 1",
        r"No module named '?(?P<name>tensorflow\.contrib[\w.]*)'?"
        r"|module 'tensorflow(?:\._api\.v2)?' has no attribute '(?P<other>Session|placeholder|app|flags|gfile|logging"
        r"|ConfigProto|get_default_graph|global_variables_initializer|contrib|layers|log|set_random_seed|variable_scope"
        r"|get_variable|trainable_variables|to_float|reset_default_graph|GraphKeys|InteractiveSession)'",
        "The trainer uses {name}{other}, which TensorFlow 2 does not have.",
        "Submit it with --runtime-version 1.15, or use tensorflow.compat.v1 where the module is there.",
        runtime="2.",
    ),
    _cause(
        "old runtime",
        r"module 'tensorflow(?:\.[\w.]+)?' has no attribute '(?P<name>\w+)'",
        "The trainer uses {name}, which the TensorFlow of this runtime does not have.",
        "The runtime is too old for it: submit it with a newer one, such as --runtime-version 2.21.",
        runtime="1.",
    ),
    _cause(
        "old Python",
        r"current Python version \((?P<has>[\d.]+)\) does not satisfy Python(?P<wants>[<>=!~\d.,]+)"
        r"|requires a different Python: (?P<other>[\d.]+) not in '?(?P<needs>[<>=!~\d., ]+)'?",
        "A package needs Python {wants}{needs}, and this runtime has {has}{other}.",
        "Submit it with a newer runtime (`trainshed runtimes list` shows them), or ask for an older version of the "
        "package in install_requires.",
    ),
    _cause(
        "syntax",
        r"^SyntaxError: (?P<what>.+)",
        "Python can't read the trainer's code: {what}.",
        "If it is right for a newer Python, the runtime is too old: this one has Python 3.7. Choose another with "
        "--runtime-version.",
        runtime="1.",
    ),
    _cause(
        "requirement",
        r"Because (?:there (?:is|are) no versions? of )?(?P<name>[\w.-]+(?:[<>=!~]=?[\w.]+)?) "
        r"(?:was not found in|and you)"
        r"|No matching distribution found for (?P<other>\S+)",
        "The package {name}{other}, which the trainer requires, can't be found.",
        "Check its name and version in install_requires in setup.py, and that this machine can reach a package index.",
    ),
    _cause(
        "module",
        r"(?:ModuleNotFoundError|ImportError): No module named '?(?P<name>[\w.]+)'?",
        "The module {name} is not there.",
        "If it belongs to another package, add that to install_requires in setup.py; if it is yours, check that its "
        "folder has an __init__.py.",
    ),
    _cause(
        "package",
        r"(?:DistributionNotFound|PackageNotFoundError): (?:The ')?(?P<name>[\w.-]+)",
        "The package {name} is not installed.",
        "Add it to install_requires in setup.py.",
    ),
    _cause(
        "import",
        r"ImportError: cannot import name '(?P<name>\w+)' from '(?P<module>[\w.]+)'",
        "There is no {name} in the module {module} of this runtime.",
        "The trainer was written for another version of it: choose another runtime with --runtime-version, or pin the "
        "package in install_requires.",
    ),
    _cause(
        "bucket access",
        r"(?:403|Forbidden|PermissionDenied|PERMISSION_DENIED)\b.*?gs://(?P<bucket>[\w.-]+)"
        r"|(?P<other>This token \([^)]*\) may not [^.]+)",
        "The trainer may not use what it asked for in a bucket.",
        "A job reaches the buckets of its own project alone. Copy the data there: trainshed buckets cp -r SOURCE gs://BUCKET/",
    ),
    _cause(
        "object",
        r"(?:NotFoundError|FileNotFoundError|No such file|does not exist|No files? (?:found|match)|NOT_FOUND|404)"
        r".*?(?P<uri>gs://(?P<bucket>[\w.-]+)[^\s'\";,\])]*)|(?P<other>gs://(?P<there>[\w.-]+)\S*?);? No such file",
        "There is no {uri}{other}.",
        "Check the address. See what is there with: trainshed buckets ls gs://{bucket}{there}/",
    ),
    _cause(
        "file",
        r"No such file or directory: b?'(?P<path>[^']+)'|(?P<other>/\S+?);? No such file or directory",
        "There is no file {path}{other}.",
        "A trainer starts in an empty folder, without the files of your machine. Copy data into a bucket, `trainshed "
        "buckets cp FILE gs://BUCKET/`, and give the trainer that address, or pack it with package_data in setup.py.",
    ),
    _cause(
        "port",
        r"Address already in use|EADDRINUSE|\[Errno 98\]|Hardly any port from",
        "A port that the job wanted to listen on is in use.",
        "Let the trainer listen where TF_CONFIG says, or on port 0; a fixed port may be taken by another job. Else end "
        "the program that listens there.",
    ),
    _cause(
        "permission",
        r"(?:PermissionError|Read-only file system): .*?'(?P<path>[^']+)'"
        r"|(?P<other>/\S+?);? (?:Permission denied|Read-only file system)",
        "The trainer may not read or write {path}{other}.",
        "Let it write below --job-dir or into the folder that it starts in; what it reads must be readable for the "
        "user who runs the server.",
    ),
    _cause(
        "NaN",
        r"NanLossDuringTrainingError|NaN loss during training|Model diverged with loss = NaN",
        "The loss became NaN: the training diverged.",
        "Use a lower learning rate, check the data for empty or huge values, or clip the gradients.",
    ),
    _cause(
        "interrupted",
        r"^KeyboardInterrupt",
        "{who} was interrupted.",
        "Submit the job again.",
    ),
)


def diagnose(error: str, *, runtime: str = "") -> Diagnosis:
    """Summarize a job's error message."""
    text = _POINTER.sub("", error)
    opening, _, excerpt = text.partition("\n\n")[0].partition("\n")
    exit_line = _EXIT_LINE.match(opening)
    if exit_line is None:
        return _match_cause((text,), "", runtime) or _from_server_message(text)
    replica = f"{exit_line[1]}-replica-{exit_line[2]}"
    exception = _exception_text(excerpt)
    fallback = () if _TRACEBACK in excerpt else (excerpt,)
    return _match_cause((opening, exception, *fallback), replica, runtime) or Diagnosis(
        summary=_fallback_summary(replica, opening, exception), replica=replica
    )


def _match_cause(texts: tuple[str, ...], replica: str, runtime: str) -> Diagnosis | None:
    """The first cause that matches, if any. A later text counts only if no earlier text matches."""
    for text, cause in product(texts, CAUSES):
        if runtime.startswith(cause.runtime) and (sign := cause.sign.search(text)):
            fields = {name: _truncate(value or "") for name, value in sign.groupdict().items()}
            fields |= {"who": replica or "The job"}
            summary, remedy = cause.summary.format(**fields), cause.remedy.format(**fields)
            return Diagnosis(summary=summary, remedy=remedy, replica=replica, cause=cause.name)
    return None


def _exception_text(excerpt: str) -> str:
    """The exception with its whole message. Without a traceback, the last line."""
    lines = [line for line in excerpt.split("\n") if line.strip()]
    if _TRACEBACK not in excerpt:
        return lines[-1].strip() if lines else ""
    frames = [number for number, line in enumerate(lines) if line.startswith((" ", _TRACEBACK))]
    exception = lines[frames[-1] + 1 :] or lines[-1:]
    return _MODULES.sub("", "\n".join(exception))


def _from_server_message(text: str) -> Diagnosis:
    """Errors of the server and the supervisor state their remedy in the second sentence."""
    first, *rest = _SENTENCE.split(text.strip().partition("\n")[0], maxsplit=1)
    return Diagnosis(summary=_truncate(first), remedy=_truncate(rest[0]) if rest else "")


def _fallback_summary(replica: str, opening: str, exception: str) -> str:
    """The exit status and the first line of the exception."""
    first_line = exception.partition("\n")[0]
    status = _STATUS.search(opening)
    summary = f"{replica} ended with status {status[1]}" if status else opening.strip().rstrip(".")
    return _truncate(f"{summary}: {first_line}" if first_line else summary, stop=True)


def _truncate(text: str, *, stop: bool = False) -> str:
    text = text.strip()
    if len(text) > _MAX_CHARACTERS:
        return f"{text[:_MAX_CHARACTERS]}…"
    return text if not stop or text.endswith((".", "!", "?")) else f"{text}."
