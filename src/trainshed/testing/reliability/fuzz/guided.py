"""Runs one parser under Atheris, which looks for inputs that reach new code: a process of `parsers.py`.

python -m trainshed.testing.reliability.fuzz.guided TARGET CORPUS [libFuzzer's options]

Its interpreter has Atheris, and the packages of the tests by PYTHONPATH.
"""

from __future__ import annotations

import importlib
import sys
import tempfile
from pathlib import Path


def main() -> None:
    """Run until libFuzzer's limits end the process."""
    name, corpus, *options = sys.argv[1:]
    atheris = importlib.import_module("atheris")
    with atheris.instrument_imports(include=["trainshed"]):
        table = importlib.import_module("trainshed.testing.reliability.fuzz.table")
    with tempfile.TemporaryDirectory(dir=table.MEMORY) as folder:
        target = table.parser_targets(Path(folder))[name]
        atheris.Setup([sys.argv[0], *options, corpus], lambda data: table.run_target(target, data))
        atheris.Fuzz()


if __name__ == "__main__":
    main()
