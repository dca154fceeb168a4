"""A fake uv: it creates environments of empty packages immediately, and fails or blocks on request.

It finds no interpreter."""

from __future__ import annotations

import sys
from pathlib import Path

#: Files beside it: `gated` without `gate`: block in the middle. `fail`: print its content, and fail.
_SCRIPT = """#!/bin/sh
here=$(dirname "$0")
echo "$1" >> "$here/calls"
if [ "$1" = venv ]; then
    for path; do :; done
    mkdir -p "$path/bin" "$path/lib/python3.11/site-packages"
    ln -s {python} "$path/bin/python"
    exit 0
fi
[ "$1" != python ] || exit 1  # it knows no interpreters
while [ "$1" != --python ]; do shift; done
site=$(dirname "$2")/../lib/python3.11/site-packages
mkdir "$site/a-1.dist-info"
while [ -e "$here/gated" ] && [ ! -e "$here/gate" ]; do sleep 0.05; done
if [ -e "$here/fail" ]; then cat "$here/fail" >&2; exit 1; fi
mkdir "$site/b-2.dist-info"
"""


class ScriptedUv:
    """A fake uv in a folder, with its script's input files and a record of its calls."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self._folder = folder
        self.path = folder / "uv"
        self.path.write_text(_SCRIPT.format(python=sys.executable))
        self.path.chmod(0o755)

    def calls(self) -> list[str]:
        """List the commands that it was started with, in order."""
        calls = self._folder / "calls"
        return calls.read_text().split() if calls.exists() else []

    def close_gate(self) -> None:
        """Block in the middle of installations from now on."""
        (self._folder / "gate").unlink(missing_ok=True)
        (self._folder / "gated").touch()

    def open_gate(self) -> None:
        (self._folder / "gate").touch()

    def fail(self, words: str) -> None:
        (self._folder / "fail").write_text(words)

    def recover(self) -> None:
        (self._folder / "fail").unlink()
