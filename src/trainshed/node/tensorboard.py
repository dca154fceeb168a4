"""TensorBoard, started with arguments from a file: what is in a command line can be read by everyone on the machine.

It reads event files by itself: TensorFlow would take seconds to import, and memory that trainings need.
"""

from __future__ import annotations

import json
import runpy
import sys
import types

_NO_TENSORFLOW = "tensorboard.compat.notf"  #: TensorBoard's own name for the wish to do without


def main(path: str) -> int:
    """Run it until it is ended. `path` names a file with a list of arguments, in JSON."""
    with open(path, "rb") as file:
        words = json.loads(file.read().decode())
    sys.modules[_NO_TENSORFLOW] = types.ModuleType(_NO_TENSORFLOW)
    sys.argv = ["tensorboard", *words]
    runpy.run_module("tensorboard.main", run_name="__main__")
    return 0
