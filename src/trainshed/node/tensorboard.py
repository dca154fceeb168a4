"""Runs TensorBoard with arguments from a file, since everyone on the machine can read a command line.

TensorBoard reads event files without TensorFlow here. The import would take seconds, and memory that jobs need.
"""

from __future__ import annotations

import json
import runpy
import sys
import types

_NO_TENSORFLOW = "tensorboard.compat.notf"  #: TensorBoard skips TensorFlow if this module exists


def main(path: str) -> int:
    """Run TensorBoard until it exits. `path` names a file with a JSON list of arguments."""
    with open(path, "rb") as file:
        arguments = json.loads(file.read().decode())
    sys.modules[_NO_TENSORFLOW] = types.ModuleType(_NO_TENSORFLOW)
    sys.argv = ["tensorboard", *arguments]
    runpy.run_module("tensorboard.main", run_name="__main__")
    return 0
