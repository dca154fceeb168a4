"""The small programs that come first on the PATH of `trainshed shell`."""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass
from pathlib import Path

OURS = ("gcloud", "gsutil", "datalab", "tensorboard")

_HEAD = "#!/bin/sh\n# Made by `trainshed shell`, which makes it anew each time.\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Programs:
    """What the shims start. Of `git` and `sudo`, None stands for one that is not installed."""

    python: str  #: the Python that Trainshed itself runs on
    git: str | None
    sudo: str | None
    runtime: str = ""  #: whose Python `python` is; empty: there is no shim for it
    runtime_folder: Path = Path()


def texts(programs: Programs, *, google: bool) -> dict[str, str]:
    """The shims by name. With `google`, gcloud and gsutil are left to the real ones."""
    ours = [name for name in OURS if not (google and name in ("gcloud", "gsutil"))]
    found = {name: _HEAD + f'exec {_ours(programs, name)} "$@"\n' for name in ours}
    found["trainshed"] = _HEAD + f'exec {shlex.quote(programs.python)} -P -m trainshed.cli "$@"\n'
    found["git"] = _git(programs)
    found["sudo"] = _sudo(programs)
    if programs.runtime:
        found["python"] = _python(programs)
    return found


def _ours(programs: Programs, name: str) -> str:
    """-P: what lies in the folder that one happens to be in is not imported."""
    return f"{shlex.quote(programs.python)} -P -m trainshed.cli.shims {name}"


def _git(programs: Programs) -> str:
    real = (
        f'exec {shlex.quote(programs.git)} "$@"'
        if programs.git
        else "echo 'git is not installed. `trainshed samples list` shows what needs no clone.' >&2\nexit 127"
    )
    ours = f'exec {_ours(programs, "git")} "$@"'
    return _HEAD + f'case " $* " in\n*" clone "*github.com*) {ours} ;;\nesac\n{real}\n'


def _sudo(programs: Programs) -> str:
    """Scripts of the samples need no root: as root they would only leave files that one can't remove."""
    run = 'echo "Nothing here needs root: running $1 as you." >&2\n    exec "$@"'
    real = f'exec {shlex.quote(programs.sudo)} "$@"' if programs.sudo else run
    return _HEAD + f'case "$1" in\n*scripts/create_records.py)\n    {run}\n    ;;\nesac\n{real}\n'


def _python(programs: Programs) -> str:
    """The Python of a runtime, which the server builds at first use.

    uv, which looks at every `python` on the PATH while it builds, gets none: it would wait for itself.
    """
    stamp, python = (shlex.quote(str(programs.runtime_folder / name)) for name in ("complete.json", "bin/python"))
    install = f"{shlex.quote(programs.python)} -P -m trainshed.cli runtimes install {programs.runtime}"
    return _HEAD + (
        f'[ -z "$TRAINSHED_BUILDING" ] || exit 127\n[ -e {stamp} ] || {install} >&2 || exit 1\nexec {python} "$@"\n'
    )


def write(folder: Path, found: dict[str, str]) -> None:
    """Put them there, and nothing else. One that runs at this moment is not disturbed."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name, text in found.items():
        path = folder / name
        if path.is_file() and path.read_text() == text:
            continue
        fresh = folder / f".{name}.{os.getpid()}"
        with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o700), "w") as file:
            file.write(text)
        fresh.rename(path)
    for path in folder.iterdir():
        if path.name not in found and not path.name.startswith("."):
            path.unlink(missing_ok=True)
