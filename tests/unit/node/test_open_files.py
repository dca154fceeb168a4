"""The server raises its limit of open files, and what it starts has the limit from before."""

from __future__ import annotations

import subprocess
import sys

_PROGRAM = """
import os, resource, subprocess, sys
from trainshed.node.process import open_files
assert open_files.variables() == {}
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
assert open_files.raise_limit() == open_files.raise_limit() == hard
assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
child = '''
import os, resource
from trainshed.node.process import open_files
open_files.restore_limit()
open_files.restore_limit()
print(*resource.getrlimit(resource.RLIMIT_NOFILE), *[name for name in os.environ if "OPEN_FILES" in name])
'''
done = subprocess.run(
    [sys.executable, "-c", child], env={**os.environ, **open_files.variables()}, check=True, stdout=-1, text=True
)
assert done.stdout.split() == ["256", str(hard)], done.stdout
"""


def test_a_child_gets_the_previous_limit() -> None:
    done = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
