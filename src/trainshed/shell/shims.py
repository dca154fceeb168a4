"""The small programs that come first on the PATH of `trainshed shell`."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

from trainshed.node.files import write_file

SHIMS = ("gcloud", "gsutil", "datalab", "tensorboard")

_HEADER = "#!/bin/sh\n# Made by `trainshed shell`, which makes it anew each time.\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Programs:
    """The programs that the shims start. `git` and `sudo` are None if they are not installed."""

    python: str  #: the Python that Trainshed runs on
    git: str | None
    sudo: str | None
    runtime: str = ""  #: the runtime whose Python `python` is; empty: there is no such shim
    runtime_folder: Path = Path()


def shim_scripts(programs: Programs, *, google: bool) -> dict[str, str]:
    """Return the scripts of the shims by name. With `google`, gcloud and gsutil are the real ones."""
    shims = [name for name in SHIMS if not (google and name in ("gcloud", "gsutil"))]
    scripts = {name: _HEADER + f'exec {_shim_command(programs, name)} "$@"\n' for name in shims}
    scripts["trainshed"] = _HEADER + f'exec {shlex.quote(programs.python)} -P -m trainshed.cli "$@"\n'
    scripts["git"] = _git(programs)
    scripts["sudo"] = _sudo(programs)
    if programs.runtime:
        scripts["python"] = _python(programs)
    return scripts


def _shim_command(programs: Programs, name: str) -> str:
    """Return the command of a shim. -P: nothing is imported from the current folder."""
    return f"{shlex.quote(programs.python)} -P -m trainshed.cli.shims {name}"


def _git(programs: Programs) -> str:
    real = (
        f'exec {shlex.quote(programs.git)} "$@"'
        if programs.git
        else "echo 'git is not installed. `trainshed samples list` shows what needs no clone.' >&2\nexit 127"
    )
    shim = f'exec {_shim_command(programs, "git")} "$@"'
    return _HEADER + f'case " $* " in\n*" clone "*github.com*) {shim} ;;\nesac\n{real}\n'


def _sudo(programs: Programs) -> str:
    """Run the samples' scripts without root: as root they would only leave files that the user can't remove."""
    run = 'echo "Nothing here needs root: running $1 as you." >&2\n    exec "$@"'
    real = f'exec {shlex.quote(programs.sudo)} "$@"' if programs.sudo else run
    return _HEADER + f'case "$1" in\n*scripts/create_records.py)\n    {run}\n    ;;\nesac\n{real}\n'


def _python(programs: Programs) -> str:
    """Start the Python of a runtime, which the server builds at its first use.

    uv, which checks every `python` on the PATH while it builds, gets none: it would wait for itself.
    """
    stamp, python = (shlex.quote(str(programs.runtime_folder / name)) for name in ("complete.json", "bin/python"))
    install = f"{shlex.quote(programs.python)} -P -m trainshed.cli runtimes install {programs.runtime}"
    return _HEADER + (
        f'[ -z "$TRAINSHED_BUILDING" ] || exit 127\n[ -e {stamp} ] || {install} >&2 || exit 1\nexec {python} "$@"\n'
    )


def write(folder: Path, scripts: dict[str, str]) -> None:
    """Write the shims, and remove all others. A running shim is not disturbed."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name, text in scripts.items():
        path = folder / name
        if path.is_file() and path.read_text() == text:
            continue
        write_file(path, text.encode(), mode=0o700)
    for path in folder.iterdir():
        if path.name not in scripts and not path.name.startswith("."):
            path.unlink(missing_ok=True)
