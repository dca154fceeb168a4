"""TensorBoard on local folders."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from trainshed.local.processes import Program

RUNTIME = "2.21"  #: its TensorBoard reads the event files of all other runtimes
_SPEC = re.compile(r"[^/,:]+:(?!//)")
_READY = re.compile(r"TensorBoard \S+ at (http\S+)")


def program(python: Path, logdir: str, env: Mapping[str, str], *, host: str, port: int) -> Program:
    """Describe TensorBoard on a folder, or on several: `one,two` or `name:one,name:two`."""
    several = "," in logdir or _SPEC.match(logdir)
    flag = "--logdir_spec" if several else "--logdir"
    argv = (str(python), "-m", "tensorboard.main", flag, logdir, "--host", host, "--port", str(port))
    quiet = {"TF_CPP_MIN_LOG_LEVEL": "3", "TF_ENABLE_ONEDNN_OPTS": "0", "PYTHONUNBUFFERED": "1"}
    return Program(name="tensorboard", argv=argv, env={**env, **quiet}, folder=Path("/"))


def url_in(line: str) -> str | None:
    """Return TensorBoard's URL if the line announces it, otherwise None."""
    match = _READY.search(line)
    return match[1] if match else None
