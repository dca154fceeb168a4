"""Signs in the output of user code, Python and installers that explain a failure. The first that matches wins."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import product

_TRACEBACK = "Traceback (most recent call last):"
_MODULES = re.compile(r"\A(?:[A-Za-z_]\w*\.)+(?=[A-Za-z_]\w*(?::|\Z))")  #: the module path before an exception's name
_MAX_CHARACTERS = 400


@dataclass(frozen=True, slots=True)
class Sign:
    """A known sign: a pattern of output, and the sentences for people.

    The sentences can use the named groups of the pattern, and `who`, the replica.
    """

    name: str
    pattern: re.Pattern[str]
    summary: str
    remedy: str
    runtime: str = ""  #: only for runtimes whose version starts with this


def _sign(name: str, pattern: str, summary: str, remedy: str, *, runtime: str = "") -> Sign:
    return Sign(name, re.compile(pattern, re.MULTILINE), summary, remedy, runtime)


#: The first match wins, so specific signs come before general ones.
SIGNS = (
    _sign(
        "memory",
        r"^MemoryError|std::bad_alloc|OOM when allocating|ResourceExhaustedError: (?!.*space)"
        r"|Unable to allocate [\d.]+ \w+ for an array|Cannot allocate memory",
        "{who} ran out of memory.",
        "Use a smaller batch size, read the data in parts, or run fewer jobs at once.",
    ),
    _sign(
        "disk",
        r"No space left on device|\[Errno 28\]|Disk quota exceeded",
        "The disk is full.",
        "Delete what you no longer need, such as old checkpoints in buckets, and submit again.",
    ),
    _sign(
        "job-dir",
        r"unrecognized arguments:.*--job-dir",
        "The trainer does not take --job-dir, which every trainer is given.",
        "Add it to the parser, parser.add_argument('--job-dir'), or ignore what is not known with "
        "parser.parse_known_args().",
    ),
    _sign(
        "arguments",
        r"error: unrecognized arguments: (?P<given>.+)",
        "The trainer does not take these arguments: {given}.",
        "Check what stands behind ` -- ` in the submit command: it reaches the trainer as it is.",
    ),
    _sign(
        "missing arguments",
        r"error: the following arguments are required: (?P<missing>.+)",
        "The trainer was not given what it needs: {missing}.",
        "Add it behind ` -- ` at the end of the submit command.",
    ),
    _sign(
        "own module",
        r"^\S*python[\d.]*: (?:Error while finding module specification for '(?P<name>[\w.]+)'"
        r"|No module named '?(?P<other>[\w.]+)'?)",
        "There is no module {name}{other} in the package that was submitted.",
        "Check --module-name (PACKAGE.MODULE) and --package-path (the folder PACKAGE, with an __init__.py in it).",
    ),
    _sign(
        "TensorFlow 1",
        r"No module named '?(?P<name>tensorflow\.contrib[\w.]*)'?"
        r"|module 'tensorflow(?:\._api\.v2)?' has no attribute '(?P<other>Session|placeholder|app|flags|gfile|logging"
        r"|ConfigProto|get_default_graph|global_variables_initializer|contrib|layers|log|set_random_seed|variable_scope"
        r"|get_variable|trainable_variables|to_float|reset_default_graph|GraphKeys|InteractiveSession)'",
        "The trainer uses {name}{other}, which TensorFlow 2 does not have.",
        "Submit it with --runtime-version 1.15, or use tensorflow.compat.v1 where the module is there.",
        runtime="2.",
    ),
    _sign(
        "old runtime",
        r"module 'tensorflow(?:\.[\w.]+)?' has no attribute '(?P<name>\w+)'",
        "The trainer uses {name}, which the TensorFlow of this runtime does not have.",
        "The runtime is too old for it: submit it with a newer one, such as --runtime-version 2.21.",
        runtime="1.",
    ),
    _sign(
        "old Python",
        r"current Python version \((?P<has>[\d.]+)\) does not satisfy Python(?P<wants>[<>=!~\d.,]+)"
        r"|requires a different Python: (?P<other>[\d.]+) not in '?(?P<needs>[<>=!~\d., ]+)'?",
        "A package needs Python {wants}{needs}, and this runtime has {has}{other}.",
        "Submit it with a newer runtime (`trainshed runtimes list` shows them), or ask for an older version of the "
        "package in install_requires.",
    ),
    _sign(
        "syntax",
        r"^SyntaxError: (?P<what>.+)",
        "Python can't read the trainer's code: {what}.",
        "If it is right for a newer Python, the runtime is too old: this one has Python 3.7. Choose another with "
        "--runtime-version.",
        runtime="1.",
    ),
    _sign(
        "requirement",
        r"Because (?:there (?:is|are) no versions? of )?(?P<name>[\w.-]+(?:[<>=!~]=?[\w.]+)?) "
        r"(?:was not found in|and you)"
        r"|No matching distribution found for (?P<other>\S+)",
        "The package {name}{other}, which the trainer requires, can't be found.",
        "Check its name and version in install_requires in setup.py, and that this machine can reach a package index.",
    ),
    _sign(
        "module",
        r"(?:ModuleNotFoundError|ImportError): No module named '?(?P<name>[\w.]+)'?",
        "The module {name} is not there.",
        "If it belongs to another package, add that to install_requires in setup.py; if it is yours, check that its "
        "folder has an __init__.py.",
    ),
    _sign(
        "package",
        r"(?:DistributionNotFound|PackageNotFoundError): (?:The ')?(?P<name>[\w.-]+)",
        "The package {name} is not installed.",
        "Add it to install_requires in setup.py.",
    ),
    _sign(
        "import",
        r"ImportError: cannot import name '(?P<name>\w+)' from '(?P<module>[\w.]+)'",
        "There is no {name} in the module {module} of this runtime.",
        "The trainer was written for another version of it: choose another runtime with --runtime-version, or pin the "
        "package in install_requires.",
    ),
    _sign(
        "public data",
        r"URL fetch failure on https://storage\.googleapis\.com/(?P<bucket>[\w.-]+)/\S*: 404",
        "The trainer reads gs://{bucket}, which no project here has, and Google's storage did not give it.",
        "Bring the data in: `trainshed buckets mb gs://{bucket}`, then `trainshed buckets cp -r FOLDER "
        "gs://{bucket}`. The server's log says why Google's storage did not give it.",
    ),
    _sign(
        "gs:// in TensorFlow 1",
        r"libcurl code 60",
        "The trainer opens gs:// in its own code, and TensorFlow 1 does not trust this server's certificate.",
        "Pass the URI as an argument behind ` -- `, where it becomes a path if the bucket is the project's own. "
        "Bring data of others in with `trainshed buckets mb` and `trainshed buckets cp`.",
    ),
    _sign(
        "bucket access",
        r"(?:403|Forbidden|PermissionDenied|PERMISSION_DENIED)\b.*?(?:gs://|/storage/v1/b/)",
        "The trainer may not use what it asked for in a bucket.",
        "A job reaches the buckets of its own project alone. Copy the data there: trainshed buckets cp -r SOURCE gs://BUCKET/",
    ),
    _sign(
        "object",
        r"(?:NotFoundError|FileNotFoundError|No such file|does not exist|No files? (?:found|match)|NOT_FOUND|404)"
        r".*?(?P<uri>gs://(?P<bucket>[\w.-]+)[^\s'\";,\])]*)|(?P<other>gs://(?P<there>[\w.-]+)\S*?);? No such file",
        "There is no {uri}{other}.",
        "Check the address. See what is there with `trainshed buckets ls gs://{bucket}{there}/`.",
    ),
    _sign(
        "file",
        r"No such file or directory: b?'(?P<path>[^']+)'|(?P<other>/\S+?);? No such file or directory",
        "There is no file {path}{other}.",
        "A trainer starts in an empty folder, without the files of your machine. Copy data into a bucket, `trainshed "
        "buckets cp FILE gs://BUCKET/`, and give the trainer that address, or pack it with package_data in setup.py.",
    ),
    _sign(
        "port",
        r"Address already in use|EADDRINUSE|\[Errno 98\]",
        "A port that the job wanted to listen on is in use.",
        "Let the trainer listen where TF_CONFIG says, or on port 0; a fixed port may be taken by another job. Else end "
        "the program that listens there.",
    ),
    _sign(
        "permission",
        r"(?:PermissionError|Read-only file system): .*?'(?P<path>[^']+)'"
        r"|(?P<other>/\S+?);? (?:Permission denied|Read-only file system)",
        "The trainer may not read or write {path}{other}.",
        "Let it write below --job-dir or into the folder that it starts in; what it reads must be readable for the "
        "user who runs the server.",
    ),
    _sign(
        "NaN",
        r"NanLossDuringTrainingError|NaN loss during training|Model diverged with loss = NaN",
        "The loss became NaN: the training diverged.",
        "Use a lower learning rate, check the data for empty or huge values, or clip the gradients.",
    ),
    _sign(
        "interrupted",
        r"^KeyboardInterrupt",
        "{who} was interrupted.",
        "Submit the job again.",
    ),
)


def find_sign(output: str, *, who: str, runtime: str) -> tuple[str, str, str] | None:
    """Name, summary and remedy of the first sign in the output. Returns None if there is none.

    The exception of the last traceback counts. Without a traceback, the last line does, then all of the output.
    """
    texts = (last_exception(output), *(() if _TRACEBACK in output else (output,)))
    for text, sign in product(texts, SIGNS):
        if runtime.startswith(sign.runtime) and (found := sign.pattern.search(text)):
            fields = {name: truncate(value or "") for name, value in found.groupdict().items()} | {"who": who}
            return sign.name, sign.summary.format(**fields), sign.remedy.format(**fields)
    return None


def last_exception(output: str) -> str:
    """The exception with its whole message. Without a traceback, the last line."""
    lines = [line for line in output.split("\n") if line.strip()]
    if _TRACEBACK not in output:
        return lines[-1].strip() if lines else ""
    frames = [number for number, line in enumerate(lines) if line.startswith((" ", _TRACEBACK))]
    exception = lines[frames[-1] + 1 :] or lines[-1:]
    return _MODULES.sub("", "\n".join(exception))


def truncate(text: str, *, stop: bool = False) -> str:
    """The text in at most 400 characters, with a full stop if `stop` is set."""
    text = text.strip()
    if len(text) > _MAX_CHARACTERS:
        return f"{text[:_MAX_CHARACTERS]}…"
    return text if not stop or not text or text.endswith((".", "!", "?")) else f"{text}."
